//! The GPU driver, CUDA, and nvidia-peermem.
#![forbid(unsafe_code)]

use std::env;
use std::path::Path;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::backends::Backends;
use super::host::Container;
use super::probe::Survey;
use super::remedies::{Advice, Remedy};
use super::report::{Cause, Finding, bytes};
use crate::cuda::survey::{Cuda, Failure, Gpu};
use crate::system::{files, pci};

/// The first CUDA version whose dma-bufs can be mapped, 13.3.
const DMABUF_SINCE: i32 = 13030;

/// The meaning of errors of CUDA. The remedy of others is nvidia-smi and the kernel's log.
struct Meaning {
    codes: &'static [i32],
    cause: &'static str,
    remedy: Remedy,
    /// Others use the GPU now. So it says nothing about this system.
    passes: bool,
}

const fn meaning(codes: &'static [i32], cause: &'static str, remedy: Remedy) -> Meaning {
    Meaning { codes, cause, remedy, passes: false }
}

const MEANINGS: [Meaning; 13] = [
    Meaning { passes: true, ..meaning(&[2], "the memory of the GPU, or the host's, is full", Remedy::GpuFull) },
    Meaning {
        passes: true,
        ..meaning(&[46], "the GPU is in exclusive use, or its compute mode is prohibited", Remedy::GpuExclusive)
    },
    Meaning {
        passes: true,
        ..meaning(&[807, 808, 809], "the MPS server is not ready, or has its most clients", Remedy::CudaMps)
    },
    meaning(&[805, 806, 810], "the MPS daemon does not answer", Remedy::CudaMps),
    meaning(&[34], "a stub is loaded as libcuda.so.1", Remedy::CudaStub),
    meaning(&[101], "no such GPU", Remedy::GpuHidden),
    meaning(&[102], "the virtual GPU has no license", Remedy::CudaLicense),
    meaning(&[214, 219, 700, 717, 718, 719], "the GPU has failed", Remedy::GpuReset),
    meaning(&[304, 999], "its device nodes are missing, or closed to this user", Remedy::DriverNodes),
    meaning(&[800], "not permitted", Remedy::CudaPermission),
    meaning(&[802], "NVSwitch without a running fabric manager", Remedy::FabricManager),
    meaning(&[803], "libcuda.so.1 and the loaded kernel module differ in release", Remedy::DriverMismatch),
    meaning(&[804], "CUDA's compat libcuda.so.1 on a GPU that does not support it", Remedy::CudaCompat),
];

/// Returns the cause of an error of CUDA, its remedy, and whether it passes by itself.
pub(super) fn rate_error(code: i32, gpu: i32, file: Option<&str>) -> (&'static str, Advice, bool) {
    let Some(meaning) = MEANINGS.iter().find(|meaning| meaning.codes.contains(&code)) else {
        return ("CUDA does not work", Remedy::CudaError.into(), false);
    };
    let file = file.unwrap_or("libcuda.so.1");
    if let (2, Ok((limit, _))) = (code, getrlimit(Resource::RLIMIT_AS))
        && limit != RLIM_INFINITY
    {
        let advice = Remedy::AddressSpace.with("limit", bytes(limit));
        return ("the address space of the process is limited", advice, meaning.passes);
    }
    let mut advice = meaning.remedy.with("gpu", gpu).with("file", file).with("path", library_path_without(file));
    if library_path_without(file) == env::var("LD_LIBRARY_PATH").unwrap_or_default()
        && [Remedy::CudaStub, Remedy::CudaCompat].contains(&meaning.remedy)
    {
        advice = advice.with("entry", "it from LD_PRELOAD, or its directory from the files in /etc/ld.so.conf.d");
        advice.commands = vec!["ldconfig".into()];
    }
    let advice = advice.with("entry", "its directory from LD_LIBRARY_PATH");
    (meaning.cause, advice, meaning.passes)
}

/// LD_LIBRARY_PATH without the directory of a file.
fn library_path_without(file: &str) -> String {
    let list = env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let directory = Path::new(file).parent().and_then(|directory| directory.canonicalize().ok());
    let is_other = |entry: &&str| directory.is_none() || Path::new(entry).canonicalize().ok() != directory;
    list.split(':').filter(is_other).collect::<Vec<_>>().join(":")
}

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

pub(super) fn findings(survey: &Survey, backends: Backends, container: Option<&Container>) -> Vec<Finding> {
    let cuda = &survey.cuda;
    let mut findings = Vec::new();
    if is_absent(cuda, pci::has_nvidia_gpu()) {
        let finding = Finding::problem("hardware", "no GPU of NVIDIA in /sys/bus/pci/devices", Remedy::GpuNone);
        findings.push(finding.caused_by(Cause::Nothing));
    }
    findings.push(gpu_driver(survey));
    match &cuda.version {
        Ok(version) => {
            findings.push(Finding::ok("CUDA", format!("{}, by the driver", format_version(*version))));
            findings.push(dmabuf(*version, backends));
            findings.push(gpus(cuda, container));
            findings.push(cdmm(cuda));
        }
        Err(Failure { text, code: None }) => {
            let remedy = container.map_or(Remedy::DriverMissing, |container| container.gpu);
            findings.push(Finding::problem("CUDA", format!("no CUDA driver: {text}"), remedy));
        }
        Err(failure) => findings.push(broken("CUDA", failure, cuda.file.as_deref())),
    }
    findings.push(peermem());
    findings
}

/// No other advice helps where there is no GPU. CUDA can have some that are not on the bus, in WSL.
fn is_absent(cuda: &Cuda, on_the_bus: Option<bool>) -> bool {
    let seen = cuda.gpus.as_ref().is_ok_and(|gpus| !gpus.is_empty());
    on_the_bus == Some(false) && !seen
}

/// A CUDA version as `13.0`.
fn format_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn gpu_driver(survey: &Survey) -> Finding {
    let text = files::text("/proc/driver/nvidia/version");
    let kind = match text.as_deref() {
        Some(text) if text.contains("Open Kernel Module") => ", open kernel modules",
        Some(_) => ", proprietary kernel modules",
        None => "",
    };
    let version = text.as_deref().and_then(version_in).map(str::to_owned);
    let version = version.or_else(|| survey.gpu_driver.clone()).or_else(|| files::text("/sys/module/nvidia/version"));
    match version {
        Some(version) => Finding::ok("GPU driver", format!("{version}{kind}")),
        None => Finding::unknown("GPU driver", "not reported: there is no /proc/driver/nvidia/version"),
    }
}

/// The first word of the line that looks like 580.95.05.
fn version_in(text: &str) -> Option<&str> {
    let mut words = text.lines().next()?.split_whitespace();
    words.find(|word| word.contains('.') && word.chars().all(|char| char.is_ascii_digit() || char == '.'))
}

fn dmabuf(version: i32, backends: Backends) -> Finding {
    const SUBJECT: &str = "dma-buf backend";
    if version >= DMABUF_SINCE {
        return Finding::ok(SUBJECT, "the driver is new enough");
    }
    let (version, since) = (format_version(version), format_version(DMABUF_SINCE));
    let value = format!("the driver supports CUDA {version}, mapping dma-bufs needs {since}");
    if !backends.need_dmabuf() {
        return Finding::ok(SUBJECT, format!("not needed here: {value}"));
    }
    let remedy = if backends.dmabuf_forced { Remedy::DmabufUnforced } else { Remedy::DriverUpdate };
    Finding::problem(SUBJECT, value, remedy).caused_by(Cause::DmaBuf)
}

fn gpus(cuda: &Cuda, container: Option<&Container>) -> Finding {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let remedy = match (&visible, container) {
        (Some(_), _) => Remedy::GpuHidden,
        (None, Some(container)) => container.gpu,
        (None, None) if env::var_os("SLURM_JOB_ID").is_some() => Remedy::GpuSlurm,
        (None, None) => Remedy::GpuUnseen,
    };
    let with_variable = match visible {
        Some(list) => format!(", with CUDA_VISIBLE_DEVICES={list}"),
        None => String::new(),
    };
    match &cuda.gpus {
        Ok(gpus) if gpus.is_empty() => Finding::problem("GPUs", format!("CUDA sees no GPU{with_variable}"), remedy),
        Ok(gpus) => Finding::ok("GPUs", format!("{}{with_variable}", gpus.len())),
        Err(failure) => broken("GPUs", failure, cuda.file.as_deref()),
    }
}

/// CUDA fails before a GPU is used.
fn broken(subject: &'static str, failure: &Failure, file: Option<&str>) -> Finding {
    let (cause, advice, _) = rate_error(failure.code.unwrap_or_default(), 0, file);
    Finding::problem(subject, format!("{}: {cause}", failure.text), advice)
}

/// Coherent driver-based memory management, where GPU memory is no NUMA node of the host.
fn cdmm(cuda: &Cuda) -> Finding {
    let gpus = cuda.gpus.as_deref().unwrap_or_default();
    if !gpus.iter().any(|gpu| gpu.coherent == Some(true)) {
        return Finding::ok("CDMM", "not applicable: no GPU has a coherent link");
    }
    let params = files::text("/proc/driver/nvidia/params");
    let mode = params.as_deref().and_then(|params| files::field(params, "CoherentGPUMemoryMode"));
    match mode.map(|mode| mode.trim_matches('"')) {
        Some("driver") => Finding::ok("CDMM", "on: the GPU's memory is no NUMA node of the host"),
        Some("numa") => Finding::ok("CDMM", "off: the GPU's memory is a NUMA node of the host"),
        Some("") => Finding::unknown("CDMM", "not set (NVreg_CoherentGPUMemoryMode): as the GPU driver chooses"),
        Some(mode) => Finding::unknown("CDMM", format!("unknown mode {mode}")),
        None => Finding::unknown("CDMM", "not reported by /proc/driver/nvidia/params"),
    }
}

fn peermem() -> Finding {
    const SUBJECT: &str = "nvidia-peermem";
    match files::module_loaded("nvidia_peermem") {
        Some(true) => Finding::ok(SUBJECT, "loaded"),
        Some(false) => Finding::ok(
            SUBJECT,
            "not loaded; gdrcopy does not need it, RDMA network cards may want it (modprobe nvidia-peermem)",
        ),
        None => Finding::unknown(SUBJECT, "not reported: there is no /proc/modules"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_missing_where_neither_the_bus_nor_cuda_has_a_gpu() {
        let cuda = |gpus| Cuda { version: Ok(13000), gpus, file: None };
        let is_missing = |gpus, on_the_bus| is_absent(&cuda(gpus), on_the_bus);
        assert!(is_missing(Ok(Vec::new()), Some(false)));
        assert!(is_missing(Err(Failure { text: "no libcuda".into(), code: None }), Some(false)));
        assert!(!is_missing(Ok(Vec::new()), Some(true)));
        assert!(!is_missing(Ok(Vec::new()), None));
    }
}
