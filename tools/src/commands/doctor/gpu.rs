//! One GPU, with its features and its link.
#![forbid(unsafe_code)]

use super::backends::Backends;
use super::driver;
use super::probe::Survey;
use super::remedies::Remedy;
use super::report::{Cause, Finding, bytes};
use crate::cuda::survey::Gpu;
use crate::system::cpu;
use crate::system::files;
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
        let findings = vec![
            rdma(gpu, gpus, backends),
            rdma_with_vmm(gpu),
            dmabuf(gpu, backends),
            supported("memory pools", gpu.memory_pools, "none; gdrcopy does without", "11.2"),
            platform(gpu),
            bar1_size(gpu, bar1.map(|bar1| bar1.total).or(pci.bar1), pinned),
            bar1_use(*bar1),
            numa_node(address),
            link(&pci),
        ];
        sections.push((title, findings));
    }
    sections
}

/// A feature that no remedy adds.
fn supported(subject: &'static str, value: Option<bool>, otherwise: &str, since: &str) -> Finding {
    match value {
        Some(true) => Finding::ok(subject, "supported"),
        Some(false) => Finding::ok(subject, otherwise),
        None => Finding::unknown(subject, format!("not reported by this driver (CUDA {since} can)")),
    }
}

fn rdma(gpu: &Gpu, all: &[Gpu], backends: Backends) -> Finding {
    const SUBJECT: &str = "GPUDirect RDMA";
    if gpu.rdma != Some(false) {
        return supported(SUBJECT, gpu.rdma, "", "11.3");
    }
    let others = all.iter().filter(|other| other.rdma == Some(true));
    let others: Vec<_> = others.map(|other| other.device.number.to_string()).collect();
    let value = "not supported: gdrdrv cannot pin this GPU's memory";
    if backends.need_dmabuf() && backends.dmabuf && driver::gpu_maps_dmabufs(gpu) {
        return Finding::warning(SUBJECT, value, Remedy::GpuKind);
    }
    match others.is_empty() {
        true => Finding::problem(SUBJECT, value, Remedy::GpuKind).caused_by(Cause::Nothing),
        false => Finding::problem(SUBJECT, value, Remedy::GpuExclude.with("others", others.join(","))),
    }
}

fn rdma_with_vmm(gpu: &Gpu) -> Finding {
    const SUBJECT: &str = "RDMA with VMM";
    let value = "not supported: memory from cuMemCreate cannot be pinned";
    match gpu.rdma_with_vmm {
        Some(false) if gpu.rdma != Some(false) => Finding::warning(SUBJECT, value, Remedy::VmmKind),
        reported => supported(SUBJECT, reported, value, "11.0"),
    }
}

fn dmabuf(gpu: &Gpu, backends: Backends) -> Finding {
    let value = match (gpu.dmabuf_mmap, gpu.dmabuf) {
        (Some(true), _) => "its memory can be mapped as one",
        (Some(false), Some(true)) => "its memory can be exported as one, but not mapped",
        (None, Some(true)) => "its memory can be exported as one",
        (_, Some(false)) | (Some(false), None) => "its memory cannot be exported as one",
        (None, None) => return supported("dma-buf", None, "", "11.7"),
    };
    if backends.need_dmabuf() && !driver::gpu_maps_dmabufs(gpu) {
        let remedy = if backends.dmabuf_forced { Remedy::DmabufUnforced } else { Remedy::DriverOpen };
        return Finding::problem("dma-buf", value, remedy).caused_by(Cause::DmaBuf);
    }
    Finding::ok("dma-buf", value)
}

fn platform(gpu: &Gpu) -> Finding {
    if files::text("/proc/version").is_some_and(|version| version.contains("microsoft")) {
        let value = "WSL: GPUs are driven by Windows (WDDM), which gives no access to BAR1";
        return Finding::problem("platform", value, Remedy::GpuWsl);
    }
    match (gpu.coherent, gpu.tcc) {
        (_, Some(true)) => Finding::ok("platform", "TCC driver model"),
        (Some(true), _) => Finding::ok("platform", "coherent: mappings are cached, unless forced over PCIe"),
        (Some(false), _) => Finding::ok("platform", "PCIe: mappings are write-combining"),
        (None, _) => supported("platform", None, "", "9.2"),
    }
}

fn bar1_size(gpu: &Gpu, bar1: Option<u64>, pinned: Option<u64>) -> Finding {
    let pinned = match pinned {
        Some(pinned) => format!("; {} pinned through gdrdrv, on all GPUs", bytes(pinned)),
        None => String::new(),
    };
    match bar1 {
        None => Finding::unknown("BAR1 size", "not reported by NVML or sysfs"),
        Some(size) if size < SMALL_BAR1 && size < gpu.memory => {
            let value = format!("{}: the limit for all pins{pinned}", bytes(size));
            Finding::warning("BAR1 size", value, Remedy::Bar1Small)
        }
        Some(size) => Finding::ok("BAR1 size", format!("{}{pinned}", bytes(size))),
    }
}

fn bar1_use(bar1: Option<Bar1>) -> Finding {
    let Some(Bar1 { total, free, used }) = bar1 else {
        return Finding::unknown("BAR1 use", "not reported by NVML");
    };
    let value = format!("{} used, {} free", bytes(used), bytes(free));
    match free < total / 10 {
        true => Finding::warning("BAR1 use", value, Remedy::Bar1Full),
        false => Finding::ok("BAR1 use", value),
    }
}

fn numa_node(pci_address: &str) -> Finding {
    let Some(node) = cpu::node_of_pci_device(pci_address) else {
        return Finding::unknown("NUMA node", "not reported by sysfs");
    };
    if cpu::allowed_nodes().is_none_or(|allowed| allowed.contains(&node)) {
        return Finding::ok("NUMA node", node.to_string());
    }
    let value = format!("{node}, and this process may only run on CPUs of other nodes");
    Finding::warning("NUMA node", value, Remedy::NumaFar.with("node", node))
}

fn link(pci: &Pci) -> Finding {
    let (Some(width), Some(speed)) = (pci.width, &pci.speed) else {
        return Finding::unknown("PCIe link", "not reported by sysfs");
    };
    let generation = |speed: &str| match pci::generation(speed) {
        Some(generation) => format!("generation {generation}"),
        None => speed.to_owned(),
    };
    let mut value = format!("{}, {width} lanes", generation(speed));
    match &pci.max_speed {
        // The link of an idle GPU runs at a lower speed.
        Some(most) if most != speed => value += &format!(" now; {} when busy", generation(most)),
        _ => {}
    }
    match pci.max_width {
        Some(most) if most > width => {
            Finding::warning("PCIe link", format!("{value}, of {most} supported by the GPU"), Remedy::LinkNarrow)
        }
        _ => Finding::ok("PCIe link", value),
    }
}
