//! Loads libgdrapi files, several into one process.
//!
//! The loader takes two files for one object if they are the same inode, and by SONAME if they are
//! named without a directory. So each is loaded by its full path, and a file that was loaded before from
//! a copy of its own. They are never unloaded.

use std::collections::HashSet;
use std::ffi::c_int;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};
use tempfile::TempPath;

use super::api::Api;
use super::search::{SONAME, beside_this_program};
use crate::system::process;

#[derive(Debug)]
pub(crate) struct Library {
    pub(super) api: Api,
    pub(crate) file: PathBuf,
}

/// Loads libraries, each as an object of its own.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    files: HashSet<(u64, u64)>,
}

impl Loader {
    pub(crate) fn load(&mut self, file: &Path) -> Result<&'static Library> {
        let name = file.display().to_string();
        let file = file.canonicalize().context(name.clone())?;
        let metadata = fs::metadata(&file).context(name.clone())?;
        let is_new = self.files.insert((metadata.dev(), metadata.ino()));
        let copy = if is_new { None } else { Some(copy_of(&file)?) };
        let api = open(copy.as_deref().unwrap_or(&file)).context(name)?;
        Ok(Box::leak(Box::new(Library { api, file })))
    }

    /// Loads the library that programs linked with libgdrapi get from the loader, or else the one that
    /// was built or installed with this program.
    pub(crate) fn load_default(&mut self) -> Result<&'static Library> {
        let mut library = load_by_name(SONAME);
        if library.is_err()
            && let Some(file) = beside_this_program()
        {
            library = self.load(&file);
        }
        library.context("no library found; name one with --lib, or put its directory on LD_LIBRARY_PATH")
    }
}

/// Loads what the loader finds by a name without a directory.
pub(crate) fn load_by_name(name: &str) -> Result<&'static Library> {
    let api = open(Path::new(name))?;
    let function = api.open as usize as u64;
    let file = process::own_file(|object| (object.start..object.end).contains(&function));
    let file = file.unwrap_or(name.to_owned()).into();
    Ok(Box::leak(Box::new(Library { api, file })))
}

impl Library {
    /// Its release; none before 2.0.
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
    // SAFETY: as above, and it is kept loaded.
    let api = unsafe { Api::new(&object) }?;
    std::mem::forget(object);
    Ok(api)
}

/// A copy that can be removed as soon as it is loaded.
fn copy_of(file: &Path) -> Result<TempPath> {
    let copy = tempfile::Builder::new().prefix("libgdrapi-").tempfile()?.into_temp_path();
    fs::copy(file, &copy).with_context(|| format!("copying {}", file.display()))?;
    Ok(copy)
}
