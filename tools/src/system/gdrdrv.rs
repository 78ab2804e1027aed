//! The kernel module, with its device node, its version, its parameters.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use gdrcopy::Version;
use gdrcopy_core::sys::gdrdrv::{DeviceFile, GetVersion};
use nix::errno::Errno;

use super::files;

pub(crate) const NODE: &str = "/dev/gdrdrv";

#[derive(Debug)]
pub(crate) struct Gdrdrv {
    pub(crate) node: Option<Node>,
    /// True if the module is loaded.
    pub(crate) loaded: Option<bool>,
    /// How far its installation for this kernel got.
    pub(crate) installation: Option<Installation>,
    /// The kernel only loads signed modules.
    pub(crate) signed_only: bool,
    /// It is linked to the functions of nv-p2p-dummy, which cannot pin GPU memory.
    pub(crate) bound_to_dummy: bool,
    pub(crate) versions: Result<Versions, Refusal>,
}

/// Where the module is between package and kernel.
#[derive(Debug, PartialEq)]
pub(crate) enum Installation {
    /// Neither its sources nor the module are here.
    Absent,
    /// Its sources are here, and no module for this kernel.
    NotBuilt {
        kernel: String,
        /// The kernel's headers are here.
        headers: bool,
        /// The GPU driver's sources are here.
        gpu_driver: bool,
    },
    /// The module is here, but was built for another GPU driver than the installed one.
    Stale {
        /// DKMS has built it, by this version.
        dkms: Option<String>,
    },
    /// The same, and the GPU driver is loaded out of another tree.
    StaleForLoaded,
    Built,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) is_device: bool,
    /// Permissions, as chmod takes them.
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) group: u32,
}

/// The module's answer to GET_VERSION.
#[derive(Debug)]
pub(crate) struct Versions {
    pub(crate) module: Version,
    /// The oldest library that it supports.
    pub(crate) oldest_library: Version,
}

/// Why they are unknown.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    /// The node was opened, and the question refused.
    pub(crate) opened: bool,
}

impl Versions {
    /// From the numbers of the module.
    pub(crate) fn new(packed: [u32; 2]) -> Versions {
        let [module, oldest_library] = packed.map(|packed| Version::new(packed >> 16, packed & 0xffff));
        Versions { module, oldest_library }
    }
}

/// Does not open the node, which may hang. These versions are what it reports.
pub(crate) fn query(versions: Result<Versions, Refusal>) -> Gdrdrv {
    let has_params = Path::new("/proc/driver/gdrdrv/params").exists();
    Gdrdrv {
        node: node(),
        loaded: if has_params { Some(true) } else { files::module_loaded("gdrdrv") },
        installation: files::text("/proc/sys/kernel/osrelease").map(installation),
        signed_only: signed_only(),
        bound_to_dummy: DeviceFile::is_bound_to_dummy(),
        versions,
    }
}

/// Looks where gdrdrv-c/dkms.conf does.
fn installation(kernel: String) -> Installation {
    let modules = Path::new("/lib/modules").join(&kernel);
    let versions = files::matching(Path::new("/var/lib/dkms/gdrdrv"), "");
    let listed = files::text(modules.join("modules.dep")).unwrap_or_default();
    if listed.contains("/gdrdrv.ko") {
        match stale(&kernel) {
            Some(0) => {}
            Some(3) => return Installation::StaleForLoaded,
            _ => return Installation::Built,
        }
        let version = versions.iter().find(|version| version.join("source").exists());
        let name = version.and_then(|version| version.file_name());
        return Installation::Stale { dkms: name.map(|name| name.to_string_lossy().into_owned()) };
    }
    let sources = files::matching(Path::new("/usr/src"), "gdrdrv-");
    if sources.is_empty() && versions.is_empty() {
        return Installation::Absent;
    }
    let of_driver = ["/usr/src", "/usr/src/kernel-modules"].map(|place| files::matching(Path::new(place), "nvidia"));
    Installation::NotBuilt {
        kernel,
        headers: modules.join("build/Makefile").exists(),
        gpu_driver: of_driver.iter().flatten().any(|directory| files::contains(directory, "nv-p2p.c", 3)),
    }
}

/// Exit status of `gdrdrv-load --stale`, which need not be installed.
fn stale(kernel: &str) -> Option<i32> {
    const GDRDRV_LOAD: &str = include_str!("../../../gdrdrv-c/system/gdrdrv-load");
    let status = Command::new("sh").args(["-c", GDRDRV_LOAD, "gdrdrv-load", "--stale", kernel]).status();
    status.ok()?.code()
}

fn signed_only() -> bool {
    // The active state is in brackets.
    let locked = files::text("/sys/kernel/security/lockdown");
    let locked = locked.is_some_and(|states| !states.contains("[none]"));
    locked || files::text("/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y")
}

fn node() -> Option<Node> {
    let metadata = fs::metadata(NODE).ok()?;
    Some(Node {
        is_device: metadata.file_type().is_char_device(),
        mode: metadata.mode() & 0o7777,
        owner: metadata.uid(),
        group: metadata.gid(),
    })
}

/// Opens the node, and asks for the numbers of `Versions`.
pub(crate) fn versions() -> Result<[u32; 2], Refusal> {
    let mut answer = GetVersion::default();
    let device = match DeviceFile::open(None) {
        Ok(device) => device,
        Err(error) => return Err(Refusal { errno: Errno::from_raw(error.errno()), opened: false }),
    };
    match device.get_version(&mut answer) {
        Ok(()) => Ok([answer.gdrdrv_version, answer.minimum_gdr_api_version]),
        Err(error) => Err(Refusal { errno: Errno::from_raw(error.errno()), opened: true }),
    }
}
