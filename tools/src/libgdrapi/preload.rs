//! The objects with libgdrapi's functions that `gdrcopy trace` preloads, and the library to which they forward calls.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::search;

/// Returns the named library, or else the library that a program would get without the preloaded objects.
pub(crate) fn library(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(file) = named {
        let file = file.canonicalize().with_context(|| file.display().to_string())?;
        ensure!(
            search::contains(&file, search::MARK_OF_ALL),
            "{} is no libgdrapi, as it has no gdr_open",
            file.display()
        );
        return Ok(file);
    }
    let found = search::candidates().into_iter().find(|candidate| search::is_object(&candidate.file));
    let found = found.context("no libgdrapi found; name one with --lib, or put its directory on LD_LIBRARY_PATH")?;
    Ok(search::real(&found.file))
}

const FUNCTIONS: &str = "libgdrcopy_trace.so";
const PLAIN_NAME: &str = "libgdrcopy_trace_alias.so";
const NEWER: &str = "libgdrcopy_trace_newer.so";

/// Returns the value of LD_PRELOAD with the objects of `gdrcopy trace`. The objects get all calls of libgdrapi's
/// functions, except those that a libgdrapi makes itself.
///
/// If the library has functions that the objects lack, `links` is a directory for links. Through the links, the program
/// finds those functions in the library itself, by linking and by dlsym.
pub(crate) fn variable(library: &Path, links: Option<&Path>) -> Result<OsString> {
    let directory = find()?;
    let mut objects = vec![directory.join(FUNCTIONS), directory.join(PLAIN_NAME)];
    if let Some(links) = links {
        // The object `NEWER` depends on `FUNCTIONS` and libgdrapi_next.so. The loader looks for both in the directory
        // of the link to `NEWER`.
        symlink(directory.join(FUNCTIONS), links.join(FUNCTIONS))?;
        symlink(library, links.join("libgdrapi_next.so"))?;
        symlink(directory.join(NEWER), links.join(NEWER))?;
        objects.insert(0, links.join(NEWER));
    }
    for object in &objects {
        ensure!(
            !object.as_os_str().as_bytes().iter().any(|byte| b": $".contains(byte)),
            "{}: LD_PRELOAD cannot name a path with a blank, colon or dollar sign; install elsewhere, or set TMPDIR",
            object.display()
        );
    }
    let others = env::var_os("LD_PRELOAD").unwrap_or_default();
    let others = others.as_bytes().split(|byte| b": ".contains(byte));
    let mut files: Vec<_> = others.map(OsStr::from_bytes).collect();
    files.retain(|file| !file.is_empty());
    let libgdrapi = files.iter().position(|file| search::of_preloaded(file.into()).is_some());
    let place = libgdrapi.unwrap_or(files.len());
    files.splice(place..place, objects.iter().map(|object| object.as_os_str()));
    Ok(files.join(OsStr::new(":")))
}

/// Returns the directory of the objects to preload: this program's directory, or the one where they are installed.
fn find() -> Result<PathBuf> {
    let program = env::current_exe()?.canonicalize()?;
    let beside = program.parent().context("this program has no directory")?;
    for directory in [beside.to_owned(), beside.join("../lib/gdrcopy")] {
        if [FUNCTIONS, PLAIN_NAME, NEWER].iter().all(|name| directory.join(name).exists()) {
            return Ok(directory.canonicalize()?);
        }
    }
    bail!("{FUNCTIONS}, {PLAIN_NAME} or {NEWER} is missing: install them with this program, or run `make tools`");
}
