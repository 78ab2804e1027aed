//! Objects with libgdrapi's functions that `gdrcopy trace` and `gdrcopy checkpoint` preload, and the library below them.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::{has, search};

/// The library that a program would get without the object.
pub(crate) fn library(named: Option<&Path>) -> Result<PathBuf> {
    let found = match named {
        Some(file) => {
            let library = file.canonicalize().with_context(|| file.display().to_string())?;
            ensure!(
                has(&library, &["gdr_open"]) == [true],
                "{} is no libgdrapi, as it has no gdr_open",
                file.display()
            );
            Some(library)
        }
        None => search::candidates().into_iter().find_map(|it| search::implementation(&it.file)),
    };
    found.context("no libgdrapi found; name one with --lib, or put its directory on LD_LIBRARY_PATH")
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
    let directories = [beside.to_owned(), beside.join("../lib/gdrcopy")];
    let has_both = |directory: &&PathBuf| names.iter().all(|name| directory.join(name).exists());
    let Some(directory) = directories.iter().find(has_both) else {
        bail!("{} is missing: install it with this program, or run `make tools`", names.join(" or "));
    };
    let directory = directory.canonicalize()?;
    let separates = |byte: &u8| b": $".contains(byte);
    ensure!(
        !directory.as_os_str().as_bytes().iter().any(separates),
        "{}: LD_PRELOAD cannot name a path with a blank, colon or dollar sign; install elsewhere",
        directory.display()
    );
    let paths = names.map(|name| directory.join(name).into_os_string());
    Ok(paths.join(OsStr::new(":")))
}
