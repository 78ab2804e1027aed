//! Examines the GPU driver, CUDA, and each GPU with its features and the size of its BAR1.
#![forbid(unsafe_code)]

use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{AccessFlags, Group, Uid, User, access};

use super::environment::{Backends, Container};
use super::probe::{self, Kind};
use super::remedies::{Advice, Remedy};
use super::report::{Cause, Finding};
use crate::cuda::survey::{Cuda, Failure, Gpu};
use crate::system::bytes::Bytes;
use crate::system::{files, pci};

/// The first version of CUDA whose dma-bufs can be mapped: 13.3, as the number that CUDA reports.
const DMABUF_SINCE: i32 = 13030;

/// Resizable BAR enlarges a BAR1 of at most 256 MiB to several GiB. This size lies between the two.
const SMALL_BAR1: u64 = 1 << 30;

/// The variable by which CUDA hides GPUs from a program.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The variable by which NVIDIA's container toolkit passes GPUs into a container.
const PASSED_IN: &str = "NVIDIA_VISIBLE_DEVICES";

/// The variable by which NVIDIA's container toolkit passes parts of the GPU driver into a container.
const CAPABILITIES: &str = "NVIDIA_DRIVER_CAPABILITIES";

/// Errors of CUDA, with their cause and remedy. For other errors, [`Remedy::CudaError`] points to nvidia-smi and the
/// kernel's log.
const ERRORS: [(&[i32], &str, Remedy); 13] = [
    (&[2], "the memory of the GPU, or the host's, is full", Remedy::GpuFull),
    (&[46], "the GPU is in exclusive use, or its compute mode is prohibited", Remedy::GpuExclusive),
    (&[807, 808, 809], "the MPS server is not ready, or has its most clients", Remedy::CudaMps),
    (&[805, 806, 810], "the MPS daemon does not answer", Remedy::CudaMps),
    (&[34], "a stub is loaded as libcuda.so.1", Remedy::CudaStub),
    (&[101], "no such GPU", Remedy::GpuHidden),
    (&[102], "the virtual GPU has no license", Remedy::CudaLicense),
    (&[214, 219, 700, 717, 718, 719], "the GPU has failed", Remedy::GpuReset),
    (&[304, 999], "its device nodes are missing, or closed to this user", Remedy::DriverNodes),
    (&[800], "not permitted", Remedy::CudaPermission),
    (&[802], "NVSwitch without a running fabric manager", Remedy::FabricManager),
    (&[803], "libcuda.so.1 and the loaded kernel module differ in release", Remedy::DriverMismatch),
    (&[804], "CUDA's compat libcuda.so.1 on a GPU that does not support it", Remedy::CudaCompat),
];

/// The errors of CUDA that occur while other programs use the GPU, and that can go away by themselves. They do not
/// mean that this system is set up wrong.
const PASSING: [i32; 5] = [2, 46, 807, 808, 809];

/// Returns the cause of an error of CUDA, its remedy, and whether the error can go away by itself.
pub(super) fn rate_error(code: i32, gpu: i32, file: Option<&str>) -> (&'static str, Advice, bool) {
    let Some(&(_, cause, remedy)) = ERRORS.iter().find(|(codes, ..)| codes.contains(&code)) else {
        return ("CUDA does not work", Remedy::CudaError.into(), false);
    };
    let passes = PASSING.contains(&code);
    if let (2, Ok((limit, _))) = (code, getrlimit(Resource::RLIMIT_AS))
        && limit != RLIM_INFINITY
    {
        let advice = Remedy::AddressSpace.with("limit", Bytes(limit as usize));
        return ("the address space of the process is limited", advice, passes);
    }
    let file = file.unwrap_or("libcuda.so.1");
    (cause, remedy.with("gpu", gpu).with("file", file), passes)
}

/// Returns whether memory of at least one GPU can be mapped without gdrdrv.
pub(super) fn maps_dmabufs(cuda: &Cuda) -> bool {
    let new_enough = matches!(cuda.version, Ok(version) if version >= DMABUF_SINCE);
    let gpus = cuda.gpus.as_deref().unwrap_or_default();
    new_enough && gpus.iter().any(gpu_maps_dmabufs)
}

/// Returns whether this GPU supports mapping without gdrdrv. It does not check whether the driver is new
/// enough.
fn gpu_maps_dmabufs(gpu: &Gpu) -> bool {
    // Older drivers report only whether memory can be exported as a dma-buf, and not whether a dma-buf can be mapped.
    gpu.dmabuf_mmap.or(gpu.dmabuf) == Some(true)
}

pub(super) fn findings(
    cuda: Result<&Cuda, &probe::Failure>,
    backends: Backends,
    container: Option<&Container>,
) -> Vec<Finding> {
    let cuda = match cuda {
        Ok(cuda) => cuda,
        Err(failure) => {
            let remedy = if failure.kind == Kind::Hung { Remedy::GpuHung } else { Remedy::CudaError };
            return vec![failure.finding("CUDA", remedy)];
        }
    };
    let mut findings = Vec::new();
    // If there is no GPU, no other advice helps. CUDA's list counts too: in WSL, GPUs need not be on the PCI bus.
    if pci::nvidia_gpus() == Some(0) && cuda.gpus.as_ref().map_or(0, Vec::len) == 0 {
        let finding = Finding::problem("hardware", "no GPU of NVIDIA in /sys/bus/pci/devices", Remedy::GpuNone);
        findings.push(finding.caused_by(Cause::Nothing));
    }
    findings.push(gpu_driver());
    match &cuda.version {
        Ok(version) => {
            findings.push(Finding::ok("CUDA", format!("{}, by the driver", format_version(*version))));
            findings.push(dmabuf(*version, backends));
            findings.push(gpus(cuda, container));
        }
        Err(Failure { text, code: None }) => {
            let advice = match (without_compute(), container) {
                (Some(list), _) => Remedy::GpuCapabilities.with("list", list),
                (None, Some(container)) => container.gpu.into(),
                (None, None) => Remedy::DriverMissing.into(),
            };
            findings.push(Finding::problem("CUDA", format!("no CUDA driver: {text}"), advice));
        }
        Err(failure) => findings.push(broken("CUDA", failure, cuda.file.as_deref())),
    }
    if files::text("/proc/version").is_some_and(|version| version.contains("microsoft")) {
        let value = "WSL: GPUs are driven by Windows (WDDM), which gives no access to BAR1";
        findings.push(Finding::problem("platform", value, Remedy::GpuWsl));
    }
    findings
}

/// If a container got the GPU's device nodes but not CUDA, returns the list of the driver's parts that it got.
fn without_compute() -> Option<String> {
    let list = env::var(CAPABILITIES).ok()?;
    let has_compute = list.split(',').any(|part| ["compute", "all"].contains(&part.trim()));
    let has_nodes = Path::new("/dev/nvidiactl").exists();
    if has_nodes && !has_compute && !list.is_empty() { Some(list) } else { None }
}

/// Returns a CUDA version in the form `13.0`.
fn format_version(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn gpu_driver() -> Finding {
    let kind = match files::text("/proc/driver/nvidia/version") {
        Some(text) if text.contains("Open Kernel Module") => ", open kernel modules",
        Some(_) => ", proprietary kernel modules",
        None => "",
    };
    match files::text("/sys/module/nvidia/version") {
        Some(version) => Finding::ok("GPU driver", format!("{version}{kind}")),
        None => Finding::unknown("GPU driver", "not reported: there is no /sys/module/nvidia/version"),
    }
}

fn dmabuf(version: i32, backends: Backends) -> Finding {
    const SUBJECT: &str = "dma-buf backend";
    if version >= DMABUF_SINCE {
        return Finding::ok(SUBJECT, "the driver is new enough");
    }
    let version = format_version(version);
    let since = format_version(DMABUF_SINCE);
    let value = format!("the driver supports CUDA {version}, mapping dma-bufs needs {since}");
    if !backends.need_dmabuf() {
        return Finding::ok(SUBJECT, format!("not needed here: {value}"));
    }
    let remedy = if backends.dmabuf_forced { Remedy::DmabufUnforced } else { Remedy::DriverUpdate };
    Finding::problem(SUBJECT, value, remedy).caused_by(Cause::DmaBuf)
}

fn gpus(cuda: &Cuda, container: Option<&Container>) -> Finding {
    let mut with_variable = String::new();
    if let Ok(list) = env::var(VISIBLE) {
        with_variable = format!(", with {VISIBLE}={list}");
    }
    if let Some(list) = passed_in(container) {
        with_variable += &format!(", with {PASSED_IN}={list}");
    }
    let has_none = cuda.gpus.as_ref().is_ok_and(Vec::is_empty);
    let advice = if has_none && let Some((node, advice)) = closed_node() {
        with_variable += &format!(": {node}");
        advice
    } else if has_none && env::var_os(VISIBLE).is_some() && !probe::all_gpus().is_empty() {
        Remedy::GpuHidden.into()
    } else if let Some(container) = container {
        container.gpu.into()
    } else if env::var_os("SLURM_JOB_ID").is_some() {
        Remedy::GpuSlurm.into()
    } else {
        Remedy::GpuUnseen.into()
    };
    match &cuda.gpus {
        Ok(gpus) if gpus.is_empty() => Finding::problem("GPUs", format!("CUDA sees no GPU{with_variable}"), advice),
        Ok(gpus) => Finding::ok("GPUs", format!("{}{with_variable}", gpus.len())),
        Err(failure) => broken("GPUs", failure, cuda.file.as_deref()),
    }
}

/// Returns the list of GPUs that were passed into the container; `None` for "all", for no list, or outside containers.
fn passed_in(container: Option<&Container>) -> Option<String> {
    container?;
    let list = env::var(PASSED_IN).ok()?;
    if list == "all" { None } else { Some(list) }
}

/// Returns the finding that CUDA fails before it uses a GPU.
fn broken(subject: &'static str, failure: &Failure, file: Option<&str>) -> Finding {
    let (cause, advice, _) = rate_error(failure.code.unwrap_or_default(), 0, file);
    match closed_node() {
        Some((node, of_node)) if advice.remedy == Remedy::DriverNodes => {
            Finding::problem(subject, format!("{}: {node}", failure.text), of_node)
        }
        _ => Finding::problem(subject, format!("{}: {cause}", failure.text), advice),
    }
}

/// Returns a text about the first of the GPU driver's device nodes that this user may not open, and the remedy.
fn closed_node() -> Option<(String, Advice)> {
    let flags = AccessFlags::R_OK | AccessFlags::W_OK;
    let mut nodes = files::matching(Path::new("/dev"), "nvidia");
    // These are the nodes that CUDA opens. Others, and directories such as /dev/nvidia-caps, are left out.
    nodes.retain(|node| {
        let name = node.to_string_lossy();
        let number = name.trim_start_matches("/dev/nvidia");
        ["ctl", "-uvm"].contains(&number) || number.parse::<u32>().is_ok()
    });
    let node = nodes.into_iter().find(|node| access(node, flags) == Err(Errno::EACCES))?;
    let status = node.metadata().ok()?;
    let (mode, group) = (status.mode() & 0o7777, status.gid());
    let text = format!("{} has mode {mode:03o}, owner {}:{group}", node.display(), status.uid());
    let mut name = group.to_string();
    if let Ok(Some(known)) = Group::from_gid(group.into()) {
        name = known.name;
    }
    let mut user = Uid::current().to_string();
    if let Ok(Some(known)) = User::from_uid(Uid::current()) {
        user = known.name;
    }
    let advice = if mode & 0o060 == 0o060 && group != 0 {
        Remedy::GpuGroup.with("group", name).with("user", user).with("file", node.display())
    } else {
        Remedy::GpuMode.with("file", node.display())
    };
    Some((text, advice))
}

// ---- Each GPU ----

/// Returns a title and the findings for each GPU.
pub(super) fn each_gpu(cuda: &Cuda, backends: Backends, container: Option<&Container>) -> Vec<(String, Vec<Finding>)> {
    let gpus = cuda.gpus.as_deref().unwrap_or_default();
    let has_rdma = gpus.iter().all(|gpu| gpu.rdma != Some(false));
    let other = if has_rdma { Remedy::GpuKind.into() } else { other_gpu(gpus, container) };
    let mut sections = Vec::new();
    for gpu in gpus {
        let title = format!("GPU {}: {} at {}", gpu.device.number, gpu.device.name, gpu.device.pci_address);
        let findings = vec![rdma(gpu, &other, backends), dmabuf_of(gpu, backends), bar1_size(gpu)];
        sections.push((title, findings));
    }
    sections
}

/// Returns the finding about a feature that is supported, or that this driver does not report.
fn supported(subject: &'static str, value: Option<bool>, since: &str) -> Finding {
    match value {
        Some(_) => Finding::ok(subject, "supported"),
        None => Finding::unknown(subject, format!("not reported by this driver (CUDA {since} can)")),
    }
}

/// Returns the finding about GPUDirect RDMA, with the advice for a GPU that does not support it.
fn rdma(gpu: &Gpu, other: &Advice, backends: Backends) -> Finding {
    const SUBJECT: &str = "GPUDirect RDMA";
    if gpu.rdma != Some(false) {
        return supported(SUBJECT, gpu.rdma, "11.3");
    }
    let value = "not supported: gdrdrv cannot pin this GPU's memory";
    if backends.need_dmabuf() && backends.dmabuf && gpu_maps_dmabufs(gpu) {
        return Finding::warning(SUBJECT, value, Remedy::GpuKind).caused_by(Cause::Gdrdrv);
    }
    // `GpuKind` is advised if no GPU of this computer supports RDMA. Steps for other problems do not help then.
    let cause = if other.remedy == Remedy::GpuKind { Cause::Nothing } else { Cause::Itself };
    Finding::problem(SUBJECT, value, other.clone()).caused_by(cause)
}

/// Returns the advice to use a GPU that supports GPUDirect RDMA: one of `visible`, one that CUDA_VISIBLE_DEVICES hides,
/// one on the PCI bus that CUDA does not report, or one of another computer.
fn other_gpu(visible: &[Gpu], container: Option<&Container>) -> Advice {
    // The advice is a value for CUDA_VISIBLE_DEVICES: numbers that GPUs have while this variable is unset.
    let unhidden = if env::var_os(VISIBLE).is_some() { probe::all_gpus() } else { Vec::new() };
    let all = if unhidden.len() < visible.len() { visible } else { &unhidden };
    let mut good: Vec<_> = all.iter().collect();
    good.retain(|gpu| gpu.rdma == Some(true));
    let mut visible_and_good = good.clone();
    visible_and_good.retain(|gpu| visible.iter().any(|shown| shown.device.pci_address == gpu.device.pci_address));
    let mut hidden = String::new();
    if visible_and_good.is_empty() {
        hidden = format!(", which {VISIBLE}={} hides", env::var(VISIBLE).unwrap_or_default());
    } else {
        good = visible_and_good;
    }
    if !good.is_empty() {
        let numbers: Vec<_> = good.iter().map(|gpu| gpu.device.number.to_string()).collect();
        return Remedy::GpuExclude.with("others", numbers.join(",")).with("hidden", hidden);
    }
    let count = pci::nvidia_gpus().unwrap_or_default().saturating_sub(all.len());
    if count == 0 {
        return Remedy::GpuKind.into();
    }
    let by = match passed_in(container) {
        Some(list) => format!("{PASSED_IN}={list}"),
        None if env::var_os("SLURM_JOB_ID").is_some() => "Slurm".into(),
        None => "a container, a device cgroup, or another driver".into(),
    };
    Remedy::GpuElsewhere.with("count", count).with("by", by)
}

fn dmabuf_of(gpu: &Gpu, backends: Backends) -> Finding {
    let value = match (gpu.dmabuf_mmap, gpu.dmabuf) {
        (Some(true), _) => "its memory can be mapped as one",
        (Some(false), Some(true)) => "its memory can be exported as one, but not mapped",
        (None, Some(true)) => "its memory can be exported as one",
        (_, Some(false)) | (Some(false), None) => "its memory cannot be exported as one",
        (None, None) => return supported("dma-buf", None, "11.7"),
    };
    if backends.need_dmabuf() && !gpu_maps_dmabufs(gpu) {
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
