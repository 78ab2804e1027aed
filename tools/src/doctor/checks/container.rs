//! Whether this is a container, where devices and limits are what the host lets through.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::Path;

use crate::doctor::finding::Finding;

/// Marks in the names of the first process's cgroups.
const MARKS: [(&str, &str); 5] = [
    ("kubepods", "Kubernetes"),
    ("docker", "Docker"),
    ("libpod", "Podman"),
    ("containerd", "containerd"),
    ("lxc", "LXC"),
];

/// What kind of container this is; `None` if it seems to be none.
pub(super) fn kind() -> Option<String> {
    if env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("Kubernetes".into());
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("Podman".into());
    }
    if Path::new("/.dockerenv").exists() {
        return Some("Docker".into());
    }
    if let Ok(name) = env::var("container") {
        return Some(name);
    }
    let cgroups = fs::read_to_string("/proc/1/cgroup").ok()?;
    let (_, name) = MARKS.iter().find(|(mark, _)| cgroups.contains(mark))?;
    Some((*name).into())
}

pub(super) fn findings(kind: Option<&str>) -> Vec<Finding> {
    vec![match kind {
        None => Finding::ok("container", "none"),
        Some(kind) => Finding::ok(
            "container",
            format!("{kind}: devices and limits are what the host lets through"),
        ),
    }]
}
