//! Examines the kernel module: whether it is loaded, whether this user may open it, and whether it matches the library.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::env;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::Result;
use gdrcopy::Version;
use gdrcopy_core::sys::gdrdrv::DeviceFile;
use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};

use super::environment::{Backends, Container, more_files};
use super::probe::{self, DIES, HANGS};
use super::remedies::{Advice, Remedy};
use super::report::{Cause, Finding};
use crate::libgdrapi::search::{self, SONAME};
use crate::system::files;
use crate::system::gdrdrv::{self, FailedBuild, NODE, Refusal, Versions};

pub(super) struct Module {
    is_loaded: bool,
    /// True if the module is linked to nv-p2p-dummy, a stand-in for the GPU driver that cannot pin GPU memory.
    bound_to_dummy: bool,
    versions: Result<Versions, Refusal>,
}

impl Module {
    /// Examines the module, in part by a child process. Returns an error if doctor cannot start that child.
    pub(super) fn query() -> Result<Module> {
        Ok(Module {
            is_loaded: gdrdrv::is_loaded(),
            bound_to_dummy: DeviceFile::is_bound_to_dummy(),
            versions: probe::versions()?,
        })
    }

    pub(super) fn version(&self) -> Option<Version> {
        Some(self.versions.as_ref().ok()?.module)
    }

    /// Returns whether the module can be used.
    pub(super) fn works(&self) -> bool {
        let Ok(versions) = &self.versions else { return false };
        versions.module >= Version::OLDEST_GDRDRV && versions.oldest_library <= Version::API && !self.bound_to_dummy
    }

    pub(super) fn findings(&self, backends: Backends, container: Option<&Container>) -> Vec<Finding> {
        let node = fs::metadata(NODE).ok().filter(|node| node.file_type().is_char_device());
        let mut findings = vec![match &node {
            Some(node) => {
                let mode = node.mode() & 0o7777;
                Finding::ok("device node", format!("{NODE}, mode {mode:03o}, owner {}:{}", node.uid(), node.gid()))
            }
            None => self.no_node(container),
        }];
        match (&self.versions, &node) {
            (Ok(versions), _) => findings.push(version(versions)),
            (Err(why), Some(node)) => findings.push(self.refused(why, node, container)),
            (Err(_), None) => {}
        }
        if self.bound_to_dummy {
            // The device can be opened, but refuses every pin with EINVAL.
            let value = "nv-p2p-dummy, with which no GPU memory can be pinned";
            findings.push(Finding::problem("bound to", value, Remedy::ModuleDummy));
        }
        // Unless dma-bufs are forced, the library tries the module first. If the module hangs or kills the process,
        // the library never answers, even if dma-bufs would work.
        let never_answers =
            self.versions.as_ref().is_err_and(|why| [HANGS, DIES].contains(&Errno::from_raw(why.errno)));
        let needed = backends.need_gdrdrv() || never_answers && !backends.dmabuf_forced;
        findings.into_iter().map(|finding| finding.caused_by(Cause::Gdrdrv).only_if(needed)).collect()
    }

    fn no_node(&self, container: Option<&Container>) -> Finding {
        let (value, advice) = if fs::symlink_metadata(NODE).is_ok() {
            let kind = if is_directory() {
                "a directory, which Docker's -v makes where a host has no node"
            } else {
                "no device"
            };
            (format!("{NODE} is {kind}: see `ls -ld {NODE}`"), Remedy::NodeReplace.into())
        } else {
            let (state, advice) = self.absent();
            (format!("there is no {NODE}, and the module is {state}"), advice)
        };
        // `absent` examines files that only the host has, so its advice is not used in a container.
        Finding::problem("device node", value, self.in_container(container).unwrap_or(advice))
    }

    /// Returns the remedy that gets the device node into the container, or `None` outside of containers.
    fn in_container(&self, container: Option<&Container>) -> Option<Advice> {
        let on_host = if is_directory() {
            "on the host, remove the directory /dev/gdrdrv, load the module and make the node (rmdir /dev/gdrdrv && \
             gdrdrv-load); then, without -v for it, "
        } else if self.is_loaded {
            ""
        } else {
            "load the module on the host (modprobe gdrdrv), and "
        };
        Some(container?.node.with("host", on_host))
    }

    /// Returns how far the installation of the module got, and what to do. It looks for sources of the GPU driver where
    /// gdrdrv-c/dkms.conf does.
    fn absent(&self) -> (Cow<'static, str>, Advice) {
        const STALE: &str = "stale: built for another GPU driver";
        const BUILT: &str = "built, but not loaded";
        if self.is_loaded && is_private_service() {
            return ("loaded".into(), Remedy::NodePrivate.into());
        }
        if self.is_loaded {
            return ("loaded".into(), Remedy::NodeCreate.into());
        }
        let kernel = files::text("/proc/sys/kernel/osrelease").unwrap_or_default();
        let modules = Path::new("/lib/modules").join(&kernel);
        let dkms = files::matching(Path::new("/var/lib/dkms/gdrdrv"), "");
        if gdrdrv::is_built(&modules) {
            let allowed = if gdrdrv::signed_only() { Remedy::ModuleSigned } else { Remedy::ModuleLoad };
            let version = dkms.iter().find(|version| version.join("source").exists());
            let (state, advice) = match (gdrdrv::stale(&kernel), version) {
                // The remedy begins with `dkms unbuild`, because DKMS would install its old build again otherwise.
                (Some(0), Some(version)) => {
                    let version = version.file_name().unwrap_or_default();
                    (STALE, Remedy::ModuleStale.with("version", version.display()))
                }
                (Some(0), None) => (STALE, Remedy::ModuleStaleByHand.into()),
                (Some(3), _) => (STALE, Remedy::DriverInstall.into()),
                _ => (BUILT, forbidden().unwrap_or(allowed.into())),
            };
            return (state.into(), advice);
        }
        // If the running kernel's list of modules is not on disk, an update has removed that kernel's package.
        if !modules.join("modules.dep").exists()
            && let Some(other) = gdrdrv::built_for_other_kernel()
        {
            let advice = Remedy::KernelReboot.with("kernel", kernel).with("other", other);
            return ("built for another kernel only".into(), advice);
        }
        if dkms.is_empty() && files::matching(Path::new("/usr/src"), "gdrdrv-").is_empty() {
            return ("not installed".into(), Remedy::ModuleInstall.into());
        }
        let drivers = ["/usr/src", "/usr/src/kernel-modules"].map(|place| files::matching(Path::new(place), "nvidia"));
        let has_driver = drivers.iter().flatten().any(|directory| files::contains(directory, "nv-p2p.c", 3));
        let mut state = Cow::Borrowed("installed, but not built for this kernel");
        let advice = match (modules.join("build/Makefile").exists(), has_driver) {
            (false, _) => {
                let others = if has_driver { "" } else { " and the GPU driver's sources (…-dkms)" };
                Remedy::ModuleHeaders.with("kernel", &kernel).with("others", others)
            }
            (true, false) => Remedy::ModuleSources.into(),
            (true, true) => match gdrdrv::failed_build(&dkms, &kernel) {
                Some(failed) => {
                    state = format!("installed, but DKMS could not build it: {}", failed.error).into();
                    failed_build(&failed)
                }
                None => Remedy::ModuleBuild.into(),
            },
        };
        (state, advice)
    }

    /// Returns the finding if the node exists, but opening it or querying the version fails.
    fn refused(&self, why: &Refusal, node: &Metadata, container: Option<&Container>) -> Finding {
        let errno = Errno::from_raw(why.errno);
        let opened = why.opened;
        let subject = if opened { "asking it" } else { "opening it" };
        let in_container = self.in_container(container);
        let advice = match (errno, in_container) {
            (Errno::EACCES, _) if statvfs(NODE).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NODEV)) => {
                Remedy::NodeNodev.with("mount", files::mount_of(Path::new(NODE)))
            }
            (Errno::EACCES, _) if opened || node.mode() & 0o666 == 0o666 => Remedy::NodeSecurity.into(),
            (Errno::EACCES, _) if is_unmapped(node.uid()) => Remedy::NodeModeHost.into(),
            (Errno::EACCES, _) => Remedy::NodeMode.into(),
            (Errno::EPERM, _) if opened => Remedy::NodeSandbox.into(),
            // In a container, the device cgroup refuses with EPERM. Apptainer has none, so its remedy does not help.
            (Errno::EPERM, Some(advice)) if advice.remedy != Remedy::NodeApptainer => advice,
            (Errno::EPERM, _) if env::var_os("SLURM_JOB_ID").is_some() => Remedy::NodeSlurm.into(),
            (Errno::EPERM, _) => Remedy::NodeService.into(),
            // The device number of the node belongs to no driver, or to another driver.
            (Errno::ENXIO | Errno::ENODEV | Errno::ENOTTY | Errno::EINVAL, advice) => {
                advice.unwrap_or(Remedy::NodeReplace.into())
            }
            (Errno::EMFILE | Errno::ENFILE, _) => more_files(errno).into(),
            _ => Remedy::ModuleReload.into(),
        };
        let why = match errno {
            HANGS => return Finding::problem(subject, "it does not end, as the module hangs", advice),
            DIES => return Finding::problem(subject, "it ends the process, perhaps by a fault of the module", advice),
            Errno::ENOTTY | Errno::EINVAL => ": the node leads to another driver, or to a gdrdrv before 2.0",
            Errno::ENXIO | Errno::ENODEV => ": the node leads to no loaded driver",
            _ => "",
        };
        Finding::problem(subject, format!("{errno:?} ({}){why}", errno.desc()), advice)
    }
}

/// Returns whether a directory is in place of the device node.
fn is_directory() -> bool {
    fs::symlink_metadata(NODE).is_ok_and(|node| node.is_dir())
}

/// Returns whether this process is a systemd service with PrivateDevices. systemd gives such a
/// service a /dev of its own, without /dev/kmsg and without gdrdrv's node.
fn is_private_service() -> bool {
    env::var_os("INVOCATION_ID").is_some() && !Path::new("/dev/kmsg").exists()
}

/// Returns the remedy for a failed build of the module. If an old module does not compile, the remedy is to update it.
fn failed_build(failed: &FailedBuild) -> Advice {
    let is_of_source = failed.error.contains(".c:") || failed.error.contains(".h:");
    match failed.version {
        Some(version) if version < Version::API && is_of_source => {
            let advice = Remedy::ModuleTooOld.with("version", version).with("newer", Version::API);
            advice.with("log", failed.log.display())
        }
        _ => Remedy::ModuleBuild.into(),
    }
}

/// Returns the remedy for a line of modprobe's configuration that keeps the module from being loaded, if there is one.
fn forbidden() -> Option<Advice> {
    let [file, number, line] = gdrdrv::forbidding()?;
    let line = line.trim();
    let effect =
        if line.starts_with("install") { "modprobe runs a program instead" } else { "it is not loaded at boot" };
    let advice = Remedy::ModuleForbidden.with("file", file).with("number", number);
    Some(advice.with("line", line).with("effect", effect))
}

/// Returns whether this user namespace, such as that of a rootless container, does not map the owner of a file.
/// Linux then shows the overflow number as the owner, and not even the namespace's root may change the file's mode.
fn is_unmapped(owner: u32) -> bool {
    let map = files::text("/proc/self/uid_map").unwrap_or_default();
    let is_initial = map.split_whitespace().eq(["0", "0", "4294967295"]);
    !is_initial && files::number("/proc/sys/kernel/overflowuid") == Some(owner)
}

/// Returns the advice to load the installed module in place of the loaded one, unless the installed one is too old.
pub(super) fn reload(loaded: Version, oldest: Version) -> Option<Advice> {
    let installed = gdrdrv::installed()?;
    if installed < oldest {
        return None;
    }
    Some(Remedy::ModuleSwitch.with("installed", installed).with("loaded", loaded))
}

fn version(versions: &Versions) -> Finding {
    const SUBJECT: &str = "module version";
    let Versions { module, oldest_library } = versions;
    if *module < Version::OLDEST_GDRDRV {
        let mut advice = Remedy::ModuleUpdate.with("oldest", Version::OLDEST_GDRDRV);
        if let Some(reload) = reload(*module, Version::OLDEST_GDRDRV) {
            advice = reload;
        }
        return Finding::problem(SUBJECT, format!("{module} is too old"), advice);
    }
    if *oldest_library > Version::API {
        let value = format!("{module} only supports libraries of version {oldest_library} and later");
        let file = search::first(SONAME).unwrap_or(SONAME.into());
        let advice = Remedy::LibraryUpdate.with("oldest", oldest_library).with("file", file.display());
        return Finding::problem(SUBJECT, value, advice);
    }
    Finding::ok(SUBJECT, format!("{module}, for libraries from {oldest_library} on"))
}
