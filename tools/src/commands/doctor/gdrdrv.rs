//! The kernel module: is it loaded, may this user open it, does it match the library?
#![forbid(unsafe_code)]

use gdrcopy::Version;
use nix::errno::Errno;

use super::backends::Backends;
use super::report::Finding;
use crate::system::files;
use crate::system::gdrdrv::{Gdrdrv, NODE, Node, Versions};

/// The first release with persistent mappings and their attributes.
const PERSISTENT_SINCE: Version = Version::new(2, 5);

/// Whether the module can be used.
pub(super) fn works(module: &Gdrdrv) -> bool {
    module.versions.as_ref().is_ok_and(fits) && !module.bound_to_dummy
}

fn fits(versions: &Versions) -> bool {
    versions.module >= Version::OLDEST_GDRDRV && versions.oldest_library <= Version::API
}

pub(super) fn findings(
    module: &Gdrdrv,
    backends: Backends,
    container: Option<&str>,
) -> Vec<Finding> {
    let mut findings = vec![node(module, backends, container)];
    match &module.versions {
        Err(errno) if module.node.is_ok() => findings.push(refused(*errno, backends, container)),
        Err(_) => {}
        Ok(versions) => findings.push(version(versions, backends)),
    }
    if module.bound_to_dummy {
        findings.push(dummy(backends));
    }
    match &module.params {
        Some(params) => findings.extend([persistence(params), flavor(params)]),
        None if module.node.is_err() => {}
        None => findings.push(Finding::unknown(
            "persistent mapping",
            "not reported: there is no /proc/driver/gdrdrv/params",
        )),
    }
    findings
}

fn node(module: &Gdrdrv, backends: Backends, container: Option<&str>) -> Finding {
    let subject = "device node";
    match &module.node {
        Ok(node) if node.is_device => Finding::ok(subject, describe(node)),
        Ok(_) => Finding::problem_if(
            backends.need_gdrdrv(),
            subject,
            format!("{NODE} is not a device"),
            format!("remove it; {}", make_node(container)),
        ),
        Err(Errno::ENOENT) => Finding::problem_if(
            backends.need_gdrdrv(),
            subject,
            match module.loaded {
                Some(true) => format!("the module is loaded, but there is no {NODE}"),
                Some(false) => format!("there is no {NODE}, and the module is not loaded"),
                None => format!("there is no {NODE}"),
            },
            match module.loaded {
                Some(true) => make_node(container),
                _ => load_module(module, container),
            },
        ),
        Err(errno) => Finding::problem_if(
            backends.need_gdrdrv(),
            subject,
            format!("{NODE}: {errno}"),
            "make sure this user has execute permission on /dev",
        ),
    }
}

fn describe(node: &Node) -> String {
    let Node { mode, owner, group, .. } = node;
    format!("{NODE}, mode {mode:03o}, owner {owner}:{group}")
}

fn make_node(container: Option<&str>) -> String {
    String::from(match container {
        Some("Kubernetes") => {
            "pass it into the pod: GDRCOPY_ENABLED=true for NVIDIA's device plugin"
        }
        Some(_) => {
            "pass it into the container: --device=/dev/gdrdrv, or NVIDIA_GDRCOPY=enabled with NVIDIA's \
             container toolkit"
        }
        None => {
            "create it: mknod -m 666 /dev/gdrdrv c $(awk '/gdrdrv/ {print $1}' /proc/devices) 0"
        }
    })
}

fn load_module(module: &Gdrdrv, container: Option<&str>) -> String {
    if container.is_some() {
        return format!("load it on the host (modprobe gdrdrv), and {}", make_node(container));
    }
    let mut remedy = String::from(match module.installed {
        Some(true) => "load it: modprobe gdrdrv",
        _ => "install it for this kernel (package gdrdrv-dkms) and load it (modprobe gdrdrv)",
    });
    if module.signed_only {
        remedy += "; this kernel only loads signed modules: enroll the key that DKMS signs with \
            (mokutil --import)";
    }
    remedy + ". GPU driver 610 and later do not need it"
}

/// The node exists, but opening it or querying the version fails.
fn refused(errno: Errno, backends: Backends, container: Option<&str>) -> Finding {
    let stale = format!("modprobe gdrdrv, then {}", make_node(container));
    let remedy = match errno {
        Errno::EACCES => {
            "make it readable and writable for all users: chmod 666 /dev/gdrdrv, and a udev rule that \
             keeps it so"
        }
        Errno::EPERM if container.is_some() => {
            "the container's device cgroup forbids it: start the container with \
             --device=/dev/gdrdrv"
        }
        Errno::EPERM => {
            "a device cgroup forbids it: allow it in the service (DeviceAllow=/dev/gdrdrv rw) \
             or the job"
        }
        Errno::ENXIO | Errno::ENODEV => &stale,
        Errno::EMFILE | Errno::ENFILE => "raise the limit of open files (ulimit -n)",
        _ => "see the kernel's log (dmesg), and reload the module",
    };
    Finding::problem_if(
        backends.need_gdrdrv(),
        "opening it",
        format!("{errno:?} ({})", errno.desc()),
        remedy,
    )
}

/// Such a module can be opened, but refuses every pin with EINVAL.
fn dummy(backends: Backends) -> Finding {
    Finding::problem_if(
        backends.need_gdrdrv(),
        "bound to",
        "nv-p2p-dummy, with which no GPU memory can be pinned",
        "unload both (modprobe -r gdrdrv nv-p2p-dummy), prevent loading the latter (blacklist nv-p2p-dummy \
         in /etc/modprobe.d), build gdrdrv against the sources of the GPU driver in use, and load it \
         (modprobe gdrdrv)",
    )
}

fn version(versions: &Versions, backends: Backends) -> Finding {
    let subject = "module version";
    let Versions { module, oldest_library } = versions;
    if *module < Version::OLDEST_GDRDRV {
        return Finding::problem_if(
            backends.need_gdrdrv(),
            subject,
            format!("{module} is too old"),
            format!(
                "update the module to {} or later (package gdrdrv-dkms)",
                Version::OLDEST_GDRDRV
            ),
        );
    }
    if *oldest_library > Version::API {
        return Finding::problem_if(
            backends.need_gdrdrv(),
            subject,
            format!("{module} only supports libraries of version {oldest_library} and later"),
            format!("update libgdrapi, or use a module that supports {}", Version::API),
        );
    }
    if *module < PERSISTENT_SINCE {
        return Finding::warning(
            subject,
            format!("{module}, without persistent mappings and pin flags"),
            format!("update the module to {PERSISTENT_SINCE} or later"),
        );
    }
    Finding::ok(subject, format!("{module}, for libraries from {oldest_library} on"))
}

fn persistence(params: &str) -> Finding {
    let subject = "persistent mapping";
    match files::field(params, "Use persistent mapping") {
        Some("yes") => Finding::ok(subject, "on"),
        Some(_) => Finding::warning(
            subject,
            "off: mappings become invalid when their memory is freed",
            "load the module with use_persistent_mapping=1 (GPU driver 535 or later)",
        ),
        None => Finding::unknown(subject, "not reported by /proc/driver/gdrdrv/params"),
    }
}

fn flavor(params: &str) -> Finding {
    let subject = "built for";
    match files::field(params, "Built for NVIDIA driver flavor") {
        Some(flavor) => Finding::ok(subject, format!("the {flavor} GPU driver")),
        None => Finding::unknown(subject, "not reported by /proc/driver/gdrdrv/params"),
    }
}
