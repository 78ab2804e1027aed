//! One GPU, with its features and its link.
#![forbid(unsafe_code)]

use super::backends::Backends;
use super::driver;
use super::probe::Survey;
use super::remedies::Remedy;
use super::report::{Cause, Finding, bytes};
use crate::cuda::survey::Gpu;
use crate::system::cpu;
use crate::system::nvml::Bar1;
use crate::system::pci::{self, Pci};

/// A smaller BAR1 was not resized, and has at most 256 MiB.
const SMALL_BAR1: u64 = 1 << 30;

/// The findings about each GPU, by title. `pinned`: bytes that gdrdrv has pinned on all GPUs, if known.
pub(super) fn sections(survey: &Survey, backends: Backends, pinned: Option<u64>) -> Vec<(String, Vec<Finding>)> {
    let gpus = survey.cuda.gpus.as_deref().unwrap_or_default();
    let mut sections = Vec::new();
    for (gpu, bar1) in gpus.iter().zip(&survey.bar1) {
        let address = &gpu.device.pci_address;
        let pci = pci::query(address);
        let title = format!("GPU {}: {} at {address}", gpu.device.number, gpu.device.name);
        let mut findings = vec![rdma(gpu, gpus, backends), rdma_with_vmm(gpu), dmabuf(gpu, backends)];
        findings.push(bar1_size(gpu, bar1.map(|bar1| bar1.total).or(pci.bar1), pinned));
        findings.extend([bar1_use(*bar1), numa_node(address), link(&pci)]);
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

fn rdma_with_vmm(gpu: &Gpu) -> Finding {
    const SUBJECT: &str = "RDMA with VMM";
    let value = "not supported: memory from cuMemCreate cannot be pinned";
    match (gpu.rdma_with_vmm, gpu.rdma) {
        (Some(false), Some(false)) => Finding::ok(SUBJECT, value),
        (Some(false), _) => Finding::warning(SUBJECT, value, Remedy::VmmKind),
        (reported, _) => supported(SUBJECT, reported, "11.0"),
    }
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

fn bar1_size(gpu: &Gpu, bar1: Option<u64>, pinned: Option<u64>) -> Finding {
    let Some(size) = bar1 else {
        return Finding::unknown("BAR1 size", "not reported by NVML or sysfs");
    };
    let mut value = bytes(size);
    if let Some(pinned) = pinned {
        value += &format!("; {} pinned through gdrdrv, on all GPUs", bytes(pinned));
    }
    if size < SMALL_BAR1 && size < gpu.memory {
        return Finding::warning("BAR1 size", format!("the limit for all pins: {value}"), Remedy::Bar1Small);
    }
    Finding::ok("BAR1 size", value)
}

fn bar1_use(bar1: Option<Bar1>) -> Finding {
    let Some(Bar1 { total, free, used }) = bar1 else {
        return Finding::unknown("BAR1 use", "not reported by NVML");
    };
    let value = format!("{} used, {} free", bytes(used), bytes(free));
    if free < total / 10 {
        return Finding::warning("BAR1 use", value, Remedy::Bar1Full);
    }
    Finding::ok("BAR1 use", value)
}

fn numa_node(pci_address: &str) -> Finding {
    let Some(node) = cpu::node_of_pci_device(pci_address) else {
        return Finding::unknown("NUMA node", "not reported by sysfs");
    };
    match cpu::allowed_nodes() {
        Some(allowed) if !allowed.contains(&node) => {
            let value = format!("{node}, and this process may only run on CPUs of other nodes");
            Finding::warning("NUMA node", value, Remedy::NumaFar.with("node", node))
        }
        _ => Finding::ok("NUMA node", node.to_string()),
    }
}

fn link(pci: &Pci) -> Finding {
    let (Some(width), Some(speed)) = (pci.width, &pci.speed) else {
        return Finding::unknown("PCIe link", "not reported by sysfs");
    };
    // The link of an idle GPU runs at a lower speed.
    let value = format!("{width} lanes, {speed} now");
    match pci.max_width {
        Some(most) if most > width => {
            Finding::warning("PCIe link", format!("{value}, while the GPU supports {most} lanes"), Remedy::LinkNarrow)
        }
        _ => Finding::ok("PCIe link", value),
    }
}
