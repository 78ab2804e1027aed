//! The host, with container, CPU and limits of this process, which programs inherit.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::Path;

use gdrcopy_core::routines;
use nix::libc::rlim_t;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

use super::backends::Backends;
use super::report::Finding;
use crate::cuda::GPU_PAGE;
use crate::system::files;
use crate::system::gdrdrv::NODE;

/// Descriptors below which programs hit the limit by themselves, and with one per pin.
const FEW: rlim_t = 256;
const FEW_FOR_DMABUFS: rlim_t = 1024;

/// Locked memory below which RDMA stacks cannot register buffers.
const LITTLE_LOCKED: rlim_t = 64 << 20;

pub(super) fn findings(backends: Backends, container: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![container_finding(container)];
    findings.extend(gvisor().map(|finding| finding.about("sandbox")));
    findings.extend(cdi(backends));
    findings.extend([
        copy_routine().about("copy routine"),
        pages().about("pages"),
        descriptors(backends).about("open files"),
        locked_memory().about("locked memory"),
    ]);
    findings
}

fn descriptors(backends: Backends) -> Finding {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Finding::unknown("not reported by getrlimit");
    };
    let uses_dmabufs = backends.need_dmabuf() && backends.dmabuf;
    let enough = if uses_dmabufs { FEW_FOR_DMABUFS } else { FEW };
    let value = match uses_dmabufs {
        true => format!("{}, and each pin uses one", limit(soft)),
        false => limit(soft),
    };
    let raised = hard.min(65536);
    match soft < enough {
        true if raised < enough => Finding::warning(
            format!("{value}, and the hard limit is {hard}"),
            "have root raise the hard limit of open files: nofile in /etc/security/limits.conf, \
             LimitNOFILE= in a service, --ulimit nofile= for a container",
        ),
        true => Finding::warning(
            value,
            format!("raise the limit of open files: ulimit -n {raised} (LimitNOFILE= in a service)"),
        ),
        false => Finding::ok(value),
    }
}

fn locked_memory() -> Finding {
    let Ok((soft, _)) = getrlimit(Resource::RLIMIT_MEMLOCK) else {
        return Finding::unknown("not reported by getrlimit");
    };
    let value = match soft {
        RLIM_INFINITY => limit(soft),
        bytes => format!("{} KiB; gdrcopy locks none", bytes >> 10),
    };
    let has_rdma = fs::read_dir("/sys/class/infiniband").is_ok_and(|mut cards| cards.next().is_some());
    if has_rdma && soft < LITTLE_LOCKED {
        return Finding::warning(
            format!("{value}, but the RDMA network card here does"),
            "raise the limit of locked memory: ulimit -l unlimited (LimitMEMLOCK= in a service, --ulimit \
             memlock=-1 for a container)",
        );
    }
    Finding::ok(value)
}

fn limit(value: rlim_t) -> String {
    match value {
        RLIM_INFINITY => "unlimited".into(),
        value => value.to_string(),
    }
}

/// Marks in the names of the first process's cgroups.
const MARKS: [(&str, &str); 5] = [
    ("kubepods", "Kubernetes"),
    ("docker", "Docker"),
    ("libpod", "Podman"),
    ("containerd", "containerd"),
    ("lxc", "LXC"),
];

/// Apptainer, or Singularity, which it was before.
pub(super) const APPTAINER: &str = "Apptainer";

/// The kind of container that this process is in, if any.
pub(super) fn container() -> Option<String> {
    // It passes the variables and files of an outer container on.
    let variables = ["APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"].map(env::var_os);
    if variables.iter().any(Option::is_some) || Path::new("/.singularity.d").exists() {
        return Some(APPTAINER.into());
    }
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

fn container_finding(kind: Option<&str>) -> Finding {
    match kind {
        None => Finding::ok("none").about("container"),
        Some(kind) => {
            Finding::ok(format!("{kind}: devices and limits are what the host passes through")).about("container")
        }
    }
}

/// The date in /proc/version of every gVisor.
const GVISOR_BUILD: &str = "Sun Jan 10 15:06:54 PST 2016";

/// gVisor exports dma-bufs, but has neither gdrdrv nor mappings of dma-bufs.
fn gvisor() -> Option<Finding> {
    let version = files::text("/proc/version")?;
    version.contains(GVISOR_BUILD).then(|| {
        Finding::warning(
            "gVisor, which passes neither /dev/gdrdrv nor mappings of dma-bufs through",
            "start the container with another runtime, as runc",
        )
    })
}

/// Where NVIDIA's container toolkit writes its description of devices.
const CDI_SPECS: [&str; 2] = ["/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"];

fn cdi(backends: Backends) -> Option<Finding> {
    let mut specs = CDI_SPECS.iter();
    specs.find_map(|file| Some(cdi_spec(file, &files::text(file)?, backends.gdrdrv).about("CDI")))
}

/// Checks whether containers that get GPUs through CDI also get gdrdrv.
fn cdi_spec(file: &str, spec: &str, has_gdrdrv: bool) -> Finding {
    match spec.contains(NODE) {
        true => Finding::ok(format!("{file} has {NODE}")),
        false if has_gdrdrv => Finding::warning(
            format!("{file} lacks {NODE}: so do containers that get their GPU through it"),
            format!(
                "start containers with --device={NODE}; in Kubernetes set GDRCOPY_ENABLED=true for NVIDIA's \
                 device plugin"
            ),
        ),
        false => Finding::ok(format!("{file} lacks {NODE}, as does this system")),
    }
}

fn copy_routine() -> Finding {
    let names: Vec<_> = routines::supported().map(|routine| routine.name()).collect();
    let request = env::var_os("GDRCOPY_ISA");
    let (chosen, all) = (routines::find(request.as_deref()).name(), names.join(", "));
    if let Some(refused) = request.filter(|name| name != chosen) {
        return Finding::warning(
            format!("{chosen}, not the {} that GDRCOPY_ISA asks for", refused.display()),
            format!("unset GDRCOPY_ISA, or set it to one that this CPU supports: {all}"),
        );
    }
    match (chosen, names.first()) {
        ("portable", Some(&best)) if best != chosen => Finding::warning(
            "portable, as GDRCOPY_ISA asks: reads are slow",
            format!("unset GDRCOPY_ISA; the best one for this CPU is {best}"),
        ),
        _ => Finding::ok(format!("{chosen}, of {all}")),
    }
}

fn pages() -> Finding {
    match sysconf(SysconfVar::PAGE_SIZE) {
        Ok(Some(size)) => Finding::ok(format!("{} KiB on the host, {} KiB on the GPU", size >> 10, GPU_PAGE >> 10)),
        _ => Finding::unknown("not reported by sysconf"),
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
