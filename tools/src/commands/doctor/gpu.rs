//! One GPU, with its features and its link.
#![forbid(unsafe_code)]

use super::backends::Backends;
use super::driver;
use super::report::{Cause, Finding, Section, bytes};
use crate::cuda::Device;
use crate::cuda::survey::Gpu;
use crate::system::cpu;
use crate::system::nvml::{Bar1, Nvml};
use crate::system::pci::{self, Pci};

/// A smaller BAR1 was not resized, and has at most 256 MiB.
const SMALL_BAR1: u64 = 1 << 30;

/// `pinned`: bytes that gdrdrv has pinned on all GPUs, if known.
pub(super) fn section(gpu: &Gpu, nvml: Option<&Nvml>, backends: Backends, pinned: Option<u64>) -> Section {
    let Device { number, name, pci_address, .. } = &gpu.device;
    let pci = pci::query(pci_address);
    let bar1 = nvml.and_then(|nvml| nvml.bar1(pci_address));
    let title = format!("GPU {number}: {name} at {pci_address}");
    Section::new(
        title,
        vec![
            rdma(gpu, backends).about("GPUDirect RDMA"),
            rdma_with_vmm(gpu).about("RDMA with VMM"),
            dmabuf(gpu, backends).about("dma-buf"),
            memory_pools(gpu).about("memory pools"),
            platform(gpu).about("platform"),
            bar1_size(gpu, bar1.map(|bar1| bar1.total).or(pci.bar1), pinned).about("BAR1 size"),
            bar1_use(bar1, pinned.is_some()).about("BAR1 use"),
            numa_node(pci_address).about("NUMA node"),
            link(&pci).about("PCIe link"),
        ],
    )
}

fn rdma(gpu: &Gpu, backends: Backends) -> Finding {
    match gpu.rdma {
        Some(true) => Finding::ok("supported"),
        Some(false) => Finding::problem(
            "not supported: gdrdrv cannot pin this GPU's memory",
            "use a data-center or RTX PRO GPU, or exclude this one (CUDA_VISIBLE_DEVICES)",
        )
        .only_if(!(backends.need_dmabuf() && backends.dmabuf && driver::gpu_maps_dmabufs(gpu))),
        None => Finding::unknown("not reported by this driver (CUDA 11.3 can)"),
    }
}

fn rdma_with_vmm(gpu: &Gpu) -> Finding {
    match gpu.rdma_with_vmm {
        Some(true) => Finding::ok("supported: memory from cuMemCreate can be pinned"),
        Some(false) => Finding::warning(
            "not supported: memory from cuMemCreate cannot be pinned",
            "pin memory from cuMemAlloc or cudaMalloc",
        ),
        None => Finding::unknown("not reported by this driver (CUDA 11.0 can)"),
    }
}

fn dmabuf(gpu: &Gpu, backends: Backends) -> Finding {
    let value = match (gpu.dmabuf_mmap, gpu.dmabuf) {
        (Some(true), _) => "its memory can be mapped as one",
        (Some(false), Some(true)) => "its memory can be exported as one, but not mapped",
        (None, Some(true)) => "its memory can be exported as one",
        (_, Some(false)) | (Some(false), None) => "its memory cannot be exported as one",
        (None, None) => {
            return Finding::unknown("not reported by this driver (CUDA 11.7 can)");
        }
    };
    if backends.need_dmabuf() && !driver::gpu_maps_dmabufs(gpu) {
        let remedy = backends.for_dmabufs("use the open kernel modules of the GPU driver, which dma-bufs need");
        return Finding::problem(value, remedy).caused_by(Cause::DmaBuf);
    }
    Finding::ok(value)
}

fn memory_pools(gpu: &Gpu) -> Finding {
    match gpu.memory_pools {
        Some(true) => Finding::ok("supported"),
        Some(false) => Finding::ok("none; gdrcopy does without"),
        None => Finding::unknown("not reported by this driver (CUDA 11.2 can)"),
    }
}

fn platform(gpu: &Gpu) -> Finding {
    if std::fs::read_to_string("/proc/version").is_ok_and(|version| version.contains("microsoft")) {
        return Finding::problem(
            "WSL: GPUs are driven by Windows (WDDM), which gives no access to BAR1",
            "boot Linux itself",
        );
    }
    match (gpu.coherent, gpu.tcc) {
        (_, Some(true)) => Finding::ok("TCC driver model"),
        (Some(true), _) => Finding::ok("coherent: mappings are cached, unless forced over PCIe"),
        (Some(false), _) => Finding::ok("PCIe: mappings are write-combining"),
        (None, _) => Finding::unknown("not reported by this driver (CUDA 9.2 can)"),
    }
}

fn bar1_size(gpu: &Gpu, bar1: Option<u64>, pinned: Option<u64>) -> Finding {
    let pinned = match pinned {
        Some(pinned) => format!("; {} pinned through gdrdrv, on all GPUs", bytes(pinned)),
        None => String::new(),
    };
    match bar1 {
        None => Finding::unknown("not reported by NVML or sysfs"),
        Some(size) if size < SMALL_BAR1 && size < gpu.memory => Finding::warning(
            format!("{}: the limit for all pins{pinned}", bytes(size)),
            "enable Resizable BAR and Above 4G Decoding in the firmware, or on workstation cards NVIDIA's \
             displaymodeselector; or pin less",
        ),
        Some(size) => Finding::ok(format!("{}{pinned}", bytes(size))),
    }
}

fn bar1_use(bar1: Option<Bar1>, pins_are_listed: bool) -> Finding {
    match bar1 {
        None => Finding::unknown("not reported by NVML"),
        Some(Bar1 { total, free, used }) if free < total / 10 => Finding::warning(
            format!("{} used, {} free", bytes(used), bytes(free)),
            match pins_are_listed {
                true => "end programs that hold pins: the section pins lists them",
                false => "end programs that hold pins: gdrcopy ps shows them",
            },
        ),
        Some(Bar1 { free, used, .. }) => Finding::ok(format!("{} used, {} free", bytes(used), bytes(free))),
    }
}

fn numa_node(pci_address: &str) -> Finding {
    match (cpu::node_of_pci_device(pci_address), cpu::allowed_nodes()) {
        (None, _) => Finding::unknown("not reported by sysfs"),
        (Some(node), Some(allowed)) if !allowed.contains(&node) => Finding::warning(
            format!("{node}, and this process may only run on CPUs of other nodes"),
            format!("run programs near the GPU: numactl --cpunodebind={node} --membind={node}"),
        ),
        (Some(node), _) => Finding::ok(node.to_string()),
    }
}

fn link(pci: &Pci) -> Finding {
    let (Some(width), Some(speed)) = (pci.width, &pci.speed) else {
        return Finding::unknown("not reported by sysfs");
    };
    let generation = |speed: &str| match pci::generation(speed) {
        Some(generation) => format!("generation {generation}"),
        None => speed.to_owned(),
    };
    let mut value = format!("{}, {width} lanes", generation(speed));
    if let Some(most) = pci.max_speed.as_ref().filter(|most| *most != speed) {
        // The link of an idle GPU runs at a lower speed.
        value += &format!(" now; {} when busy", generation(most));
    }
    match pci.max_width {
        Some(most) if most > width => Finding::warning(
            format!("{value}, of {most} supported by the GPU"),
            "reseat the card, or use a slot that is wired for more lanes",
        ),
        _ => Finding::ok(value),
    }
}
