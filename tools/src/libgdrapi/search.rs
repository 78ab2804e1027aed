//! Where the dynamic loader looks for libgdrapi, in its order.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::loader::beside_this_program;

/// The place of a library that only the tools find.
pub(crate) const BESIDE: &str = "its place beside gdrcopy";

/// The name that programs ask for.
pub(crate) const SONAME: &str = "libgdrapi.so.2";

/// The empty object for LD_PRELOAD, which needs the library beside it.
pub(crate) const PRELOAD_OBJECT: &str = "libgdrapi-preload.so";

/// The directories that the loader searches last.
const DEFAULT_DIRECTORIES: [&str; 4] = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];

/// The name of an environment variable that only this project's library reads.
const MARK_OF_OURS: &[u8] = b"GDRCOPY_ISA";

/// A libgdrapi that the loader could choose.
#[derive(Debug, PartialEq)]
pub(crate) struct Candidate {
    /// Why the loader finds it.
    pub(crate) place: &'static str,
    pub(crate) file: PathBuf,
}

/// All existing ones, in the loader's order. Paths that are built into programs (RUNPATH), which come
/// before the loader's cache, are unknown.
pub(crate) fn candidates() -> Vec<Candidate> {
    let found = |place| move |file: PathBuf| Candidate { place, file };
    let mut all = Vec::new();
    all.extend(preloaded().map(found("LD_PRELOAD")));
    all.extend(library_path().map(found("LD_LIBRARY_PATH")));
    all.extend(cached().into_iter().map(found("the loader's cache")));
    all.extend(default_directories().map(found("a default directory")));
    if all.iter().all(|candidate| !candidate.file.exists()) {
        all.extend(beside_this_program().map(found(BESIDE)));
    }
    let mut seen = Vec::new();
    all.retain(|candidate| {
        let file = real(&candidate.file);
        let is_new = file.exists() && !seen.contains(&file);
        seen.push(file);
        is_new
    });
    all
}

/// Whether a file is this project's library.
pub(crate) fn is_ours(file: &Path) -> bool {
    fs::read(file)
        .is_ok_and(|bytes| bytes.windows(MARK_OF_OURS.len()).any(|window| window == MARK_OF_OURS))
}

/// The file behind all links.
pub(crate) fn real(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

fn preloaded() -> impl Iterator<Item = PathBuf> {
    let list = env::var("LD_PRELOAD").unwrap_or_default();
    let files: Vec<PathBuf> = list.split([':', ' ']).map(PathBuf::from).collect();
    files.into_iter().filter_map(of_preloaded)
}

/// The library that a preloaded file brings.
fn of_preloaded(file: PathBuf) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?;
    match name {
        PRELOAD_OBJECT => Some(file.with_file_name("libgdrapi.so")),
        name => name.starts_with("libgdrapi.so").then_some(file),
    }
}

fn library_path() -> impl Iterator<Item = PathBuf> {
    let list = env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let directories = match list.as_str() {
        "" => Vec::new(),
        list => list.split([':', ';']).map(PathBuf::from).collect(),
    };
    // An empty entry is the current directory, as for the loader.
    directories.into_iter().map(|directory| directory.join(SONAME))
}

fn cached() -> Vec<PathBuf> {
    // Not every user has it on the PATH.
    let listing = ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"]
        .iter()
        .find_map(|ldconfig| Command::new(ldconfig).arg("-p").output().ok());
    let listing = listing.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&listing).lines().filter_map(of_listing).collect()
}

/// The file of a line `NAME (KIND) => FILE` for our name.
fn of_listing(line: &str) -> Option<PathBuf> {
    let (entry, file) = line.split_once(" => ")?;
    let (name, kind) = entry.trim_start().split_once(' ')?;
    let foreign = cfg!(target_arch = "x86_64") && !kind.contains("x86-64");
    (name == SONAME && !foreign).then(|| file.into())
}

fn default_directories() -> impl Iterator<Item = PathBuf> {
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    DEFAULT_DIRECTORIES.iter().flat_map(move |directory| {
        let directory = Path::new(directory);
        [directory.join(&triplet).join(SONAME), directory.join(SONAME)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_object_brings_the_library_beside_it() {
        let brought = |file: &str| of_preloaded(file.into());
        assert_eq!(brought("/a/libgdrapi-preload.so"), Some("/a/libgdrapi.so".into()));
        assert_eq!(brought("/a/libgdrapi.so.2"), Some("/a/libgdrapi.so.2".into()));
        assert_eq!(brought("/a/libother.so"), None);
    }

    #[test]
    fn cache_entries_match_the_whole_name() {
        let line = "\tlibgdrapi.so.2 (libc6,x86-64) => /usr/lib/libgdrapi.so.2";
        assert_eq!(of_listing(line), Some("/usr/lib/libgdrapi.so.2".into()));
        let other = "\tlibgdrapi.so.20 (libc6,x86-64) => /usr/lib/libgdrapi.so.20";
        assert_eq!(of_listing(other), None);
        assert_eq!(of_listing("62 libs found in cache `/etc/ld.so.cache'"), None);
    }
}
