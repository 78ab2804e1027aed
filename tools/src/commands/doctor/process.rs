//! `--pid`: what a running process has of GDRCopy.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::libraries::Environment;
use super::report::{Finding, Section};
use crate::libgdrapi::search::{self, Maker};
use crate::system::bytes::Bytes;
use crate::system::gdrdrv::NODE;
use crate::system::process::{self, Process};

/// The process and the variables that it was started with. Errors say what to do.
pub(super) fn examine(pid: u32) -> Result<(Process, Environment)> {
    let examined = process::examine(pid).and_then(|it| Ok((it, process::environment(pid)?)));
    examined.map_err(|error: io::Error| match error.kind() {
        ErrorKind::NotFound => {
            anyhow!("there is no process {pid} here: `gdrcopy ps` lists those that use GDRCopy")
        }
        ErrorKind::PermissionDenied => {
            anyhow!("process {pid} may not be examined: run this as root, or as the user of the process")
        }
        _ => anyhow!("process {pid}: {error}: it may have ended; `gdrcopy ps` lists those that use GDRCopy"),
    })
}

pub(super) fn section(process: &Process) -> Section {
    let title = format!("process {} ({})", process.pid, process.command);
    let mapped = match process.mappings {
        0 => "nothing through the device".into(),
        count => format!("{} in {count} mappings", Bytes(process.mapped)),
    };
    let libraries = libraries(process).into_iter().map(|finding| finding.about("libgdrapi"));
    let others = [device(process).about("device"), Finding::ok(mapped).about("mapped")];
    Section::new(title, libraries.chain(others).collect())
}

fn libraries(process: &Process) -> Vec<Finding> {
    if process.libraries.is_empty() {
        return vec![Finding::problem(
            "none is mapped: the process did not load one, or is linked with the static one",
            "run the program until it uses GPUs, as it loads the library only then; if there is \
             still none, gdrcopy doctor --for ENGINE in the same environment names the reason",
        )];
    }
    // The process may be in a container.
    let seen = |file: &Path| PathBuf::from(format!("/proc/{}/root{}", process.pid, file.display()));
    // The kernel's mark of a file that is no longer there.
    let path = |file: &Path| match file.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => (PathBuf::from(OsStr::from_bytes(path)), true),
        None => (file.to_owned(), false),
    };
    let files: Vec<_> = process.libraries.iter().map(|file| path(file)).collect();
    let mut findings: Vec<_> = files.iter().map(|(file, gone)| library(file, &seen(file), *gone)).collect();
    // Without the empty objects that are loaded for their names.
    let files = files.into_iter().map(|(file, _)| search::implementation(&seen(&file)).unwrap_or(file));
    let files = files.collect::<BTreeSet<_>>().len();
    if files > 1 {
        findings.push(Finding::warning(
            format!("{files} files are loaded, one for each name that was asked for"),
            "have both names lead to one file: gdrcopy doctor shows what they lead to",
        ));
    }
    findings
}

/// `gone`: the process has another file, which had this path.
fn library(file: &Path, seen: &Path, gone: bool) -> Finding {
    let value = format!("{} ({})", file.display(), Maker::of(seen).describe());
    match gone {
        false => Finding::ok(value),
        true if seen.exists() => Finding::warning(
            format!("{value} was replaced since the process loaded it"),
            "restart the process, which uses the new file then",
        ),
        true => Finding::warning(
            format!("{} was removed since the process loaded it", file.display()),
            "install libgdrapi again before the process is restarted",
        ),
    }
}

fn device(process: &Process) -> Finding {
    let emulated = if process.emulated { ", emulated by gdremu" } else { "" };
    match (process.descriptors, process.dma_bufs) {
        (0, 0) if process.libraries.is_empty() => Finding::ok(format!("{NODE} is not open")),
        (0, 0) => Finding::problem(
            format!("{NODE} is not open, and no dma-buf is mapped"),
            "start the program with GDRCOPY_ENABLE_LOGGING=1, which logs why gdr_open fails; if it \
             logs nothing, the program does not call it",
        ),
        (0, count) => Finding::ok(format!("{NODE} is not open, but {count} dma-bufs are mapped, by GDRCopy or others")),
        (count, _) => Finding::ok(format!("{NODE} is open{emulated}, {count} descriptors")),
    }
}
