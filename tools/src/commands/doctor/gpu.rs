//! One GPU, with its features and the size of its BAR1.
#![forbid(unsafe_code)]

use super::driver;
use super::environment::Backends;
use super::remedies::Remedy;
use super::report::{Cause, Finding};
use crate::cuda::survey::{Cuda, Gpu};
use crate::system::bytes::Bytes;
use crate::system::pci;

/// A smaller BAR1 was not resized, and has at most 256 MiB.
const SMALL_BAR1: u64 = 1 << 30;

/// The findings about each GPU, by title.
pub(super) fn sections(cuda: &Cuda, backends: Backends) -> Vec<(String, Vec<Finding>)> {
    let gpus = cuda.gpus.as_deref().unwrap_or_default();
    let mut sections = Vec::new();
    for gpu in gpus {
        let title = format!("GPU {}: {} at {}", gpu.device.number, gpu.device.name, gpu.device.pci_address);
        let findings = vec![rdma(gpu, gpus, backends), dmabuf(gpu, backends), bar1_size(gpu)];
        sections.push((title, findings));
    }
    sections
}

/// A feature that is supported, or that this driver does not report.
fn supported(subject: &'static str, value: Option<bool>, since: &str) -> Finding {
    match value {
        Some(_) => Finding::ok(subject, "supported"),
        None => Finding::unknown(subject, format!("not reported by this driver (CUDA {since} can)")),
    }
}

fn rdma(gpu: &Gpu, all: &[Gpu], backends: Backends) -> Finding {
    const SUBJECT: &str = "GPUDirect RDMA";
    if gpu.rdma != Some(false) {
        return supported(SUBJECT, gpu.rdma, "11.3");
    }
    let value = "not supported: gdrdrv cannot pin this GPU's memory";
    if backends.need_dmabuf() && backends.dmabuf && driver::gpu_maps_dmabufs(gpu) {
        return Finding::warning(SUBJECT, value, Remedy::GpuKind);
    }
    let others = all.iter().filter(|other| other.rdma == Some(true));
    let others: Vec<_> = others.map(|other| other.device.number.to_string()).collect();
    if others.is_empty() {
        return Finding::problem(SUBJECT, value, Remedy::GpuKind).caused_by(Cause::Nothing);
    }
    Finding::problem(SUBJECT, value, Remedy::GpuExclude.with("others", others.join(",")))
}

fn dmabuf(gpu: &Gpu, backends: Backends) -> Finding {
    let value = match (gpu.dmabuf_mmap, gpu.dmabuf) {
        (Some(true), _) => "its memory can be mapped as one",
        (Some(false), Some(true)) => "its memory can be exported as one, but not mapped",
        (None, Some(true)) => "its memory can be exported as one",
        (_, Some(false)) | (Some(false), None) => "its memory cannot be exported as one",
        (None, None) => return supported("dma-buf", None, "11.7"),
    };
    if backends.need_dmabuf() && !driver::gpu_maps_dmabufs(gpu) {
        let remedy = if backends.dmabuf_forced { Remedy::DmabufUnforced } else { Remedy::DriverOpen };
        return Finding::problem("dma-buf", value, remedy).caused_by(Cause::DmaBuf);
    }
    Finding::ok("dma-buf", value)
}

fn bar1_size(gpu: &Gpu) -> Finding {
    let Some(size) = pci::bar1(&gpu.device.pci_address) else {
        return Finding::unknown("BAR1 size", "not reported by sysfs");
    };
    let value = Bytes(size as usize);
    if size < SMALL_BAR1 && size < gpu.memory {
        return Finding::warning("BAR1 size", format!("the limit for all pins: {value}"), Remedy::Bar1Small);
    }
    Finding::ok("BAR1 size", value.to_string())
}
