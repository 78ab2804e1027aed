//! Finds the processes that use GDRCopy. In /proc/PID, the file `maps` has a process's libraries and mappings, and the
//! directory `fd` has its descriptors.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use serde::Serialize;

use super::files;
use super::gdrdrv::NODE;

/// A process, and the files of GDRCopy that it uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) uid: Option<u32>,
    /// The name of the program, without control characters.
    pub(crate) command: String,
    /// The number of open descriptors of /dev/gdrdrv.
    #[serde(rename = "open")]
    pub(crate) descriptors: usize,
    pub(crate) mappings: usize,
    pub(crate) mapped_bytes: usize,
    /// The files named libgdrapi* that are mapped.
    #[serde(rename = "libgdrapi")]
    pub(crate) libraries: Vec<String>,
    /// True if the device is gdremu's stand-in for /dev/gdrdrv.
    pub(crate) emulated: bool,
}

impl Process {
    pub(crate) fn uses_gdrcopy(&self) -> bool {
        !self.libraries.is_empty() || self.descriptors + self.mappings > 0
    }

    fn add_mapping(&mut self, mapping: &Mapping) {
        let path = mapping.path;
        let emulated = path.starts_with(EMULATED_GPU);
        if emulated || without_deleted(path) == NODE {
            self.mappings += 1;
            self.mapped_bytes += (mapping.end - mapping.start) as usize;
            self.emulated |= emulated;
        } else if is_library(path) && !self.libraries.iter().any(|library| library == path) {
            self.libraries.push(path.into());
        }
    }

    fn add_descriptor(&mut self, target: &str) {
        let emulated = EMULATED_DEVICE.iter().all(|part| target.contains(part));
        if emulated || without_deleted(target) == NODE {
            self.descriptors += 1;
            self.emulated |= emulated;
        }
    }
}

/// A line of `maps`, which is `START-END PERMISSIONS OFFSET DEVICE INODE PATH`.
pub(crate) struct Mapping<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_code: bool,
    /// The offset of the mapping in the file.
    pub(crate) offset: u64,
    pub(crate) path: &'a str,
}

impl<'a> Mapping<'a> {
    fn new(line: &'a str) -> Option<Mapping<'a>> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        Some(Mapping {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            is_code: words.next()?.contains('x'),
            offset: u64::from_str_radix(words.next()?, 16).ok()?,
            path: words.nth(2)?.trim_start(),
        })
    }
}

pub(crate) fn mappings(maps: &str) -> impl Iterator<Item = Mapping<'_>> {
    maps.lines().filter_map(Mapping::new)
}

/// Returns the path of the first mapping of this process for which `is_meant` is true.
pub(crate) fn own_file(is_meant: impl Fn(&Mapping) -> bool) -> Option<String> {
    let maps = fs::read("/proc/self/maps").ok()?;
    let maps = String::from_utf8_lossy(&maps);
    Some(mappings(&maps).find(is_meant)?.path.to_owned())
}

/// The path of gdremu's stand-in for /dev/gdrdrv contains both of these texts.
const EMULATED_DEVICE: [&str; 2] = ["/gdremu-", "/devices/"];
/// The path of the file that gdremu uses as GPU memory begins with this text. gdremu also maps it for CUDA's copies.
const EMULATED_GPU: &str = "/memfd:gdremu-gpu";

fn without_deleted(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next();
    // libgdrapi-preload.so is only for LD_PRELOAD, and has no functions.
    name.is_some_and(|name| name.starts_with("libgdrapi") && name.contains(".so") && name != "libgdrapi-preload.so")
}

/// Returns what a process uses of GDRCopy, or the error of the first file in /proc that cannot be read.
fn examine(pid: u32) -> io::Result<Process> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(directory.join("status"))?;
    let uid = files::field(&status, "Uid");
    let mut process = Process {
        pid,
        uid: uid.and_then(|ids| ids.split_whitespace().next()?.parse().ok()),
        command: files::field(&status, "Name").unwrap_or("?").replace(char::is_control, "\u{fffd}"),
        ..Process::default()
    };
    let maps = fs::read(directory.join("maps"))?;
    for mapping in mappings(&String::from_utf8_lossy(&maps)) {
        process.add_mapping(&mapping);
    }
    for entry in fs::read_dir(directory.join("fd"))? {
        // The descriptor may be closed by now.
        if let Ok(target) = fs::read_link(entry?.path()) {
            process.add_descriptor(&target.to_string_lossy());
        }
    }
    Ok(process)
}

/// Returns all processes that use GDRCopy, sorted by number, and how many processes could not be examined.
pub(crate) fn all() -> io::Result<(Vec<Process>, usize)> {
    let mut users = Vec::new();
    let mut refused = 0;
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match examine(pid) {
            Ok(process) if process.uses_gdrcopy() => users.push(process),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => refused += 1,
            // The process does not use GDRCopy, or has ended.
            _ => {}
        }
    }
    users.sort_by_key(|process| process.pid);
    Ok((users, refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_and_descriptors_are_counted() {
        let mut process = Process::default();
        let maps = [
            "7f0000000000-7f0000200000 rw-s 00000000 00:06 512                        /dev/gdrdrv",
            "7f0000400000-7f0000410000 rw-s 00000000 00:06 512          /dev/gdrdrv (deleted)",
            "7f0000500000-7f0000510000 rw-s 00000000 00:06 512          /dev/gdrdrv2",
            "7f0000600000-7f0000610000 rw-s 00000000 00:0d 9            /dmabuf:",
            "7f0000700000-7f0000710000 r-xp 00001000 fe:00 7            /a b/libgdrapi.so.2.6",
            "7f0000720000-7f0000730000 rw-p 00002000 fe:00 7            /a b/libgdrapi.so.2.6",
            "7f0000740000-7f0000750000 rw-p 00000000 00:00 0 ",
            "nonsense",
        ];
        for mapping in mappings(&maps.join("\n")) {
            process.add_mapping(&mapping);
        }
        for target in ["/dev/gdrdrv", "/dev/nvidia0", "socket:[1]", "/dev/gdrdrv (deleted)"] {
            process.add_descriptor(target);
        }
        let expected = Process {
            libraries: vec!["/a b/libgdrapi.so.2.6".into()],
            descriptors: 2,
            mappings: 2,
            mapped_bytes: (2 << 20) + (64 << 10),
            ..Process::default()
        };
        assert_eq!(process, expected);
        process.add_descriptor("/tmp/gdremu-7-0/devices/9.0.x");
        process.add_mapping(&Mapping::new("7f00-8f00 rw-s 0000 00:01 902   /memfd:gdremu-gpu0 (deleted)").unwrap());
        assert_eq!((process.descriptors, process.mappings, process.emulated), (3, 3, true));
    }
}
