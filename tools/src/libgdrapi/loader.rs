//! Loads libgdrapi files. A process can load several of them, and they stay loaded.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};

use super::api::Api;
use super::search::{SONAME, beside_this_program};
use crate::system::process;

#[derive(Debug)]
pub(crate) struct Library {
    pub(super) api: Api,
    pub(crate) file: PathBuf,
}

/// Loads a file by its full path. For a name without a directory, the loader could return another file that it has
/// already loaded, and that has the name as its SONAME.
pub(crate) fn load(file: &Path) -> Result<&'static Library> {
    let name = file.display().to_string();
    let file = file.canonicalize().context(name.clone())?;
    let api = open(&file).context(name)?;
    Ok(Box::leak(Box::new(Library { api, file })))
}

/// Loads the library that programs linked with libgdrapi get from the loader, or else the one that
/// was built or installed with this program.
pub(crate) fn load_default() -> Result<&'static Library> {
    let mut library = load_by_name(SONAME);
    if library.is_err()
        && let Some(file) = beside_this_program()
    {
        library = load(&file);
    }
    library.context("no library found; name one with --lib, or put its directory on LD_LIBRARY_PATH")
}

/// Loads the library that the loader finds by a name without a directory.
pub(crate) fn load_by_name(name: &str) -> Result<&'static Library> {
    let api = open(Path::new(name))?;
    let function = api.open as usize as u64;
    let file = process::own_file(|object| (object.start..object.end).contains(&function));
    let file = file.unwrap_or(name.to_owned()).into();
    Ok(Box::leak(Box::new(Library { api, file })))
}

impl Library {
    /// Returns the library's release, or `None` if it is older than 2.0 and cannot report it.
    pub(crate) fn version(&self) -> Option<(c_int, c_int)> {
        let version = self.api.library_version?;
        let mut major = 0;
        let mut minor = 0;
        // SAFETY: both are local variables.
        unsafe { version(&mut major, &mut minor) };
        Some((major, minor))
    }
}

fn open(path: &Path) -> Result<Api> {
    // SAFETY: the user names a libgdrapi; its initializers have no requirements.
    let object = unsafe { Object::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
    // SAFETY: the user names a libgdrapi, and it is kept loaded.
    let api = unsafe { Api::new(&object) }?;
    std::mem::forget(object);
    Ok(api)
}
