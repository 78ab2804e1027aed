//! Lists the places where the dynamic loader looks for libgdrapi, in the order in which it looks.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsStr;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Component, Path, PathBuf};
use std::process::{Command, Stdio};

use crate::system::files;

/// The name of the place beside this program, where the tools look for a library, but the loader does not.
pub(crate) const BESIDE: &str = "its place beside gdrcopy";

/// The variable that lists the libraries which the loader loads first.
pub(crate) const PRELOADED: &str = "LD_PRELOAD";

/// The file that lists the libraries which the loader loads after those of LD_PRELOAD.
pub(crate) const PRELOADED_FILE: &str = "/etc/ld.so.preload";

/// The variable that lists the directories which the loader searches after it has loaded the preloaded libraries.
pub(crate) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The name by which the loader finds libgdrapi for programs that are linked with it, and for some that call dlopen.
pub(crate) const SONAME: &str = "libgdrapi.so.2";

/// The name without a version, which some programs pass to dlopen.
pub(crate) const PLAIN_NAME: &str = "libgdrapi.so";

const NAMES: [&str; 2] = [SONAME, PLAIN_NAME];

/// An object without functions, for LD_PRELOAD. It makes the loader also load libgdrapi.so from the object's directory.
pub(crate) const PRELOAD_OBJECT: &str = "libgdrapi-preload.so";

/// The directories that the loader searches last.
const DEFAULT_DIRECTORIES: [&str; 4] = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];

/// The name of an environment variable that only this project's library reads, so only its file contains this text.
const MARK_OF_OURS: &str = "GDRCOPY_ISA";

/// A symbol that only NVIDIA's library exports.
const MARK_OF_NVIDIAS: &str = "gdr_msg";

/// A symbol that every libgdrapi exports.
pub(crate) const MARK_OF_ALL: &str = "gdr_open";

const ELF: &[u8] = b"\x7fELF";

#[derive(Debug, PartialEq)]
pub(crate) struct Candidate {
    /// The place where the loader finds the file, such as LD_LIBRARY_PATH.
    pub(crate) place: &'static str,
    pub(crate) file: PathBuf,
}

/// Returns all files named libgdrapi.so.2 or libgdrapi.so in the loader's order, including links that lead nowhere.
/// Paths that are built into programs (RUNPATH) are unknown; the loader searches them before its cache.
pub(crate) fn candidates() -> Vec<Candidate> {
    let mut places = Vec::new();
    for Preload { file, line } in preloads() {
        let place = if line.is_some() { PRELOADED_FILE } else { PRELOADED };
        places.push((place, Vec::from_iter(of_preloaded(file))));
    }
    places.extend(searched(&NAMES));
    if places.iter().all(|(_, files)| files.iter().all(|file| !file.exists())) {
        places.push((BESIDE, Vec::from_iter(beside_this_program())));
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for (place, files) in places {
        for file in files {
            let is_new = candidates.iter().all(|other| real(&other.file) != real(&file));
            // A link that leads nowhere is listed so that doctor reports it, although the loader may pass over it.
            if is_new && file.symlink_metadata().is_ok() {
                candidates.push(Candidate { place, file });
            }
        }
    }
    candidates
}

/// Returns the file that the loader chooses for a name without a directory. Loading this file may still fail.
pub(crate) fn first(name: &str) -> Option<PathBuf> {
    for candidate in candidates() {
        let mut file = candidate.file.with_file_name(name);
        if real(&file) == real(&candidate.file) {
            file = candidate.file;
        }
        if candidate.place != BESIDE && !is_passed_over(&file) {
            return Some(file);
        }
    }
    None
}

/// Returns whether the loader ignores this file and goes on to the next directory. At errors other than `NotFound` and
/// `PermissionDenied`, the loader ends its search.
fn is_passed_over(file: &Path) -> bool {
    match file.metadata() {
        Ok(_) => is_foreign(file),
        Err(error) => [ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&error.kind()),
    }
}

/// The project that made a library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Maker {
    This,
    Nvidia,
    Other,
    /// The file is not a library.
    None,
}

impl Maker {
    /// Finds the maker by the file's content.
    pub(crate) fn of(file: &Path) -> Maker {
        match file {
            _ if !is_object(file) => Maker::None,
            _ if contains(file, MARK_OF_OURS) => Maker::This,
            _ if contains(file, MARK_OF_NVIDIAS) => Maker::Nvidia,
            _ => Maker::Other,
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Maker::This => "this project's",
            Maker::Nvidia => "NVIDIA's",
            Maker::Other => "another one",
            Maker::None => "no library",
        }
    }
}

pub(crate) fn contains(file: &Path, mark: &str) -> bool {
    files::lossy(file).contains(mark)
}

pub(crate) fn is_object(file: &Path) -> bool {
    files::bytes(file).is_ok_and(|bytes| bytes.starts_with(ELF))
}

/// Returns whether the loader skips this library because it is for another kind of CPU.
pub(crate) fn is_foreign(file: &Path) -> bool {
    let Some(kind) = kind(file) else { return false };
    env::current_exe().is_ok_and(|program| self::kind(&program) != Some(kind))
}

/// Returns the class and e_machine of an ELF file.
fn kind(file: &Path) -> Option<[u8; 3]> {
    let mut header = [0; 20];
    files::open(file).ok()?.read_exact(&mut header).ok()?;
    if header.starts_with(ELF) { Some([header[4], header[18], header[19]]) } else { None }
}

/// Returns the file behind all links, or the link itself if it leads nowhere.
pub(crate) fn real(file: &Path) -> PathBuf {
    let directory = file.parent().and_then(|directory| directory.canonicalize().ok());
    let itself = directory.unwrap_or_default().join(file.file_name().unwrap_or_default());
    file.canonicalize().unwrap_or(itself)
}

/// Returns the library that was installed, or built by `make lib`, with this program.
pub(crate) fn beside_this_program() -> Option<PathBuf> {
    let program = env::current_exe().ok()?.canonicalize().ok()?;
    let triplet = format!("../lib/{}-linux-gnu", env::consts::ARCH);
    // The first three are for a program in PREFIX/bin, the last is for one in build/tools/bin.
    for directory in ["../lib", "../lib64", &triplet, "../../lib"] {
        if let Ok(directory) = program.parent()?.join(directory).canonicalize()
            && directory.join(SONAME).exists()
        {
            return Some(directory.join(SONAME));
        }
    }
    None
}

/// A file that the loader puts into programs before their own libraries.
#[derive(Debug, PartialEq)]
pub(crate) struct Preload {
    pub(crate) file: PathBuf,
    /// The number of the line in /etc/ld.so.preload that names the file; `None` if LD_PRELOAD names it.
    pub(crate) line: Option<usize>,
}

/// Returns the preloaded files in the loader's order.
pub(crate) fn preloads() -> Vec<Preload> {
    let mut preloads = Vec::new();
    for file in paths(PRELOADED, b": ") {
        preloads.push(Preload { file, line: None });
    }
    for (index, text) in files::lossy(Path::new(PRELOADED_FILE)).lines().enumerate() {
        let listed = text.split('#').next().unwrap_or_default();
        for file in listed.split([':', ' ', '\t']) {
            preloads.push(Preload { file: file.into(), line: Some(index + 1) });
        }
    }
    preloads.retain(|preload| !preload.file.as_os_str().is_empty());
    preloads
}

/// Returns the libgdrapi that a preloaded file brings: the file itself or, for libgdrapi-preload.so, libgdrapi.so
/// beside it.
pub(crate) fn of_preloaded(file: PathBuf) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?;
    match name {
        PRELOAD_OBJECT => Some(file.with_file_name(PLAIN_NAME)),
        name if name.starts_with(PLAIN_NAME) => Some(file),
        _ => None,
    }
}

/// Returns the library to which a wrong entry of LD_LIBRARY_PATH was meant to lead. Such an entry names a file instead
/// of its directory, or begins with a ~ that no shell has replaced.
pub(crate) fn meant() -> Option<PathBuf> {
    let home = PathBuf::from(env::var_os("HOME")?);
    for entry in paths(LIBRARY_PATH, b":;") {
        let directory = match entry.strip_prefix("~") {
            Ok(rest) => home.join(rest),
            Err(_) if entry.is_file() => entry.parent()?.into(),
            Err(_) => continue,
        };
        let files = names_in(&[directory], &NAMES);
        if let Some(file) = files.into_iter().find(|file| file.exists()) {
            return Some(file);
        }
    }
    None
}

/// Returns a directory that this user may not search: one in which the loader looks for libgdrapi, or one above it.
pub(crate) fn closed() -> Option<PathBuf> {
    for file in searched(&NAMES).map(|(_, files)| files).concat() {
        if file.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
            return file.ancestors().skip(1).find(|directory| directory.exists()).map(Path::to_owned);
        }
    }
    None
}

/// Follows the links of a path that cannot be opened. Returns the last link to the file itself (links to its
/// directories do not count), and the deepest directory that exists on the path of that link's target. If the links
/// form a loop, returns the path and its directory.
pub(crate) fn end_of_links(file: &Path) -> (PathBuf, PathBuf) {
    const MOST_LINKS: usize = 40;
    let file = path::absolute(file).unwrap_or(file.into());
    let mut link = file.clone();
    let mut rest = file.clone();
    for _ in 0..MOST_LINKS {
        let directory = rest.ancestors().skip(1).find(|directory| directory.exists()).unwrap_or(Path::new("/"));
        let mut names = rest.strip_prefix(directory).unwrap_or(&rest).components();
        let next = directory.join(names.next().map(Component::as_os_str).unwrap_or_default());
        let Ok(target) = next.read_link() else { return (link, directory.into()) };
        let below = names.as_path();
        if below.as_os_str().is_empty() {
            link = next;
            rest = directory.join(target);
        } else {
            rest = directory.join(target).join(below);
        }
    }
    (file.clone(), file.parent().unwrap_or(&file).into())
}

/// Returns the files that the loader tries for these names, grouped by place, in the loader's order. An empty entry of
/// LD_LIBRARY_PATH is the current directory.
fn searched(names: &[&str]) -> [(&'static str, Vec<PathBuf>); 3] {
    let triplet = format!("{}-linux-gnu", env::consts::ARCH);
    let defaults = DEFAULT_DIRECTORIES.map(|directory| [Path::new(directory).join(&triplet), directory.into()]);
    [
        (LIBRARY_PATH, names_in(&paths(LIBRARY_PATH, b":;"), names)),
        ("the loader's cache", cached(names)),
        ("a default directory", names_in(defaults.as_flattened(), names)),
    ]
}

/// Returns the paths in an environment variable. They need not be UTF-8.
fn paths(variable: &str, separators: &[u8]) -> Vec<PathBuf> {
    let list = env::var_os(variable).unwrap_or_default();
    if list.is_empty() {
        return Vec::new();
    }
    let entries = list.as_bytes().split(|byte| separators.contains(byte));
    entries.map(|path| OsStr::from_bytes(path).into()).collect()
}

/// Returns the files of these names in these directories, whether they exist or not.
fn names_in(directories: &[PathBuf], names: &[&str]) -> Vec<PathBuf> {
    directories.iter().flat_map(|directory| names.iter().map(|name| directory.join(name))).collect()
}

/// Returns the file that the loader finds by the name of a library other than libgdrapi.
pub(crate) fn file_of(name: &str) -> Option<PathBuf> {
    let places = searched(&[name]).map(|(_, files)| files);
    places.concat().into_iter().find(|file| file.exists())
}

fn cached(names: &[&str]) -> Vec<PathBuf> {
    // Not every user has ldconfig on the PATH, so its usual places are tried first.
    let mut files = Vec::new();
    for ldconfig in ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"] {
        // stderr is no pipe: with two pipes, output() calls ioctl, and panics in a sandbox that refuses it.
        if let Ok(listing) = Command::new(ldconfig).arg("-p").stderr(Stdio::null()).output() {
            files.extend(String::from_utf8_lossy(&listing.stdout).lines().filter_map(|line| of_listing(line, names)));
            break;
        }
    }
    files
}

/// Returns the file in a line `NAME (KIND) => FILE` of `ldconfig -p`, if the line is for one of these names.
fn of_listing(line: &str, names: &[&str]) -> Option<PathBuf> {
    let (entry, file) = line.split_once(" => ")?;
    let (name, kind) = entry.trim_start().split_once(' ')?;
    let foreign = cfg!(target_arch = "x86_64") && !kind.contains("x86-64");
    if names.contains(&name) && !foreign { Some(file.into()) } else { None }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn preload_object_brings_the_library_beside_it() {
        let brought = |file: &str| of_preloaded(file.into());
        assert_eq!(brought("/a/libgdrapi-preload.so"), Some("/a/libgdrapi.so".into()));
        assert_eq!(brought("/a/libgdrapi.so.2"), Some("/a/libgdrapi.so.2".into()));
        assert_eq!(brought("/a/libother.so"), None);
    }

    #[test]
    fn maker_is_known_by_the_content() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (content, maker) in [
            ("\x7fELF…GDRCOPY_ISA\0", Maker::This),
            ("\x7fELF…gdr_msg\0", Maker::Nvidia),
            ("\x7fELF…", Maker::Other),
            ("GDRCOPY_ISA", Maker::None),
            ("", Maker::None),
        ] {
            fs::write(&file, content).unwrap();
            assert_eq!(Maker::of(file.path()), maker, "{content}");
        }
    }

    #[test]
    fn cache_entries_match_the_whole_name() {
        let line = "\tlibgdrapi.so.2 (libc6,x86-64) => /usr/lib/libgdrapi.so.2";
        assert_eq!(of_listing(line, &NAMES), Some("/usr/lib/libgdrapi.so.2".into()));
        let other = "\tlibgdrapi.so.20 (libc6,x86-64) => /usr/lib/libgdrapi.so.20";
        assert_eq!(of_listing(other, &NAMES), None);
        assert_eq!(of_listing("62 libs found in cache `/etc/ld.so.cache'", &NAMES), None);
    }
}
