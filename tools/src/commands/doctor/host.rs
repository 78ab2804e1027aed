//! The host, with container, CPU and limits of this process, which programs inherit.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::Path;

use gdrcopy_core::routines;
use nix::errno::Errno;
use nix::libc::rlim_t;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

use super::backends::Backends;
use super::remedies::{Advice, Remedy};
use super::report::Finding;
use crate::cuda::GPU_PAGE;
use crate::system::files;
use crate::system::gdrdrv::NODE;

/// Descriptors below which programs hit the limit by themselves, and with one per pin.
const FEW: rlim_t = 256;
const FEW_FOR_DMABUFS: rlim_t = 1024;

/// Locked memory below which RDMA stacks cannot register buffers.
const LITTLE_LOCKED: rlim_t = 64 << 20;

pub(super) fn findings(backends: Backends, container: Option<&Container>) -> Vec<Finding> {
    let kind = match container {
        None => "none".into(),
        Some(container) => format!("{}: devices and limits are what the host passes through", container.name),
    };
    let mut findings = vec![Finding::ok("container", kind)];
    findings.extend(gvisor());
    findings.extend(cdi(backends.gdrdrv));
    findings.extend([copy_routine(), pages(), descriptors(backends), locked_memory()]);
    findings
}

fn descriptors(backends: Backends) -> Finding {
    const SUBJECT: &str = "open files";
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Finding::unknown(SUBJECT, "not reported by getrlimit");
    };
    let uses_dmabufs = backends.need_dmabuf() && backends.dmabuf;
    let enough = if uses_dmabufs { FEW_FOR_DMABUFS } else { FEW };
    let value = match uses_dmabufs {
        true => format!("{}, and each pin uses one", limit(soft)),
        false => limit(soft),
    };
    if soft >= enough {
        return Finding::ok(SUBJECT, value);
    }
    match most_files() < enough {
        true => Finding::warning(SUBJECT, format!("{value}, and the hard limit is {hard}"), Remedy::OpenFilesHard),
        false => Finding::warning(SUBJECT, value, Remedy::OpenFiles.with("limit", most_files())),
    }
}

/// The limit of open files that this user can set.
fn most_files() -> rlim_t {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(FEW_FOR_DMABUFS, |(_, hard)| hard.min(65536))
}

/// How to open more files, where none can be opened by this errno.
pub(super) fn more_files(errno: Errno) -> Advice {
    match errno {
        Errno::ENFILE => Remedy::FilesOfSystem.into(),
        _ if most_files() < FEW => Remedy::OpenFilesHard.into(),
        _ => Remedy::OpenFiles.with("limit", most_files()),
    }
}

fn locked_memory() -> Finding {
    const SUBJECT: &str = "locked memory";
    let Ok((soft, _)) = getrlimit(Resource::RLIMIT_MEMLOCK) else {
        return Finding::unknown(SUBJECT, "not reported by getrlimit");
    };
    let value = match soft {
        RLIM_INFINITY => limit(soft),
        bytes => format!("{} KiB; gdrcopy locks none", bytes >> 10),
    };
    let has_rdma = !files::matching(Path::new("/sys/class/infiniband"), "").is_empty();
    match has_rdma && soft < LITTLE_LOCKED {
        true => {
            Finding::warning(SUBJECT, format!("{value}, but the RDMA network card here does"), Remedy::LockedMemory)
        }
        false => Finding::ok(SUBJECT, value),
    }
}

fn limit(value: rlim_t) -> String {
    match value {
        RLIM_INFINITY => "unlimited".into(),
        value => value.to_string(),
    }
}

/// A kind of container, and how devices get into it.
#[derive(Debug, PartialEq)]
pub(super) struct Container {
    pub(super) name: &'static str,
    /// In the names of the first process's cgroups, and the value of the variable `container`.
    mark: &'static str,
    pub(super) node: Remedy,
    pub(super) gpu: Remedy,
}

const fn container_kind(name: &'static str, mark: &'static str, node: Remedy, gpu: Remedy) -> Container {
    Container { name, mark, node, gpu }
}

static KUBERNETES: Container = container_kind("Kubernetes", "kubepods", Remedy::NodePod, Remedy::GpuPod);
static DOCKER: Container = container_kind("Docker", "docker", Remedy::NodeDocker, Remedy::GpuDocker);
static PODMAN: Container = container_kind("Podman", "podman", Remedy::NodePodman, Remedy::GpuPodman);
/// Or Singularity, which it was before.
static APPTAINER: Container = container_kind("Apptainer", "apptainer", Remedy::NodeApptainer, Remedy::GpuApptainer);
static LIBPOD: Container = container_kind("Podman", "libpod", Remedy::NodePodman, Remedy::GpuPodman);
static CONTAINERD: Container = container_kind("containerd", "containerd", Remedy::NodeContainer, Remedy::GpuContainer);
static LXC: Container = container_kind("LXC", "lxc", Remedy::NodeContainer, Remedy::GpuContainer);
static OTHER: Container = container_kind("another container", "", Remedy::NodeContainer, Remedy::GpuContainer);

/// The kind of container that this process is in, if any.
pub(super) fn container() -> Option<&'static Container> {
    let is_set = |name: &str| env::var_os(name).is_some();
    let exists = |file: &str| Path::new(file).exists();
    // It passes the variables and files of an outer container on.
    if is_set("APPTAINER_CONTAINER") || is_set("SINGULARITY_CONTAINER") || exists("/.singularity.d") {
        return Some(&APPTAINER);
    }
    if is_set("KUBERNETES_SERVICE_HOST") {
        return Some(&KUBERNETES);
    }
    if exists("/run/.containerenv") {
        return Some(&PODMAN);
    }
    if exists("/.dockerenv") {
        return Some(&DOCKER);
    }
    let marked = [&KUBERNETES, &DOCKER, &PODMAN, &LIBPOD, &CONTAINERD, &LXC];
    if let Ok(name) = env::var("container") {
        let kind = marked.into_iter().find(|container| container.mark == name);
        return Some(kind.unwrap_or(&OTHER));
    }
    let cgroups = fs::read_to_string("/proc/1/cgroup").ok()?;
    marked.into_iter().find(|container| cgroups.contains(container.mark))
}

/// The date in /proc/version of every gVisor.
const GVISOR_BUILD: &str = "Sun Jan 10 15:06:54 PST 2016";

/// gVisor exports dma-bufs, but has neither gdrdrv nor mappings of dma-bufs.
fn gvisor() -> Option<Finding> {
    if !files::text("/proc/version")?.contains(GVISOR_BUILD) {
        return None;
    }
    let value = "gVisor, which passes neither /dev/gdrdrv nor mappings of dma-bufs through";
    Some(Finding::warning("sandbox", value, Remedy::RuntimeOther))
}

/// Where NVIDIA's container toolkit writes its description of devices.
const CDI_SPECS: [&str; 2] = ["/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"];

/// Checks whether containers that get GPUs through CDI also get gdrdrv.
fn cdi(has_gdrdrv: bool) -> Option<Finding> {
    let (file, spec) = CDI_SPECS.iter().find_map(|file| Some((file, files::text(file)?)))?;
    Some(cdi_spec(file, &spec, has_gdrdrv))
}

fn cdi_spec(file: &str, spec: &str, has_gdrdrv: bool) -> Finding {
    match spec.contains(NODE) {
        true => Finding::ok("CDI", format!("{file} has {NODE}")),
        false if has_gdrdrv => {
            let value = format!("{file} lacks {NODE}: so do containers that get their GPU through it");
            Finding::warning("CDI", value, Remedy::CdiNode)
        }
        false => Finding::ok("CDI", format!("{file} lacks {NODE}, as does this system")),
    }
}

fn copy_routine() -> Finding {
    const SUBJECT: &str = "copy routine";
    let names: Vec<_> = routines::supported().map(|routine| routine.name()).collect();
    let request = env::var_os("GDRCOPY_ISA");
    let (chosen, all) = (routines::find(request.as_deref()).name(), names.join(", "));
    let best = names.first().copied().unwrap_or(chosen);
    let advice = Remedy::CopyRoutine.with("best", format!("{best} is the best one for this CPU, of {all}"));
    match request {
        Some(refused) if refused != chosen => {
            let value = format!("{chosen}, not the {} that GDRCOPY_ISA asks for", refused.display());
            Finding::warning(SUBJECT, value, advice)
        }
        _ if chosen == "portable" && best != chosen => {
            Finding::warning(SUBJECT, "portable, as GDRCOPY_ISA asks: reads are slow", advice)
        }
        _ => Finding::ok(SUBJECT, format!("{chosen}, of {all}")),
    }
}

fn pages() -> Finding {
    match sysconf(SysconfVar::PAGE_SIZE) {
        Ok(Some(size)) => {
            Finding::ok("pages", format!("{} KiB on the host, {} KiB on the GPU", size >> 10, GPU_PAGE >> 10))
        }
        _ => Finding::unknown("pages", "not reported by sysconf"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    #[test]
    fn cdi_specification_without_gdrdrv_is_a_warning_if_the_system_has_it() {
        let spec = "containerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\n";
        let verdict = |spec: &str, has_gdrdrv| cdi_spec("x.yaml", spec, has_gdrdrv).verdict;
        assert_eq!(verdict(spec, true), Verdict::Warning);
        assert_eq!(verdict(spec, false), Verdict::Ok);
        let with = format!("{spec}  - path: /dev/gdrdrv\n");
        assert_eq!(verdict(&with, true), Verdict::Ok);
    }
}
