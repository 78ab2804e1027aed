//! Finds out which library a program gets if it loads libgdrapi, by each of the names that libgdrapi can have.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use gdrcopy::Version;
use gdrcopy_core::variables;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::statvfs::{FsFlags, statvfs};

use super::probe::{self, Failure, Kind, Loaded};
use super::remedies::{Advice, Remedy};
use super::report::Finding;
use crate::libgdrapi::search::{self, Candidate, Maker, PLAIN_NAME, Preload, SONAME};
use crate::system::files;

/// Environment variables and their values.
pub(super) type Environment = BTreeMap<String, String>;

pub(super) fn findings(asked_for: Option<&Path>, environment: &Environment) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Candidate { place, file } in &search::candidates() {
        let maker = Maker::of(file);
        let what = match unread(file) {
            Some(errno) => errno.desc(),
            None => maker.describe(),
        };
        let value = format!("{} ({what}), by {place}", file.display());
        findings.push(match maker {
            Maker::None => Finding::warning("on the path", value, repair(file, &Failure::default())),
            _ => Finding::ok("on the path", value),
        });
    }
    match asked_for {
        Some(file) => findings.push(match load(Path::new(".").join(file)) {
            Ok(library) => Finding::ok("--lib", describe(&library)),
            Err(why) => why.finding("--lib", unusable(&Path::new(".").join(file), &why)),
        }),
        None => findings.extend(by_name()),
    }
    for (name, value) in environment {
        if name.starts_with("GDRCOPY_") {
            findings.push(setting(name, value));
        }
    }
    findings.extend(preloaded());
    findings
}

/// Loads a library in a child process. Returns its file and version, or why it cannot be loaded.
pub(super) fn load(library: impl AsRef<Path>) -> Result<Loaded, Failure> {
    let answer = probe::test(library.as_ref(), None);
    // The child reports the library once it is loaded. If the child crashes later, while it exits, the library still
    // counts as loaded here.
    match answer.library {
        Some(library) => Ok(library),
        None => Err(answer.failure.unwrap_or_default()),
    }
}

/// Returns a text with a library's file, the project that made it, and its version.
pub(super) fn describe(library: &Loaded) -> String {
    let version = match library.release() {
        Some(version) => version.to_string(),
        None => "no version".to_owned(),
    };
    format!("{} ({}, {version})", library.file.display(), Maker::of(&library.file).describe())
}

/// Returns the remedy for a library that cannot be loaded. `library` is its file, or a name that the loader searches
/// for.
pub(super) fn unusable(library: &Path, why: &Failure) -> Advice {
    let name = library.to_string_lossy();
    if !name.contains('/') {
        return missing(&name);
    }
    let is_closed = !matches!(unread(library), None | Some(Errno::ENOENT));
    if is_closed || search::is_object(library) && !search::is_foreign(library) {
        return repair(library, why);
    }
    Remedy::LibraryName.into()
}

/// Returns the remedy for a library that the loader cannot load by this name.
pub(super) fn missing(name: &str) -> Advice {
    if let Some((file, why)) = broken(name) {
        return repair(&file, &why);
    }
    let other = if name == SONAME { PLAIN_NAME } else { SONAME };
    if let Ok(library) = load(other) {
        return add_link(name, &library.file);
    }
    if let Some(beside) = search::beside_this_program() {
        return find_in(&beside);
    }
    if let Some(foreign) = search::candidates().iter().find(|candidate| search::is_foreign(&candidate.file)) {
        return Remedy::LibraryCpu.with("file", foreign.file.display()).with("arch", env::consts::ARCH);
    }
    if let Some(meant) = search::meant() {
        return find_in(&meant);
    }
    match search::closed() {
        Some(directory) => Remedy::LibraryClosed.with("file", name).with("directory", directory.display()),
        None => Remedy::LibraryInstall.into(),
    }
}

/// Returns the file that keeps the loader from loading a library by this name, and the reason. It is the first file
/// that the loader finds, or a link whose target does not open.
fn broken(name: &str) -> Option<(PathBuf, Failure)> {
    if let Some(first) = search::first(name) {
        let why = load(&first).err()?;
        return Some((first, why));
    }
    let mut candidates = search::candidates().into_iter();
    let dangling = candidates.find(|candidate| is_dangling(&candidate.file) && candidate.file.ends_with(name))?;
    Some((dangling.file, Failure::default()))
}

/// Returns whether this is a link whose target does not exist, or cannot be reached by this user.
fn is_dangling(file: &Path) -> bool {
    file.is_symlink() && !file.exists()
}

/// Returns whether a file can be read, but is no library. For example, zip, object stores, and git without
/// core.symlinks turn a link into a text file with the name of the link's target.
fn is_text(file: &Path) -> bool {
    file.is_file() && unread(file).is_none() && Maker::of(file) == Maker::None
}

/// Returns the error with which Linux refuses to read a file, if it does.
fn unread(file: &Path) -> Option<Errno> {
    Some(Errno::from_raw(files::bytes(file).err()?.raw_os_error()?))
}

/// Returns the remedy for a file that does not exist, or that this user cannot reach. The file is often a link. The
/// remedy removes a link only if this user can see that it leads nowhere.
fn unreached(file: &Path, errno: Errno) -> Advice {
    let (link, directory) = search::end_of_links(file);
    if errno == Errno::EACCES {
        return Remedy::LibraryClosed.with("file", link.display()).with("directory", directory.display());
    }
    if let Some(newest) = newest_beside(&link) {
        let advice = Remedy::LibraryRelink.with("link", link.display()).with("reason", errno.desc());
        return advice.with("target", newest.display());
    }
    let remedy = match errno {
        Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => Remedy::LibraryDangling,
        _ => Remedy::LibraryUnread,
    };
    let target = link.read_link().unwrap_or_default();
    remedy.with("file", link.display()).with("target", target.display()).with("reason", errno.desc())
}

/// Returns the name of the newest library in the directory of a link, if one there can be loaded.
fn newest_beside(link: &Path) -> Option<PathBuf> {
    let mut newest = (None, None);
    for file in files::matching(link.parent()?, PLAIN_NAME) {
        let Ok(library) = load(&file) else { continue };
        if library.release() >= newest.0 {
            newest = (library.release(), Some(file));
        }
    }
    Some(newest.1?.file_name()?.into())
}

/// Returns the remedy for a library that makes its process die or hang.
pub(super) fn faulty(kind: &Kind) -> Remedy {
    match kind {
        Kind::Died(signal) if *signal == Signal::SIGKILL as i32 => Remedy::DoctorStart,
        // SIGILL means that the file was built for another CPU.
        Kind::Died(signal) if *signal == Signal::SIGILL as i32 => Remedy::LibraryBuild,
        _ => Remedy::LibraryOther,
    }
}

/// Returns the remedy for a file that cannot be loaded for this reason.
fn repair(file: &Path, why: &Failure) -> Advice {
    let shown = file.display();
    let errno = unread(file);
    if let Some(errno) = errno
        && !file.exists()
    {
        return unreached(file, errno);
    }
    if is_text(file)
        && let Some(newest) = newest_beside(file)
    {
        let both = [SONAME, PLAIN_NAME].map(|name| file.with_file_name(name));
        let target = newest.display();
        if both.iter().all(|name| is_text(name)) {
            let [soname, plain] = both.each_ref().map(|name| name.display());
            return Remedy::LibraryRelinkBoth.with("soname", soname).with("plain", plain).with("target", target);
        }
        return Remedy::LibraryRelink.with("link", shown).with("target", target).with("reason", "a text, not a link");
    }
    // In the loader's message, the name of the missing file comes last, after those of the files that need it.
    let mut needed = "";
    if let Some((before, _)) = why.text.split_once(": cannot open shared object file") {
        needed = before.rsplit(": ").next().unwrap_or_default();
    }
    let remedy = match &why.kind {
        Kind::NotStarted => Remedy::DoctorStart,
        _ if errno == Some(Errno::EACCES) => Remedy::LibraryReadable,
        _ if errno.is_some() => Remedy::LibraryUnread,
        // If the C library itself is missing, the file is for another distribution. Adding a C library would not help.
        _ if !needed.is_empty() && !needed.starts_with("libc.") => Remedy::LibraryNeeds,
        _ if Maker::of(file) == Maker::None => Remedy::LibraryRemove,
        // SIGBUS means that the file is truncated, so that pages of it cannot be read.
        Kind::Died(signal) if *signal == Signal::SIGBUS as i32 => Remedy::LibraryBuild,
        kind @ (Kind::Died(_) | Kind::Hung) => faulty(kind),
        _ if statvfs(file).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NOEXEC)) => Remedy::LibraryNoexec,
        // The file has gdr_open, but not another function, so it is an old libgdrapi.
        _ if why.text.contains("undefined symbol: gdr_") && !why.text.ends_with("gdr_open") => Remedy::LibraryUpdate,
        _ => Remedy::LibraryBuild,
    };
    let reason = match errno {
        Some(errno) => errno.desc(),
        None => &why.text,
    };
    let remedy = remedy.with("needed", needed).with("oldest", Version::OLDEST_GDRDRV);
    remedy.with("file", shown).with("mount", files::mount_of(&search::real(file))).with("reason", reason)
}

/// Returns the findings about the libraries that the loader finds as libgdrapi.so.2 and as libgdrapi.so. These
/// can be two different files, because the loader searches its path for each name separately.
fn by_name() -> Vec<Finding> {
    let soname = load(SONAME);
    let plain = load(PLAIN_NAME);
    if let (Err(why), Err(_)) = (&soname, &plain) {
        return vec![why.finding(SONAME, missing(if broken(SONAME).is_some() { SONAME } else { PLAIN_NAME }))];
    }
    let mut findings = Vec::new();
    for (name, library, users) in [
        (SONAME, &soname, "UCX, NVSHMEM and linked programs ask for it"),
        (PLAIN_NAME, &plain, "NCCL, DPDK, aws-ofi-nccl and TensorRT-LLM open it"),
    ] {
        findings.push(match library {
            Ok(library) => match newer_first(name, library) {
                Some(advice) => {
                    Finding::warning(name, format!("{}, and a newer one is behind it", describe(library)), advice)
                }
                None => Finding::ok(name, describe(library)),
            },
            Err(why) => Failure { text: format!("{users}: {}", why.text), ..why.clone() }
                .finding(name, missing(name))
                .only_if(false),
        });
    }
    if let (Ok(soname), Ok(plain)) = (soname, plain)
        && search::real(&soname.file) != search::real(&plain.file)
    {
        let value = format!("{SONAME} and {PLAIN_NAME} lead to different files");
        // A link beside a preloaded library would not help, because the loader need not search that directory.
        let mut preloads = search::preloads().into_iter();
        let advice = match preloads.find(|preload| search::real(&preload.file) == search::real(&soname.file)) {
            Some(preload) => without(&preload),
            None => add_link(PLAIN_NAME, &soname.file),
        };
        findings.push(Finding::warning("names", value, advice));
    }
    findings
}

/// Returns the advice that makes a name lead to this file: to add a link or, if the link exists already, to add its
/// directory to the loader's path.
fn add_link(name: &str, file: &Path) -> Advice {
    // If the loader found the file through a link, the new link belongs in the directory of that link.
    let candidates = search::candidates();
    let mut as_found = file;
    if let Some(candidate) = candidates.iter().find(|other| search::real(&other.file) == search::real(file)) {
        as_found = &candidate.file;
    }
    let file = as_found;
    let link = file.with_file_name(name);
    if search::real(&link) == search::real(file) {
        return find_in(file);
    }
    let target = Path::new(file.file_name().unwrap_or_default());
    Remedy::LibraryLink.with("target", target.display()).with("link", link.display())
}

/// Returns the advice to add this file's directory to the loader's path.
fn find_in(file: &Path) -> Advice {
    Remedy::LibraryPath.with("directory", file.parent().unwrap_or(Path::new("/")).display())
}

/// Variables that only other software reads: build systems, container runtimes, DPDK.
const OF_OTHERS: [&str; 6] =
    ["GDRCOPY_ENABLED", "GDRCOPY_HOME", "GDRCOPY_LIBDIR", "GDRCOPY_LIBRARY_PATH", "GDRCOPY_PATH_L", "GDRCOPY_ROOT_DIR"];

/// Returns warnings about preloaded files that cannot be opened, or that hide the libgdrapi that programs should load.
pub(super) fn preloaded() -> Vec<Finding> {
    let mut findings = Vec::new();
    for preload in search::preloads() {
        let file = &preload.file;
        let shown = file.display();
        let path = file.to_string_lossy();
        if !path.contains('/') || path.contains('$') {
            continue;
        }
        let library = search::of_preloaded(file.clone());
        let why = match unread(file) {
            Some(errno) => format!("which does not open ({})", errno.desc()),
            None if library.as_ref().is_some_and(|library| hides_newer(library)) => {
                "which is older than libgdrapi's other file".into()
            }
            None if library.is_none() && search::contains(file, search::MARK_OF_ALL) => {
                "whose gdr_open comes before libgdrapi's".into()
            }
            None => continue,
        };
        let place = if preload.line.is_some() { search::PRELOADED_FILE } else { search::PRELOADED };
        findings.push(Finding::warning("environment", format!("{place} has {shown}, {why}"), without(&preload)));
    }
    findings
}

/// Returns whether programs would find a newer library if this one were not preloaded.
fn hides_newer(preloaded: &Path) -> bool {
    let Ok(preloaded) = load(preloaded) else { return false };
    [SONAME, PLAIN_NAME].iter().any(|name| newer_behind(name, &preloaded).is_some())
}

/// Returns the newest file with the name `name` on the loader's path, if it is newer than `library`.
fn newer_behind(name: &str, library: &Loaded) -> Option<PathBuf> {
    let mut newest = (library.release(), None);
    for candidate in search::candidates() {
        let file = candidate.file.with_file_name(name);
        let is_searched = ![search::PRELOADED, search::PRELOADED_FILE, search::BESIDE].contains(&candidate.place);
        if is_searched
            && search::real(&file) != search::real(&library.file)
            && let Ok(other) = load(&file)
            && other.release() > newest.0
        {
            newest = (other.release(), Some(file));
        }
    }
    newest.1
}

/// Returns advice if the loader finds this library before a newer one of the same name.
pub(super) fn newer_first(name: &str, library: &Loaded) -> Option<Advice> {
    if let Some(advice) = not_preloaded(&library.file) {
        return Some(advice);
    }
    let newer = newer_behind(name, library)?;
    let advice = Remedy::LibraryOrder.with("file", library.file.display()).with("newer", newer.display());
    Some(advice.with("directory", newer.parent()?.display()))
}

/// Returns the advice not to preload `library`, if it is preloaded and hides a newer library.
pub(super) fn not_preloaded(library: &Path) -> Option<Advice> {
    for preload in search::preloads() {
        if let Some(loaded) = search::of_preloaded(preload.file.clone())
            && search::real(&loaded) == search::real(library)
            && hides_newer(library)
        {
            return Some(without(&preload));
        }
    }
    None
}

/// Returns the advice to preload all files except this one.
fn without(preload: &Preload) -> Advice {
    let shown = preload.file.display();
    if let Some(line) = preload.line {
        return Remedy::LibraryPreloadFile.with("file", shown).with("line", line);
    }
    let mut rest = search::preloads();
    rest.retain(|other| other.line.is_none() && other.file != preload.file);
    let rest: Vec<_> = rest.iter().map(|other| other.file.to_string_lossy()).collect();
    Remedy::LibraryPreload.with("file", shown).with("rest", rest.join(":"))
}

/// The variable with the directory of the libgdrapi.so that DPDK opens.
pub(super) const DIRECTORY_OF_DPDK: &str = "GDRCOPY_PATH_L";

/// Returns a problem if DPDK cannot load libgdrapi from `value`, the directory that DPDK's variable names.
pub(super) fn directory_of_dpdk(value: &str) -> Option<Finding> {
    let directory = Path::new(value);
    let file = PathBuf::from(format!("{value}/{PLAIN_NAME}"));
    let why = load(&file).err()?;
    let text = format!("{DIRECTORY_OF_DPDK}={value}: DPDK opens {} ({})", file.display(), why.text);
    let advice = match directory.parent() {
        _ if file.symlink_metadata().is_ok() => repair(&file, &why),
        // The variable names the file itself instead of its directory.
        Some(parent) if parent.join(PLAIN_NAME).exists() => {
            let advice = Remedy::SettingExport.with("or", " to the directory of libgdrapi.so");
            advice.with("value", parent.display())
        }
        _ => Remedy::SettingUnset.with("or", ", or set it to the directory of libgdrapi.so"),
    };
    Some(Finding::problem("environment", text, advice.with("name", DIRECTORY_OF_DPDK)))
}

/// Returns the finding about a variable whose name begins with GDRCOPY_. It may be one that the library does not know.
fn setting(name: &str, value: &str) -> Finding {
    let text = format!("{name}={value}");
    if name == DIRECTORY_OF_DPDK
        && let Some(finding) = directory_of_dpdk(value)
    {
        return finding.only_if(false);
    }
    if let Some((_, instead)) = variables::GONE.iter().find(|(gone, _)| *gone == name) {
        let advice = Remedy::VariableGone.with("name", name).with("instead", instead);
        return Finding::warning("environment", text, advice);
    }
    match variables::ALL.iter().find(|variable| variable.name == name) {
        Some(variable) if !variable.takes(value) => {
            let advice = Remedy::VariableValue.with("name", name).with("values", variable.values);
            Finding::warning("environment", format!("{text} is not {}", variable.values), advice)
        }
        None if !OF_OTHERS.contains(&name) => {
            let advice = Remedy::VariableUnknown.with("name", name);
            Finding::warning("environment", format!("{text}: the library knows no such variable"), advice)
        }
        _ => Finding::ok("environment", text),
    }
}
