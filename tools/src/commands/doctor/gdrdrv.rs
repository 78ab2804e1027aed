//! The kernel module. Is it loaded, may this user open it, does it match the library?
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::Path;

use gdrcopy::Version;
use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};

use super::backends::Backends;
use super::host::Container;
use super::probe::HANGS;
use super::remedies::{Advice, Remedy};
use super::report::{Cause, Finding};
use crate::system::files;
use crate::system::gdrdrv::{Gdrdrv, Installation, NODE, Node, Refusal, Versions};

/// Returns whether the module can be used.
pub(super) fn works(module: &Gdrdrv) -> bool {
    module.versions.as_ref().is_ok_and(fits) && !module.bound_to_dummy
}

fn fits(versions: &Versions) -> bool {
    versions.module >= Version::OLDEST_GDRDRV && versions.oldest_library <= Version::API
}

pub(super) fn findings(module: &Gdrdrv, backends: Backends, container: Option<&Container>) -> Vec<Finding> {
    let mut findings = vec![node(module, container)];
    match (&module.versions, &module.node) {
        (Ok(versions), _) => findings.push(version(versions)),
        (Err(why), Some(node)) if node.is_device => findings.push(refused(why, node, module, container)),
        _ => {}
    }
    if module.bound_to_dummy {
        // It can be opened, but refuses every pin with EINVAL.
        let value = "nv-p2p-dummy, with which no GPU memory can be pinned";
        findings.push(Finding::problem("bound to", value, Remedy::ModuleDummy));
    }
    // The library hangs also where it could do without.
    let needed = backends.need_gdrdrv() || module.versions.as_ref().is_err_and(|why| why.errno == HANGS);
    findings.into_iter().map(|finding| finding.caused_by(Cause::Gdrdrv).only_if(needed)).collect()
}

fn node(module: &Gdrdrv, container: Option<&Container>) -> Finding {
    const SUBJECT: &str = "device node";
    match &module.node {
        Some(Node { is_device: true, mode, owner, group }) => {
            Finding::ok(SUBJECT, format!("{NODE}, mode {mode:03o}, owner {owner}:{group}"))
        }
        _ => match fs::symlink_metadata(NODE) {
            Ok(_) => {
                let value = format!("{NODE} is no device: see `ls -l {NODE}`");
                Finding::problem(SUBJECT, value, in_container(module, container).unwrap_or(Remedy::NodeReplace.into()))
            }
            Err(_) => {
                let (state, advice) = absent(module);
                let value = format!("there is no {NODE}, and the module is {state}");
                // A container does not have the host's files.
                Finding::problem(SUBJECT, value, in_container(module, container).unwrap_or(advice))
            }
        },
    }
}

/// How the node gets into the container.
fn in_container(module: &Gdrdrv, container: Option<&Container>) -> Option<Advice> {
    let load = if module.loaded == Some(true) { "" } else { "load the module on the host (modprobe gdrdrv), and " };
    Some(container?.node.with("host", load))
}

/// How far the installation of the module got, and what to do.
fn absent(module: &Gdrdrv) -> (&'static str, Advice) {
    const NOT_BUILT: &str = "installed, but not built for this kernel";
    const STALE: &str = "stale: built for another GPU driver";
    match &module.installation {
        _ if module.loaded == Some(true) => ("loaded", Remedy::NodeCreate.into()),
        Some(Installation::NotBuilt { kernel, headers: false, gpu_driver, .. }) => {
            let others = if *gpu_driver { "" } else { " and the GPU driver's sources (…-dkms)" };
            (NOT_BUILT, Remedy::ModuleHeaders.with("kernel", kernel).with("others", others))
        }
        Some(Installation::NotBuilt { gpu_driver: false, .. }) => (NOT_BUILT, Remedy::ModuleSources.into()),
        Some(Installation::NotBuilt { .. }) => (NOT_BUILT, Remedy::ModuleBuild.into()),
        // Without `dkms build --force`, DKMS installs again what it has built.
        Some(Installation::Stale { dkms: Some(version) }) => (STALE, Remedy::ModuleStale.with("version", version)),
        Some(Installation::Stale { dkms: None }) => (STALE, Remedy::ModuleStaleByHand.into()),
        Some(Installation::StaleForLoaded) => (STALE, Remedy::DriverInstall.into()),
        Some(Installation::Built) if module.signed_only => ("built, but not loaded", Remedy::ModuleSigned.into()),
        Some(Installation::Built) => ("built, but not loaded", Remedy::ModuleLoad.into()),
        Some(Installation::Absent) | None => ("not installed", Remedy::ModuleInstall.into()),
    }
}

/// The node exists, but opening it or querying the version fails.
fn refused(why: &Refusal, node: &Node, module: &Gdrdrv, container: Option<&Container>) -> Finding {
    let &Refusal { errno, opened } = why;
    let subject = if opened { "asking it" } else { "opening it" };
    let in_container = in_container(module, container);
    let advice = match (errno, in_container) {
        (Errno::EACCES, _) if statvfs(NODE).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NODEV)) => {
            Remedy::NodeNodev.with("mount", files::mount_of(Path::new(NODE)))
        }
        (Errno::EACCES, _) if opened || node.mode & 0o666 == 0o666 => Remedy::NodeSecurity.into(),
        (Errno::EACCES, _) => Remedy::NodeMode.into(),
        (Errno::EPERM, _) if opened => Remedy::NodeSandbox.into(),
        // Apptainer has no device cgroup of its own.
        (Errno::EPERM, Some(advice)) if advice.remedy != Remedy::NodeApptainer => advice,
        (Errno::EPERM, _) if env::var_os("SLURM_JOB_ID").is_some() => Remedy::NodeSlurm.into(),
        (Errno::EPERM, _) => Remedy::NodeService.into(),
        // The number in the node is of no driver, or of another one.
        (Errno::ENXIO | Errno::ENODEV | Errno::ENOTTY | Errno::EINVAL, advice) => {
            advice.unwrap_or(Remedy::NodeReplace.into())
        }
        (Errno::EMFILE | Errno::ENFILE, _) => Remedy::OpenFiles.into(),
        _ => Remedy::ModuleReload.into(),
    };
    let why = match errno {
        HANGS => return Finding::problem(subject, "it does not end, as the module hangs", advice),
        Errno::ENOTTY | Errno::EINVAL => ": the node leads to another driver, or to a gdrdrv before 2.0",
        Errno::ENXIO | Errno::ENODEV => ": the node leads to no loaded driver",
        _ => "",
    };
    Finding::problem(subject, format!("{errno:?} ({}){why}", errno.desc()), advice)
}

fn version(versions: &Versions) -> Finding {
    const SUBJECT: &str = "module version";
    let Versions { module, oldest_library } = versions;
    if *module < Version::OLDEST_GDRDRV {
        let advice = Remedy::ModuleUpdate.with("oldest", Version::OLDEST_GDRDRV);
        return Finding::problem(SUBJECT, format!("{module} is too old"), advice);
    }
    if *oldest_library > Version::API {
        let value = format!("{module} only supports libraries of version {oldest_library} and later");
        return Finding::problem(SUBJECT, value, Remedy::LibraryUpdate.with("oldest", oldest_library));
    }
    Finding::ok(SUBJECT, format!("{module}, for libraries from {oldest_library} on"))
}
