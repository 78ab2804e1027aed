//! Finds out the version of the kernel module gdrdrv, whether it is loaded, and how far its installation got.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gdrcopy::Version;
use gdrcopy_core::sys::gdrdrv::{DeviceFile, GetVersion};
use serde::{Deserialize, Serialize};

use super::files;

pub(crate) const NODE: &str = "/dev/gdrdrv";

/// The answer of gdrdrv, the kernel module, to the ioctl `GET_VERSION`.
#[derive(Debug)]
pub(crate) struct Versions {
    pub(crate) module: Version,
    /// The oldest library that the module supports.
    pub(crate) oldest_library: Version,
}

/// The reason why gdrdrv did not report its versions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) errno: i32,
    /// True if the device node was opened, and `GET_VERSION` was refused.
    pub(crate) opened: bool,
}

impl Versions {
    /// Unpacks the version numbers that the module reports.
    pub(crate) fn new(packed: [u32; 2]) -> Versions {
        let [module, oldest_library] = packed.map(|packed| Version::new(packed >> 16, packed & 0xffff));
        Versions { module, oldest_library }
    }
}

/// Opens the device node, and returns the packed numbers from which [`Versions::new`] makes `Versions`.
pub(crate) fn versions() -> Result<[u32; 2], Refusal> {
    let mut answer = GetVersion::default();
    let device = DeviceFile::open(None).map_err(|error| Refusal { errno: error.errno(), opened: false })?;
    let asked = device.get_version(&mut answer);
    asked.map_err(|error| Refusal { errno: error.errno(), opened: true })?;
    Ok([answer.gdrdrv_version, answer.minimum_gdr_api_version])
}

/// Returns whether the module is loaded, or built in.
pub(crate) fn is_loaded() -> bool {
    let modules = files::text("/proc/modules").unwrap_or_default();
    let files = ["/proc/driver/gdrdrv/params", "/sys/module/gdrdrv"];
    modules.lines().any(|line| line.starts_with("gdrdrv ")) || files.iter().any(|file| Path::new(file).exists())
}

/// Returns the version of the module that is installed for this kernel, which need not be the loaded one.
pub(crate) fn installed() -> Option<Version> {
    // modinfo may be in a directory that is not on the user's PATH, so the command adds such directories. stderr is no
    // pipe: with two pipes, output() calls ioctl, and panics in a sandbox that refuses it.
    let mut modinfo = Command::new("sh");
    modinfo.args(["-c", "PATH=$PATH:/usr/sbin:/sbin modinfo -F version gdrdrv"]);
    let output = modinfo.stderr(Stdio::null()).output().ok()?;
    parse(String::from_utf8_lossy(&output.stdout).trim_end())
}

/// Returns whether a kernel's directory of modules, below /lib/modules, contains gdrdrv.
pub(crate) fn is_built(modules: &Path) -> bool {
    files::text(modules.join("modules.dep")).is_some_and(|list| list.contains("/gdrdrv.ko"))
}

/// Returns a kernel for which the module is built. If there are several, returns the one whose name sorts last.
pub(crate) fn built_for_other_kernel() -> Option<String> {
    let kernels = files::matching(Path::new("/lib/modules"), "");
    let other = kernels.iter().rev().find(|modules| is_built(modules))?;
    Some(other.file_name()?.to_string_lossy().into_owned())
}

/// A build by DKMS that failed.
pub(crate) struct FailedBuild {
    pub(crate) version: Option<Version>,
    pub(crate) log: PathBuf,
    /// The first line in the log that reports an error.
    pub(crate) error: String,
}

/// Returns the last build of the module for this kernel, if it failed. `versions` are DKMS's directories for
/// the module, one per version.
pub(crate) fn failed_build(versions: &[PathBuf], kernel: &str) -> Option<FailedBuild> {
    for version in versions.iter().rev() {
        let log = version.join("build/make.log");
        let text = files::lossy(&log);
        // The first line of a log names the kernel.
        if !text.lines().next().unwrap_or_default().split(' ').any(|word| word == kernel) {
            continue;
        }
        // A compiler's line says more than make's, such as `make: *** [all] Error 2`.
        let of_compiler = text.lines().find(|line| line.to_lowercase().contains("error: "));
        let of_make = text.lines().find(|line| line.contains("*** "));
        let error = of_compiler.or(of_make)?.trim().to_owned();
        return Some(FailedBuild { version: parse(&version.file_name()?.to_string_lossy()), log, error });
    }
    None
}

/// Returns the version `major.minor` at the beginning of a text such as `2.4.1`.
fn parse(text: &str) -> Option<Version> {
    let mut parts = text.split('.');
    Some(Version::new(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns a command that runs the script `gdrdrv-load`. This program contains it, so it need not be installed.
fn gdrdrv_load() -> Command {
    const GDRDRV_LOAD: &str = include_str!("../../../gdrdrv-c/system/gdrdrv-load");
    let mut command = Command::new("sh");
    command.args(["-c", GDRDRV_LOAD, "gdrdrv-load"]);
    command
}

/// Returns the exit status of `gdrdrv-load --stale`: 0 if the module was built for a GPU driver other than the
/// installed one; 3 if none is installed, and the module was built for a GPU driver other than the loaded one; else 1.
pub(crate) fn stale(kernel: &str) -> Option<i32> {
    gdrdrv_load().args(["--stale", kernel]).status().ok()?.code()
}

/// Returns the file, the number and the text of a line in modprobe's configuration that keeps gdrdrv from being loaded.
pub(crate) fn forbidding() -> Option<[String; 3]> {
    // stderr is no pipe: with two pipes, output() calls ioctl, and panics in a sandbox that refuses it.
    let output = gdrdrv_load().arg("--forbidden").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    let mut parts = text.splitn(3, ':').map(str::to_owned);
    Some([parts.next()?, parts.next()?, parts.next()?])
}

/// Returns whether the kernel refuses modules that are not signed.
pub(crate) fn signed_only() -> bool {
    // The file lists all states, with the active one in brackets.
    let locked = files::text("/sys/kernel/security/lockdown");
    let locked = locked.is_some_and(|states| !states.contains("[none]"));
    locked || files::text("/sys/module/module/parameters/sig_enforce").as_deref() == Some("Y")
}
