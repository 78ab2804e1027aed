//! The objects with libgdrapi's functions that `gdrcopy trace` preloads, and the library below them.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::search;

/// The library that a program would get without the object.
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

/// LD_PRELOAD with these objects, which get the calls of all but a libgdrapi.
pub(crate) fn variable(objects: [&str; 2]) -> Result<OsString> {
    let object = find(objects)?;
    let others = env::var_os("LD_PRELOAD").unwrap_or_default();
    let others = others.as_bytes().split(|byte| b": ".contains(byte)).filter(|file| !file.is_empty());
    let mut files: Vec<_> = others.map(OsStr::from_bytes).collect();
    let libgdrapi = files.iter().position(|file| search::of_preloaded(file.into()).is_some());
    files.insert(libgdrapi.unwrap_or(files.len()), &object);
    Ok(files.join(OsStr::new(":")))
}

/// Both objects, beside this program or where they are installed.
fn find(names: [&str; 2]) -> Result<OsString> {
    let program = env::current_exe()?.canonicalize()?;
    let beside = program.parent().context("this program has no directory")?;
    for directory in [beside.to_owned(), beside.join("../lib/gdrcopy")] {
        let paths = names.map(|name| directory.join(name));
        if !paths.iter().all(|path| path.exists()) {
            continue;
        }
        let directory = directory.canonicalize()?;
        ensure!(
            !directory.as_os_str().as_bytes().iter().any(|byte| b": $".contains(byte)),
            "{}: LD_PRELOAD cannot name a path with a blank, colon or dollar sign; install elsewhere",
            directory.display()
        );
        let paths = names.map(|name| directory.join(name).into_os_string());
        return Ok(paths.join(OsStr::new(":")));
    }
    bail!("{} is missing: install it with this program, or run `make tools`", names.join(" or "));
}
