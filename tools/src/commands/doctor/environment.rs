//! The host, with container and limit of open files of this process, which programs inherit.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::Path;

use nix::libc::rlim_t;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::backends::Backends;
use super::remedies::Remedy::{self, *};
use super::report::Finding;

/// Descriptors below which programs hit the limit by themselves, and with one per pin.
const FEW: rlim_t = 256;
const FEW_FOR_DMABUFS: rlim_t = 1024;

pub(super) fn findings(backends: Backends, container: Option<&Container>) -> Vec<Finding> {
    let kind = match container {
        None => "none".into(),
        Some(container) => format!("{}: devices and limits are what the host passes through", container.name),
    };
    vec![Finding::ok("container", kind), descriptors(backends)]
}

fn descriptors(backends: Backends) -> Finding {
    const SUBJECT: &str = "open files";
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((RLIM_INFINITY, 0));
    let mut enough = FEW;
    let mut value = if soft == RLIM_INFINITY { "unlimited".to_owned() } else { soft.to_string() };
    if backends.need_dmabuf() && backends.dmabuf {
        enough = FEW_FOR_DMABUFS;
        value += ", and each pin uses one";
    }
    if soft < enough {
        return Finding::warning(SUBJECT, value, OpenFiles);
    }
    Finding::ok(SUBJECT, value)
}

/// A kind of container, and how devices get into it.
#[derive(Debug)]
pub(super) struct Container {
    name: &'static str,
    /// In the names of the first process's cgroups, and the value of the variable `container`.
    mark: &'static str,
    /// A variable and a file that only it has.
    own: [&'static str; 2],
    pub(super) node: Remedy,
    pub(super) gpu: Remedy,
}

const fn kind(name: &'static str, mark: &'static str, own: [&'static str; 2], [node, gpu]: [Remedy; 2]) -> Container {
    Container { name, mark, own, node, gpu }
}

const NONE: [&str; 2] = [""; 2];
const OTHER: [Remedy; 2] = [NodeContainer, GpuContainer];

/// Apptainer passes the variables and files of an outer container on, and Kubernetes has those of its runtime.
static CONTAINERS: [Container; 8] = [
    kind("Apptainer", "apptainer", ["APPTAINER_CONTAINER", "/.singularity.d"], [NodeApptainer, GpuApptainer]),
    kind("Kubernetes", "kubepods", ["KUBERNETES_SERVICE_HOST", ""], [NodePod, GpuPod]),
    kind("Podman", "podman", ["", "/run/.containerenv"], [NodePodman, GpuPodman]),
    kind("Docker", "docker", ["", "/.dockerenv"], [NodeDocker, GpuDocker]),
    kind("Podman", "libpod", NONE, [NodePodman, GpuPodman]),
    kind("containerd", "containerd", NONE, OTHER),
    kind("LXC", "lxc", NONE, OTHER),
    kind("another container", "", NONE, OTHER),
];

/// The kind of container that this process is in, if any.
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
