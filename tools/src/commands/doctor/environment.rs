//! Examines this process's container and limit of open files, which other programs of the same shell share.
//! [`Backends`] states which backends (gdrdrv and dma-bufs) work here.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::remedies::Remedy::{self, *};
use super::report::Finding;

/// States which backends (gdrdrv and dma-bufs) work, and whether one of them must be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backends {
    /// True if gdrdrv, the kernel module, works.
    pub(super) gdrdrv: bool,
    /// True if dma-bufs of at least one GPU can be mapped.
    pub(super) dmabuf: bool,
    /// True if `GDRCOPY_USE_DMABUF_MMAP=1` is set. The library then does not try the module.
    pub(super) dmabuf_forced: bool,
    /// True if the engine to diagnose (`--for`) uses libgdrapi only when the kernel module works.
    pub(super) module_only: bool,
}

impl Backends {
    /// Returns whether GDRCopy needs the kernel module gdrdrv here.
    pub(super) fn need_gdrdrv(self) -> bool {
        self.module_only || !self.dmabuf && !self.dmabuf_forced
    }

    /// Returns whether GDRCopy needs dma-bufs here.
    pub(super) fn need_dmabuf(self) -> bool {
        self.dmabuf_forced || !self.gdrdrv && !self.module_only
    }
}

pub(super) fn findings(backends: Backends, container: Option<&Container>) -> Vec<Finding> {
    let kind = match container {
        None => "none".into(),
        Some(container) => format!("{}: devices and limits are what the host passes through", container.name),
    };
    vec![Finding::ok("container", kind), descriptors(backends)]
}

fn descriptors(backends: Backends) -> Finding {
    const SUBJECT: &str = "open files";
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Finding::unknown(SUBJECT, "not reported by getrlimit");
    };
    let mut enough = 256; // Programs need descriptors for their own files, even if pins use none.
    let mut value = if soft == RLIM_INFINITY { "unlimited".to_owned() } else { soft.to_string() };
    if backends.need_dmabuf() && backends.dmabuf {
        enough = 1024;
        value += ", and each pin uses one";
    }
    if soft < enough {
        if hard < enough {
            return Finding::warning(SUBJECT, format!("{value}; the hard limit is {hard}"), OpenFilesHard);
        }
        return Finding::warning(SUBJECT, value, OpenFiles);
    }
    Finding::ok(SUBJECT, value)
}

/// Returns the remedy if no more files can be opened. Only root can raise the hard limit, or the
/// system's limit (ENFILE).
pub(super) fn more_files(errno: Errno) -> Remedy {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if errno == Errno::EMFILE && soft < hard => OpenFiles,
        _ => OpenFilesHard,
    }
}

/// A kind of container, and the remedies that get devices into it.
#[derive(Debug)]
pub(super) struct Container {
    name: &'static str,
    /// A word that /proc/1/cgroup contains in a container of this kind. It can also be the value of the
    /// environment variable `container`.
    mark: &'static str,
    /// An environment variable and a file that only this kind of container has. Each is an empty text if there is none.
    own: [&'static str; 2],
    pub(super) node: Remedy,
    pub(super) gpu: Remedy,
}

const fn kind(name: &'static str, mark: &'static str, own: [&'static str; 2], [node, gpu]: [Remedy; 2]) -> Container {
    Container { name, mark, own, node, gpu }
}

const OTHER: [Remedy; 2] = [NodeContainer, GpuContainer];

/// The kinds of containers, in the order in which they are tried. Apptainer is the first, because it passes on the
/// variables and files of an outer container. Kubernetes is the second, because its pods also have the files of their
/// container runtime.
static CONTAINERS: [Container; 8] = [
    kind("Apptainer", "apptainer", ["APPTAINER_CONTAINER", "/.singularity.d"], [NodeApptainer, GpuApptainer]),
    kind("Kubernetes", "kubepods", ["KUBERNETES_SERVICE_HOST", ""], [NodePod, GpuPod]),
    kind("Podman", "podman", ["", "/run/.containerenv"], [NodePodman, GpuPodman]),
    kind("Docker", "docker", ["", "/.dockerenv"], [NodeDocker, GpuDocker]),
    kind("Podman", "libpod", [""; 2], [NodePodman, GpuPodman]),
    kind("containerd", "containerd", [""; 2], OTHER),
    kind("LXC", "lxc", [""; 2], OTHER),
    kind("another container", "", [""; 2], OTHER),
];

/// Returns the kind of container that this process is in, if any.
pub(super) fn container() -> Option<&'static Container> {
    let [marked @ .., another] = &CONTAINERS;
    for container in marked {
        let [variable, file] = container.own;
        if env::var_os(variable).is_some() || Path::new(file).exists() {
            return Some(container);
        }
    }
    if let Ok(name) = env::var("container") {
        return Some(marked.iter().find(|container| container.mark == name).unwrap_or(another));
    }
    let cgroups = fs::read_to_string("/proc/1/cgroup").ok()?;
    marked.iter().find(|container| cgroups.contains(container.mark))
}
