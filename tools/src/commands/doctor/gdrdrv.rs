//! The kernel module. Is it loaded, may this user open it, does it match the library?
#![forbid(unsafe_code)]

use gdrcopy::Version;
use nix::errno::Errno;

use super::backends::Backends;
use super::host::APPTAINER;
use super::report::{Cause, Finding};
use crate::system::files;
use crate::system::gdrdrv::{Gdrdrv, Installation, NODE, Node, Versions};

/// The first release with persistent mappings and their attributes.
const PERSISTENT_SINCE: Version = Version::new(2, 5);

/// Returns whether the module can be used.
pub(super) fn works(module: &Gdrdrv) -> bool {
    module.versions.as_ref().is_ok_and(fits) && !module.bound_to_dummy
}

fn fits(versions: &Versions) -> bool {
    versions.module >= Version::OLDEST_GDRDRV && versions.oldest_library <= Version::API
}

pub(super) fn findings(module: &Gdrdrv, backends: Backends, container: Option<&str>) -> Vec<Finding> {
    let mut findings = vec![node(module, container).about("device node")];
    match &module.versions {
        Err(errno) => findings.extend(module.node.as_ref().ok().map(|node| refused(*errno, node, container))),
        Ok(versions) => findings.push(version(versions).about("module version")),
    }
    if module.bound_to_dummy {
        findings.push(dummy().about("bound to"));
    }
    match &module.params {
        Some(params) => {
            findings.extend([persistence(params).about("persistent mapping"), flavor(params).about("built for")])
        }
        None if module.node.is_err() => {}
        None => findings
            .push(Finding::unknown("not reported: there is no /proc/driver/gdrdrv/params").about("persistent mapping")),
    }
    let needed = backends.need_gdrdrv();
    findings.into_iter().map(|finding| finding.caused_by(Cause::Gdrdrv).only_if(needed)).collect()
}

fn node(module: &Gdrdrv, container: Option<&str>) -> Finding {
    match &module.node {
        Ok(node) if node.is_device => Finding::ok(describe(node)),
        Ok(_) => Finding::problem(format!("{NODE} is not a device"), format!("remove it; {}", make_node(container))),
        Err(Errno::ENOENT) => {
            let absent = format!("there is no {NODE}");
            let (value, remedy) = match module.loaded {
                Some(true) => (format!("the module is loaded, but {absent}"), make_node(container)),
                Some(false) => (
                    format!("{absent}, and the module is {}", state(module, container)),
                    load_module(module, container),
                ),
                None => (absent, load_module(module, container)),
            };
            Finding::problem(value, remedy)
        }
        Err(errno) => Finding::problem(format!("{NODE}: {errno}"), "give this user execute permission on /dev"),
    }
}

fn describe(node: &Node) -> String {
    let Node { mode, owner, group, .. } = node;
    format!("{NODE}, mode {mode:03o}, owner {owner}:{group}")
}

fn make_node(container: Option<&str>) -> String {
    String::from(match container {
        Some("Kubernetes") => "pass it into the pod: GDRCOPY_ENABLED=true for NVIDIA's device plugin",
        Some(APPTAINER) => "pass it into the container: apptainer run --bind /dev/gdrdrv",
        Some(_) => {
            "pass it into the container: --device=/dev/gdrdrv, or NVIDIA_GDRCOPY=enabled with NVIDIA's \
             container toolkit"
        }
        None => "create it: mknod -m 666 /dev/gdrdrv c $(awk '/gdrdrv/ {print $1}' /proc/devices) 0",
    })
}

/// Why a module is not loaded. A container does not have the host's files.
fn state(module: &Gdrdrv, container: Option<&str>) -> &'static str {
    match &module.installation {
        _ if container.is_some() => "not loaded",
        Some(Installation::Absent) => "not installed",
        Some(Installation::NotBuilt { .. }) => "installed, but not built for this kernel",
        Some(Installation::Built) => "built, but not loaded",
        None => "not loaded",
    }
}

fn load_module(module: &Gdrdrv, container: Option<&str>) -> String {
    const BUILD: &str = "dkms autoinstall && modprobe gdrdrv";
    if container.is_some() {
        return format!("load it on the host (modprobe gdrdrv), and {}", make_node(container));
    }
    let mut remedy = match &module.installation {
        Some(Installation::NotBuilt { kernel, headers: false, gpu_driver, .. }) => {
            let others = if *gpu_driver { "" } else { " and the GPU driver's sources (…-dkms)" };
            format!(
                "install the headers of kernel {kernel} (linux-headers-{kernel}, \
                 kernel-devel-{kernel}){others}, then build the module: {BUILD}"
            )
        }
        Some(Installation::NotBuilt { gpu_driver: false, .. }) => format!(
            "install the GPU driver's sources, which contain nv-p2p.c (its package …-dkms; packages \
             with built modules have none), then build the module: {BUILD}"
        ),
        Some(Installation::NotBuilt { log: Some(log), .. }) => {
            format!("see in {} why the build failed, then repeat it: {BUILD}", log.display())
        }
        Some(Installation::NotBuilt { .. }) => format!("build the module: {BUILD}"),
        Some(Installation::Built) => "load the module: modprobe gdrdrv".into(),
        Some(Installation::Absent) | None => {
            "install the module (package gdrdrv-dkms) and load it: modprobe gdrdrv".into()
        }
    };
    if module.signed_only {
        remedy += " (this kernel only loads signed modules: enroll the key that DKMS signs with, \
            mokutil --import)";
    }
    remedy
}

/// The node exists, but opening it or querying the version fails.
fn refused(errno: Errno, node: &Node, container: Option<&str>) -> Finding {
    let stale = format!("modprobe gdrdrv, then {}", make_node(container));
    let another = format!("it leads to another driver, or to a gdrdrv before 2.0: remove it; {stale}");
    let remedy = match errno {
        Errno::EACCES if node.mode & 0o666 == 0o666 => {
            "its mode allows it, so a security module (SELinux, AppArmor) or the mount option nodev forbids it: see \
             the audit log, and allow it there; a container gets it by --device=/dev/gdrdrv"
        }
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
        Errno::ENOTTY => &another,
        Errno::EMFILE | Errno::ENFILE => "raise the limit of open files (ulimit -n)",
        _ => "see the kernel's log (dmesg), and reload the module",
    };
    Finding::problem(format!("{errno:?} ({})", errno.desc()), remedy).about("opening it")
}

/// Such a module can be opened, but refuses every pin with EINVAL.
fn dummy() -> Finding {
    Finding::problem(
        "nv-p2p-dummy, with which no GPU memory can be pinned",
        "unload both (modprobe -r gdrdrv nv-p2p-dummy), prevent loading the latter (blacklist nv-p2p-dummy \
         in /etc/modprobe.d), build gdrdrv against the sources of the GPU driver in use, and load it \
         (modprobe gdrdrv)",
    )
}

fn version(versions: &Versions) -> Finding {
    let Versions { module, oldest_library } = versions;
    if *module < Version::OLDEST_GDRDRV {
        return Finding::problem(
            format!("{module} is too old"),
            format!("update the module to {} or later (package gdrdrv-dkms)", Version::OLDEST_GDRDRV),
        );
    }
    if *oldest_library > Version::API {
        return Finding::problem(
            format!("{module} only supports libraries of version {oldest_library} and later"),
            format!("update libgdrapi, or use a module that supports {}", Version::API),
        );
    }
    if *module < PERSISTENT_SINCE {
        return Finding::warning(
            format!("{module}, without persistent mappings and pin flags"),
            format!("update the module to {PERSISTENT_SINCE} or later"),
        );
    }
    Finding::ok(format!("{module}, for libraries from {oldest_library} on"))
}

fn persistence(params: &str) -> Finding {
    match files::field(params, "Use persistent mapping") {
        Some("yes") => Finding::ok("on"),
        Some(_) => Finding::warning(
            "off: mappings become invalid when their memory is freed",
            "load the module with use_persistent_mapping=1 (GPU driver 535 or later)",
        ),
        None => Finding::unknown("not reported by /proc/driver/gdrdrv/params"),
    }
}

fn flavor(params: &str) -> Finding {
    match files::field(params, "Built for NVIDIA driver flavor") {
        Some(flavor) => Finding::ok(format!("the {flavor} GPU driver")),
        None => Finding::unknown("not reported by /proc/driver/gdrdrv/params"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDED: Backends = Backends { gdrdrv: false, dmabuf: false, dmabuf_forced: false };

    /// A module that is not loaded.
    fn absent(installation: Installation) -> Gdrdrv {
        Gdrdrv {
            node: Err(Errno::ENOENT),
            loaded: Some(false),
            installation: Some(installation),
            signed_only: false,
            bound_to_dummy: false,
            versions: Err(Errno::ENOENT),
            params: None,
        }
    }

    fn not_built(headers: bool, gpu_driver: bool, log: Option<&str>) -> Installation {
        let log = log.map(Into::into);
        Installation::NotBuilt { kernel: "6.1".into(), headers, gpu_driver, log }
    }

    #[test]
    fn each_state_of_the_installation_has_its_own_advice() {
        for (installation, state, advice) in [
            (Installation::Absent, "not installed", "install the module (package gdrdrv-dkms)"),
            (
                not_built(false, true, None),
                "not built",
                "install the headers of kernel 6.1 (linux-headers-6.1, kernel-devel-6.1), then",
            ),
            (not_built(false, false, None), "not built", "and the GPU driver's sources"),
            (not_built(true, false, None), "not built", "install the GPU driver's sources"),
            (not_built(true, true, Some("/x/make.log")), "not built", "see in /x/make.log why"),
            (not_built(true, true, None), "not built", "build the module: dkms autoinstall"),
            (Installation::Built, "built, but not loaded", "load the module: modprobe gdrdrv"),
        ] {
            let findings = findings(&absent(installation), NEEDED, None);
            assert_eq!(findings.len(), 1);
            assert!(findings[0].value.contains(state), "{findings:?}");
            let remedy = findings[0].remedy.as_deref().unwrap();
            assert!(remedy.contains(advice) && remedy.contains("modprobe gdrdrv"), "{remedy}");
        }
        let inside = findings(&absent(Installation::Absent), NEEDED, Some("Docker"));
        assert!(inside[0].value.ends_with("not loaded"), "{inside:?}");
    }
}
