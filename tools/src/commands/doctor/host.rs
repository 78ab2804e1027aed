//! The host, with container, copy routine and limits of this process, which programs inherit.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::Path;

use gdrcopy_core::routines;
use nix::errno::Errno;
use nix::libc::rlim_t;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::backends::Backends;
use super::remedies::Advice;
use super::remedies::Remedy::{self, *};
use super::report::{Finding, bytes};
use crate::system::files;
use crate::system::gdrdrv::NODE;

/// Descriptors below which programs hit the limit by themselves, and with one per pin.
const FEW: rlim_t = 256;
const FEW_FOR_DMABUFS: rlim_t = 1024;

/// Locked memory below which RDMA stacks cannot register buffers.
const LITTLE_LOCKED: rlim_t = 64 << 20;

/// The date in /proc/version of every gVisor, which exports dma-bufs, but has neither gdrdrv nor mappings of dma-bufs.
const GVISOR_BUILD: &str = "Sun Jan 10 15:06:54 PST 2016";

/// Where NVIDIA's container toolkit writes its description of devices.
const CDI_SPECS: [&str; 2] = ["/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"];

pub(super) fn findings(backends: Backends, container: Option<&Container>) -> Vec<Finding> {
    let kind = match container {
        None => "none".into(),
        Some(container) => format!("{}: devices and limits are what the host passes through", container.name),
    };
    let mut findings = vec![Finding::ok("container", kind)];
    if files::text("/proc/version").is_some_and(|version| version.contains(GVISOR_BUILD)) {
        let value = "gVisor, which passes neither /dev/gdrdrv nor mappings of dma-bufs through";
        findings.push(Finding::warning("sandbox", value, RuntimeOther));
    }
    for file in CDI_SPECS {
        if backends.gdrdrv && files::text(file).is_some_and(|spec| !spec.contains(NODE)) {
            let value = format!("{file} lacks {NODE}: so do containers that get their GPU through it");
            findings.push(Finding::warning("CDI", value, CdiNode));
        }
    }
    findings.extend([copy_routine(), descriptors(backends), locked_memory()]);
    findings
}

fn descriptors(backends: Backends) -> Finding {
    const SUBJECT: &str = "open files";
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Finding::unknown(SUBJECT, "not reported by getrlimit");
    };
    let uses_dmabufs = backends.need_dmabuf() && backends.dmabuf;
    let (enough, each) = if uses_dmabufs { (FEW_FOR_DMABUFS, ", and each pin uses one") } else { (FEW, "") };
    let value = if soft == RLIM_INFINITY { "unlimited".into() } else { format!("{soft}{each}") };
    if soft >= enough {
        return Finding::ok(SUBJECT, value);
    }
    if most_files() < enough {
        return Finding::warning(SUBJECT, format!("{value}, and the hard limit is {hard}"), OpenFilesHard);
    }
    Finding::warning(SUBJECT, value, OpenFiles.with("limit", most_files()))
}

/// The limit of open files that this user can set.
fn most_files() -> rlim_t {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(FEW_FOR_DMABUFS, |(_, hard)| hard.min(65536))
}

/// How to open more files, where none can be opened by this errno.
pub(super) fn more_files(errno: Errno) -> Advice {
    match errno {
        Errno::ENFILE => FilesOfSystem.into(),
        _ if most_files() < FEW => OpenFilesHard.into(),
        _ => OpenFiles.with("limit", most_files()),
    }
}

fn locked_memory() -> Finding {
    const SUBJECT: &str = "locked memory";
    let Ok((soft, _)) = getrlimit(Resource::RLIMIT_MEMLOCK) else {
        return Finding::unknown(SUBJECT, "not reported by getrlimit");
    };
    let value = if soft == RLIM_INFINITY { "unlimited".into() } else { format!("{}; gdrcopy locks none", bytes(soft)) };
    let has_rdma = !files::matching(Path::new("/sys/class/infiniband"), "").is_empty();
    if has_rdma && soft < LITTLE_LOCKED {
        return Finding::warning(SUBJECT, format!("{value}, but the RDMA network card here does"), LockedMemory);
    }
    Finding::ok(SUBJECT, value)
}

fn copy_routine() -> Finding {
    const SUBJECT: &str = "copy routine";
    let names: Vec<_> = routines::supported().map(|routine| routine.name()).collect();
    let request = env::var_os("GDRCOPY_ISA");
    let (chosen, all) = (routines::find(request.as_deref()).name(), names.join(", "));
    let best = names.first().copied().unwrap_or(chosen);
    let value = match request {
        Some(refused) if refused != chosen => {
            format!("{chosen}, not the {} that GDRCOPY_ISA asks for", refused.display())
        }
        _ if chosen == "portable" && best != chosen => "portable, as GDRCOPY_ISA asks: reads are slow".into(),
        _ => return Finding::ok(SUBJECT, format!("{chosen}, of {all}")),
    };
    let best = format!("{best} is the best one for this CPU, of {all}");
    Finding::warning(SUBJECT, value, CopyRoutine.with("best", best))
}

/// A kind of container, and how devices get into it.
#[derive(Debug, PartialEq)]
pub(super) struct Container {
    pub(super) name: &'static str,
    /// Variables and a file that only it has.
    variables: &'static [&'static str],
    file: &'static str,
    /// In the names of the first process's cgroups, and the value of the variable `container`.
    mark: &'static str,
    pub(super) node: Remedy,
    pub(super) gpu: Remedy,
}

const fn kind(name: &'static str, mark: &'static str, file: &'static str, node: Remedy, gpu: Remedy) -> Container {
    Container { name, variables: &[], file, mark, node, gpu }
}

/// Apptainer was Singularity before.
const OF_APPTAINER: [&str; 2] = ["APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"];

/// Apptainer passes the variables and files of an outer container on, and Kubernetes has those of its runtime.
static CONTAINERS: [Container; 8] = [
    Container {
        variables: &OF_APPTAINER,
        ..kind("Apptainer", "apptainer", "/.singularity.d", NodeApptainer, GpuApptainer)
    },
    Container { variables: &["KUBERNETES_SERVICE_HOST"], ..kind("Kubernetes", "kubepods", "", NodePod, GpuPod) },
    kind("Podman", "podman", "/run/.containerenv", NodePodman, GpuPodman),
    kind("Docker", "docker", "/.dockerenv", NodeDocker, GpuDocker),
    kind("Podman", "libpod", "", NodePodman, GpuPodman),
    kind("containerd", "containerd", "", NodeContainer, GpuContainer),
    kind("LXC", "lxc", "", NodeContainer, GpuContainer),
    kind("another container", "", "", NodeContainer, GpuContainer),
];

/// The kind of container that this process is in, if any.
pub(super) fn container() -> Option<&'static Container> {
    let [marked @ .., another] = &CONTAINERS;
    for container in marked {
        let has_variable = container.variables.iter().any(|name| env::var_os(name).is_some());
        if has_variable || Path::new(container.file).exists() {
            return Some(container);
        }
    }
    if let Ok(name) = env::var("container") {
        return Some(marked.iter().find(|container| container.mark == name).unwrap_or(another));
    }
    let cgroups = fs::read_to_string("/proc/1/cgroup").ok()?;
    marked.iter().find(|container| cgroups.contains(container.mark))
}
