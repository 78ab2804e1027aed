//! The kernel module: its device node, its version, its parameters.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use gdrcopy::Version;
use nix::errno::Errno;

use super::files;

/// The device node.
pub(crate) const NODE: &str = "/dev/gdrdrv";

/// GET_VERSION, which every release of the module supports.
const GET_VERSION: u64 = 0xC008_DAFF;

/// The state of the module.
#[derive(Debug)]
pub(crate) struct Gdrdrv {
    /// The node, or why it cannot be examined.
    pub(crate) node: Result<Node, Errno>,
    /// Whether the module is loaded.
    pub(crate) loaded: Option<bool>,
    /// Whether it is installed for this kernel.
    pub(crate) installed: Option<bool>,
    /// The kernel only loads signed modules.
    pub(crate) signed_only: bool,
    /// It is linked to the functions of nv-p2p-dummy, which cannot pin GPU memory.
    pub(crate) bound_to_dummy: bool,
    /// Its versions, or the errno of opening it or of asking for them.
    pub(crate) versions: Result<Versions, Errno>,
    /// Its parameters, from /proc/driver/gdrdrv/params.
    pub(crate) params: Option<String>,
}

/// The node.
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

pub(crate) fn query() -> Gdrdrv {
    let params = files::text("/proc/driver/gdrdrv/params");
    Gdrdrv {
        node: node(),
        loaded: match params {
            Some(_) => Some(true),
            None => files::module_loaded("gdrdrv"),
        },
        installed: installed(),
        signed_only: signed_only(),
        bound_to_dummy: Path::new("/sys/module/nv_p2p_dummy/holders/gdrdrv").exists(),
        versions: versions(),
        params,
    }
}

fn installed() -> Option<bool> {
    let kernel = files::text("/proc/sys/kernel/osrelease")?;
    let modules = files::text(format!("/lib/modules/{kernel}/modules.dep"))?;
    Some(modules.contains("/gdrdrv.ko"))
}

fn signed_only() -> bool {
    // The active state is in brackets.
    let locked = files::text("/sys/kernel/security/lockdown");
    let locked = locked.is_some_and(|states| !states.contains("[none]"));
    locked || files::text("/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y")
}

fn node() -> Result<Node, Errno> {
    let metadata = fs::metadata(NODE).map_err(errno)?;
    Ok(Node {
        is_device: metadata.file_type().is_char_device(),
        mode: metadata.mode() & 0o7777,
        owner: metadata.uid(),
        group: metadata.gid(),
    })
}

fn versions() -> Result<Versions, Errno> {
    let device: File = OpenOptions::new().read(true).write(true).open(NODE).map_err(errno)?;
    let mut answer = [0u32; 2];
    // SAFETY: the command writes two words, the length of the array; the descriptor is open.
    let result =
        unsafe { libc::ioctl(device.as_raw_fd(), GET_VERSION as libc::Ioctl, answer.as_mut_ptr()) };
    Errno::result(result)?;
    let [module, oldest_library] = answer.map(version);
    Ok(Versions { module, oldest_library })
}

/// The upper half is the major version.
fn version(packed: u32) -> Version {
    Version::new(packed >> 16, packed & 0xffff)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
