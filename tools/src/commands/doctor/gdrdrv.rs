//! The kernel module. Is it loaded, may this user open it, does it match the library?
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use gdrcopy::Version;
use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};

use super::backends::Backends;
use super::host::{self, Container};
use super::probe::{HANGS, NOT_ASKED};
use super::remedies::{Advice, Remedy};
use super::report::{Cause, Finding};
use crate::system::files;
use crate::system::gdrdrv::{Gdrdrv, Installation, NODE, Node, Refusal, Versions};

/// The first release with persistent mappings and their attributes.
const PERSISTENT_SINCE: Version = Version::new(2, 5);

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
        (Err(why), Ok(node)) if node.is_device => findings.push(refused(why, node, module.loaded, container)),
        _ => {}
    }
    if module.bound_to_dummy {
        // It can be opened, but refuses every pin with EINVAL.
        let value = "nv-p2p-dummy, with which no GPU memory can be pinned";
        findings.push(Finding::problem("bound to", value, Remedy::ModuleDummy));
    }
    match &module.params {
        Some(params) => findings.extend([persistence(params), flavor(params)]),
        None if module.node.is_err() => {}
        None => {
            let value = "not reported: there is no /proc/driver/gdrdrv/params";
            findings.push(Finding::unknown("persistent mapping", value));
        }
    }
    // The library hangs also where it could do without.
    let needed = backends.need_gdrdrv() || module.versions.as_ref().is_err_and(|why| why.errno == HANGS);
    findings.into_iter().map(|finding| finding.caused_by(Cause::Gdrdrv).only_if(needed)).collect()
}

fn node(module: &Gdrdrv, container: Option<&Container>) -> Finding {
    const SUBJECT: &str = "device node";
    match &module.node {
        Ok(Node { is_device: true, mode, owner, group }) => {
            Finding::ok(SUBJECT, format!("{NODE}, mode {mode:03o}, owner {owner}:{group}"))
        }
        Ok(_) => Finding::problem(SUBJECT, format!("{NODE} is {}", what_is_there()), replace(module.loaded, container)),
        Err(Errno::ENOENT) if fs::symlink_metadata(NODE).is_ok() => {
            Finding::problem(SUBJECT, format!("{NODE} is {}", what_is_there()), replace(module.loaded, container))
        }
        Err(Errno::ENOENT) => {
            let absent = format!("there is no {NODE}");
            let (value, advice) = match (module.loaded, container) {
                (Some(true), Some(container)) => (format!("the module is loaded, but {absent}"), pass(container, true)),
                (Some(true), None) => (format!("the module is loaded, but {absent}"), Remedy::NodeCreate.into()),
                // A container does not have the host's files.
                (Some(false), Some(container)) => {
                    (format!("{absent}, and the module is not loaded"), pass(container, false))
                }
                (None, Some(container)) => (absent, pass(container, false)),
                (_, None) => (format!("{absent}, and the module is {}", state(module)), load_module(module)),
            };
            Finding::problem(SUBJECT, value, advice)
        }
        Err(errno) => Finding::problem(SUBJECT, format!("{NODE}: {errno}"), Remedy::NodeDirectory),
    }
}

/// Describes what is at the place of the device.
fn what_is_there() -> String {
    let Ok(metadata) = fs::symlink_metadata(NODE) else {
        return "not a device".into();
    };
    let kind = metadata.file_type();
    match fs::read_link(NODE) {
        Ok(target) => format!("a link to {}, which is no device", target.display()),
        _ if kind.is_dir() => "a directory, as Docker's -v makes one where the host has no such device".into(),
        _ if kind.is_file() => "a plain file, as a bind mount leaves one where its target was missing".into(),
        _ => "not a device".into(),
    }
}

/// The remedy for a file that is no node of the module. In a container, it came from the host.
fn replace(loaded: Option<bool>, container: Option<&Container>) -> Advice {
    match container {
        Some(container) => pass(container, loaded == Some(true)),
        None => Remedy::NodeReplace.into(),
    }
}

/// How the node gets into a container.
fn pass(container: &Container, is_loaded: bool) -> Advice {
    container.node.with("host", if is_loaded { "" } else { "load the module on the host (modprobe gdrdrv), and " })
}

/// Why a module is not loaded.
fn state(module: &Gdrdrv) -> &'static str {
    match &module.installation {
        Some(Installation::Absent) => "not installed",
        Some(Installation::NotBuilt { .. }) => "installed, but not built for this kernel",
        Some(Installation::Stale { .. }) => "stale: built for another GPU driver than the installed one",
        Some(Installation::Built) => "built, but not loaded",
        None => "not loaded",
    }
}

fn load_module(module: &Gdrdrv) -> Advice {
    match &module.installation {
        Some(Installation::NotBuilt { kernel, headers: false, gpu_driver, .. }) => {
            let others = if *gpu_driver { "" } else { " and the GPU driver's sources (…-dkms)" };
            Remedy::ModuleHeaders.with("kernel", kernel).with("others", others)
        }
        Some(Installation::NotBuilt { gpu_driver: false, .. }) => Remedy::ModuleSources.into(),
        Some(Installation::NotBuilt { log: Some(log), .. }) => Remedy::ModuleLog.with("log", log.display()),
        Some(Installation::NotBuilt { .. }) => Remedy::ModuleBuild.into(),
        // Without `dkms build --force`, DKMS installs again what it has built.
        Some(Installation::Stale { dkms: Some(version) }) => Remedy::ModuleStale.with("version", version),
        Some(Installation::Stale { dkms: None }) => Remedy::ModuleStaleByHand.into(),
        Some(Installation::Built) if module.signed_only => Remedy::ModuleSigned.into(),
        Some(Installation::Built) => Remedy::ModuleLoad.into(),
        Some(Installation::Absent) | None => Remedy::ModuleInstall.into(),
    }
}

/// The node exists, but opening it or querying the version fails.
fn refused(why: &Refusal, node: &Node, loaded: Option<bool>, container: Option<&Container>) -> Finding {
    let &Refusal { errno, opened } = why;
    let subject = if opened { "asking it" } else { "opening it" };
    let mount = mount_without_devices();
    let advice = match (errno, container) {
        (Errno::EACCES, _) if mount.is_some() => Remedy::NodeNodev.with("mount", mount.unwrap_or_default()),
        (Errno::EACCES, _) if opened || node.mode & 0o666 == 0o666 => Remedy::NodeSecurity.into(),
        (Errno::EACCES, _) => Remedy::NodeMode.into(),
        (Errno::EPERM, _) if opened => Remedy::NodeSandbox.into(),
        // Apptainer has no device cgroup of its own.
        (Errno::EPERM, Some(container)) if container.node != Remedy::NodeApptainer => pass(container, true),
        (Errno::EPERM, _) if std::env::var_os("SLURM_JOB_ID").is_some() => Remedy::NodeSlurm.into(),
        (Errno::EPERM, _) => Remedy::NodeService.into(),
        // The number in the node is of no driver, or of another one.
        (Errno::ENXIO | Errno::ENODEV | Errno::ENOTTY | Errno::EINVAL, _) => replace(loaded, container),
        (Errno::EMFILE | Errno::ENFILE, _) => host::more_files(errno),
        _ => Remedy::ModuleReload.into(),
    };
    let why = match errno {
        HANGS => return Finding::problem(subject, "it does not end, as the module hangs", advice),
        NOT_ASKED => {
            return Finding::unknown(subject, "not tried, as the process for it did not start, or died");
        }
        Errno::ENOTTY | Errno::EINVAL => ": the node leads to another driver, or to a gdrdrv before 2.0",
        Errno::ENXIO | Errno::ENODEV => ": the node leads to no loaded driver",
        _ => "",
    };
    Finding::problem(subject, format!("{errno:?} ({}){why}", errno.desc()), advice)
}

/// The mount with the node if its devices cannot be opened.
fn mount_without_devices() -> Option<String> {
    let is_nodev = statvfs(NODE).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NODEV));
    is_nodev.then(|| files::mount_of(Path::new(NODE)))
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
    if *module < PERSISTENT_SINCE {
        let value = format!("{module}, without persistent mappings and pin flags");
        return Finding::warning(SUBJECT, value, Remedy::ModuleUpdate.with("oldest", PERSISTENT_SINCE));
    }
    Finding::ok(SUBJECT, format!("{module}, for libraries from {oldest_library} on"))
}

fn persistence(params: &str) -> Finding {
    const SUBJECT: &str = "persistent mapping";
    match files::field(params, "Use persistent mapping") {
        Some("yes") => Finding::ok(SUBJECT, "on"),
        Some(_) => {
            let value = "off: mappings become invalid when their memory is freed";
            Finding::warning(SUBJECT, value, Remedy::ModuleOption)
        }
        None => Finding::unknown(SUBJECT, "not reported by /proc/driver/gdrdrv/params"),
    }
}

fn flavor(params: &str) -> Finding {
    match files::field(params, "Built for NVIDIA driver flavor") {
        Some(flavor) => Finding::ok("built for", format!("the {flavor} GPU driver")),
        None => Finding::unknown("built for", "not reported by /proc/driver/gdrdrv/params"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_the_installation_has_its_own_remedy() {
        let not_built = |headers, gpu_driver, log: Option<&str>| Installation::NotBuilt {
            kernel: "6.1".into(),
            headers,
            gpu_driver,
            log: log.map(Into::into),
        };
        for (installation, signed_only, remedy) in [
            (Installation::Absent, false, Remedy::ModuleInstall),
            (not_built(false, true, None), false, Remedy::ModuleHeaders),
            (not_built(false, false, None), false, Remedy::ModuleHeaders),
            (not_built(true, false, None), false, Remedy::ModuleSources),
            (not_built(true, true, Some("/x/make.log")), false, Remedy::ModuleLog),
            (not_built(true, true, None), false, Remedy::ModuleBuild),
            (Installation::Stale { dkms: Some("2.5".into()) }, false, Remedy::ModuleStale),
            (Installation::Stale { dkms: None }, false, Remedy::ModuleStaleByHand),
            (Installation::Built, false, Remedy::ModuleLoad),
            (Installation::Built, true, Remedy::ModuleSigned),
        ] {
            let module = Gdrdrv {
                node: Err(Errno::ENOENT),
                loaded: Some(false),
                installation: Some(installation),
                signed_only,
                bound_to_dummy: false,
                versions: Err(Refusal { errno: Errno::ENOENT, opened: false }),
                params: None,
            };
            let advice = load_module(&module);
            assert!(advice.remedy == remedy && advice.is_complete(), "{module:?}: {advice:?}");
        }
    }
}
