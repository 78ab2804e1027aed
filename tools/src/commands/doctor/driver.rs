//! The GPU driver, CUDA, and nvidia-peermem.
#![forbid(unsafe_code)]

use super::backends::Backends;
use super::report::{Cause, Finding};
use crate::cuda::survey::{Cuda, Gpu};
use crate::system::nvml::Nvml;
use crate::system::{files, pci};

/// The first CUDA version whose dma-bufs can be mapped, 13.3.
const DMABUF_SINCE: i32 = 13030;

/// Returns whether memory of at least one GPU can be mapped without gdrdrv.
pub(super) fn maps_dmabufs(cuda: &Cuda) -> bool {
    let new_enough = matches!(cuda.version, Ok(version) if version >= DMABUF_SINCE);
    let gpus = cuda.gpus.as_deref().unwrap_or_default();
    new_enough && gpus.iter().any(gpu_maps_dmabufs)
}

/// Returns whether this GPU's memory can, with a new enough driver.
pub(super) fn gpu_maps_dmabufs(gpu: &Gpu) -> bool {
    // Older drivers only know the more general attribute.
    gpu.dmabuf_mmap.or(gpu.dmabuf) == Some(true)
}

pub(super) fn findings(cuda: &Cuda, nvml: Option<&Nvml>, backends: Backends) -> Vec<Finding> {
    let no_hardware = no_hardware(cuda, pci::has_nvidia_gpu());
    let mut findings = Vec::from_iter(no_hardware.map(|finding| finding.about("hardware")));
    findings.push(gpu_driver(nvml).about("GPU driver"));
    let found = match &cuda.version {
        Ok(version) => Finding::ok(format!("{}, by the driver", format_version(*version))),
        Err(why) => Finding::problem(
            format!("no CUDA driver: {why}"),
            "install the GPU driver's libcuda.so.1; into containers NVIDIA's container toolkit adds it (--gpus all)",
        ),
    };
    findings.push(found.about("CUDA"));
    if let Ok(version) = cuda.version {
        findings.push(dmabuf(version, backends).about("dma-buf backend"));
        findings.push(gpus(cuda).about("GPUs"));
        findings.push(cdmm(cuda).about("CDMM"));
    }
    findings.push(peermem().about("nvidia-peermem"));
    findings
}

/// No other advice helps where there is no GPU. CUDA can have some that are not on the bus, in WSL.
fn no_hardware(cuda: &Cuda, on_the_bus: Option<bool>) -> Option<Finding> {
    let seen = cuda.gpus.as_ref().is_ok_and(|gpus| !gpus.is_empty());
    (on_the_bus == Some(false) && !seen).then(|| {
        let finding = Finding::problem(
            "no GPU of NVIDIA in /sys/bus/pci/devices",
            "use a computer with one, or pass it through to this virtual machine; without any GPU, \
             programs run under gdremu",
        );
        finding.caused_by(Cause::Nothing)
    })
}

/// A CUDA version as `13.0`.
fn format_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn gpu_driver(nvml: Option<&Nvml>) -> Finding {
    let text = files::text("/proc/driver/nvidia/version");
    let kind = match text.as_deref() {
        Some(text) if text.contains("Open Kernel Module") => ", open kernel modules",
        Some(_) => ", proprietary kernel modules",
        None => "",
    };
    let version = text.as_deref().and_then(version_in).map(str::to_owned);
    let version = version.or_else(|| nvml?.driver_version()).or_else(|| files::text("/sys/module/nvidia/version"));
    match version {
        Some(version) => Finding::ok(format!("{version}{kind}")),
        None => Finding::unknown("not reported: there is no /proc/driver/nvidia/version"),
    }
}

/// The first word of the line that looks like 580.95.05.
fn version_in(text: &str) -> Option<&str> {
    let mut words = text.lines().next()?.split_whitespace();
    words.find(|word| word.contains('.') && word.chars().all(|char| char.is_ascii_digit() || char == '.'))
}

fn dmabuf(version: i32, backends: Backends) -> Finding {
    if version >= DMABUF_SINCE {
        return Finding::ok("the driver is new enough");
    }
    let value = format!(
        "the driver supports CUDA {}, mapping dma-bufs needs {}",
        format_version(version),
        format_version(DMABUF_SINCE)
    );
    match backends.need_dmabuf() {
        true => {
            let remedy = backends.for_dmabufs("update the GPU driver to 610 or later");
            Finding::problem(value, remedy).caused_by(Cause::DmaBuf)
        }
        // gdrdrv works.
        false => Finding::ok(format!("not needed here: {value}")),
    }
}

fn gpus(cuda: &Cuda) -> Finding {
    match cuda.gpus.as_deref() {
        Ok([]) => Finding::problem(
            "CUDA sees no GPU",
            "is CUDA_VISIBLE_DEVICES right, and does nvidia-smi show one? A container needs \
             --gpus all",
        ),
        Ok(gpus) => Finding::ok(gpus.len().to_string()),
        Err(why) => Finding::problem(
            format!("CUDA cannot be used: {why}"),
            "does nvidia-smi work? After an update of the driver, reload its kernel module \
             or reboot",
        ),
    }
}

/// Coherent driver-based memory management, where GPU memory is no NUMA node of the host.
fn cdmm(cuda: &Cuda) -> Finding {
    let gpus = cuda.gpus.as_deref().unwrap_or_default();
    if !gpus.iter().any(|gpu| gpu.coherent == Some(true)) {
        return Finding::ok("not applicable: no GPU has a coherent link");
    }
    let params = files::text("/proc/driver/nvidia/params");
    let mode = params.as_deref().and_then(|params| files::field(params, "CoherentGPUMemoryMode"));
    match mode.map(|mode| mode.trim_matches('"')) {
        Some("driver") => Finding::ok("on: the GPU's memory is no NUMA node of the host"),
        Some("numa") => Finding::ok("off: the GPU's memory is a NUMA node of the host"),
        Some("") => Finding::unknown("not set (NVreg_CoherentGPUMemoryMode): as the GPU driver chooses"),
        Some(mode) => Finding::unknown(format!("unknown mode {mode}")),
        None => Finding::unknown("not reported by /proc/driver/nvidia/params"),
    }
}

fn peermem() -> Finding {
    match files::module_loaded("nvidia_peermem") {
        Some(true) => Finding::ok("loaded"),
        Some(false) => Finding::ok(
            "not loaded; gdrcopy does not need it, RDMA network cards may want it (modprobe \
             nvidia-peermem)",
        ),
        None => Finding::unknown("not reported: there is no /proc/modules"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_missing_where_neither_the_bus_nor_cuda_has_a_gpu() {
        let cuda = |gpus| Cuda { version: Ok(13000), gpus };
        let is_missing = |gpus, on_the_bus| no_hardware(&cuda(gpus), on_the_bus).is_some();
        assert!(is_missing(Ok(Vec::new()), Some(false)));
        assert!(is_missing(Err("no libcuda".into()), Some(false)));
        assert!(!is_missing(Ok(Vec::new()), Some(true)));
        assert!(!is_missing(Ok(Vec::new()), None));
    }
}
