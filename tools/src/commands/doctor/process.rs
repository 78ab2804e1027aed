//! `--pid`: what a running process has of GDRCopy.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Result, anyhow};

use super::libraries::Environment;
use super::remedies::Remedy;
use super::report::{Finding, bytes, count};
use crate::libgdrapi::search::{self, Maker};
use crate::system::gdrdrv::NODE;
use crate::system::process::{self, Process};

/// The process and the variables that it was started with. Errors say what to do.
pub(super) fn examine(pid: u32) -> Result<(Process, Environment)> {
    let examined = process::examine(pid).and_then(|process| Ok((process, process::environment(pid)?)));
    examined.map_err(|error: io::Error| match error.kind() {
        ErrorKind::NotFound => anyhow!("there is no process {pid} here: `gdrcopy ps` lists those that use GDRCopy"),
        ErrorKind::PermissionDenied => {
            anyhow!("process {pid} may not be examined: run this as root, or as the user of the process")
        }
        _ => anyhow!("process {pid}: {error}: it may have ended; `gdrcopy ps` lists those that use GDRCopy"),
    })
}

pub(super) fn findings(process: &Process) -> Vec<Finding> {
    let mut findings = libraries(process);
    findings.push(device(process));
    if process.mappings > 0 {
        let mappings = count(process.mappings, "mapping", "mappings");
        findings.push(Finding::ok("mapped", format!("{} in {mappings}", bytes(process.mapped as u64))));
    }
    findings
}

fn libraries(process: &Process) -> Vec<Finding> {
    const SUBJECT: &str = "libgdrapi";
    if process.libraries.is_empty() {
        let value = "none is mapped: the process did not load one, or is linked with the static one";
        return vec![Finding::problem(SUBJECT, value, Remedy::ProcessNone)];
    }
    let (mut findings, mut implementations) = (Vec::new(), BTreeSet::new());
    for mapped in &process.libraries {
        // The kernel's mark of a file that is no longer there. Another one can have its path.
        let path = mapped.as_os_str().as_bytes();
        let gone = path.strip_suffix(b" (deleted)");
        let file = PathBuf::from(OsStr::from_bytes(gone.unwrap_or(path)));
        // The process may be in a container.
        let seen = PathBuf::from(format!("/proc/{}/root{}", process.pid, file.display()));
        let value = format!("{} ({})", file.display(), Maker::of(&seen).describe());
        findings.push(match (gone, seen.exists()) {
            (None, _) => Finding::ok(SUBJECT, value),
            (Some(_), true) => {
                Finding::warning(SUBJECT, format!("{value} was replaced since then"), Remedy::ProcessRestart)
            }
            (Some(_), false) => {
                let value = format!("{} was removed since then", file.display());
                Finding::warning(SUBJECT, value, Remedy::ProcessRemoved)
            }
        });
        // Without the empty objects that are loaded for their names.
        implementations.insert(search::implementation(&seen).unwrap_or(file));
    }
    if implementations.len() > 1 {
        let value = format!("{} files are loaded, one for each name that was asked for", implementations.len());
        findings.push(Finding::warning(SUBJECT, value, Remedy::ProcessNames));
    }
    findings
}

fn device(process: &Process) -> Finding {
    const SUBJECT: &str = "device";
    let emulated = if process.emulated { ", emulated by gdremu" } else { "" };
    match (process.descriptors, process.dma_bufs) {
        (0, 0) if process.libraries.is_empty() => Finding::ok(SUBJECT, format!("{NODE} is not open")),
        (0, 0) => {
            let value = format!("{NODE} is not open, and no dma-buf is mapped");
            Finding::problem(SUBJECT, value, Remedy::ProcessClosed)
        }
        (0, number) => {
            let dma_bufs = count(number, "dma-buf is", "dma-bufs are");
            Finding::ok(SUBJECT, format!("{NODE} is not open, but {dma_bufs} mapped, by GDRCopy or others"))
        }
        (number, _) => {
            let descriptors = count(number, "descriptor", "descriptors");
            Finding::ok(SUBJECT, format!("{NODE} is open{emulated}, {descriptors}"))
        }
    }
}
