//! The libgdrapi that programs get, by each name that they ask for.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gdrcopy::Version;
use gdrcopy_core::variables::{self, Variable};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};

use super::probe::{self, Failure, Kind, Loaded, Wanted};
use super::remedies::{Advice, Remedy};
use super::report::Finding;
use crate::libgdrapi::search::{self, Candidate, Maker, PLAIN_NAME, SONAME};
use crate::system::{elf, files};

/// Environment variables and their values.
pub(super) type Environment = BTreeMap<String, String>;

pub(super) fn findings(asked_for: Option<&Path>, environment: &Environment) -> Vec<Finding> {
    let candidates = search::candidates();
    let mut findings = Vec::new();
    for Candidate { place, file } in &candidates {
        let maker = Maker::of(file);
        let value = format!("{} ({}), by {place}", file.display(), maker.describe());
        findings.push(match maker {
            Maker::None => Finding::warning("on the path", value, repair(file, &unknown())),
            _ => Finding::ok("on the path", value),
        });
    }
    match asked_for {
        Some(file) => findings.push(match load(&Wanted::File(file.into())) {
            Ok(library) => Finding::ok("--lib", describe(&library)),
            Err(why) => why.finding("--lib", || Remedy::LibraryName.into()),
        }),
        None => findings.extend(by_name(&candidates)),
    }
    findings.extend(settings(environment));
    findings
}

/// No reason why a file cannot be loaded.
fn unknown() -> Failure {
    Failure::new(Kind::Other, "")
}

/// The file that the loader takes, or why it takes none.
pub(super) fn load(wanted: &Wanted) -> Result<Loaded, Failure> {
    let answer = probe::test(wanted, None);
    // One that only fails at its end is there.
    answer.library.ok_or(answer.failure.unwrap_or(unknown()))
}

pub(super) fn load_name(name: &str) -> Result<Loaded, Failure> {
    load(&Wanted::Name(name.into()))
}

/// File, maker and version of a library.
pub(super) fn describe(library: &Loaded) -> String {
    let version = library.release().map_or("no version".into(), |version| version.to_string());
    format!("{} ({}, {version})", library.file.display(), Maker::of(&library.file).describe())
}

/// The remedy if a name leads nowhere.
pub(super) fn missing(name: &str) -> Advice {
    if let Some((file, why)) = broken(name) {
        return replace(name, &file, &why);
    }
    if let Some(advice) = unsearched().or_else(|| uncached(name)) {
        return advice;
    }
    let other = if name == SONAME { PLAIN_NAME } else { SONAME };
    if let Ok(library) = load_name(other) {
        return add_link(name, &library.file);
    }
    match load(&Wanted::Default) {
        Ok(beside) => find_in(&beside.file, ""),
        Err(_) => match search::candidates().iter().find(|candidate| search::is_foreign(&candidate.file)) {
            Some(foreign) => Remedy::LibraryCpu.with("file", foreign.file.display()).with("arch", env::consts::ARCH),
            None => Remedy::LibraryInstall.into(),
        },
    }
}

/// The file that the loader finds first by a name, if it cannot be loaded, or a link of this name that leads nowhere. With
/// the reason.
fn broken(name: &str) -> Option<(PathBuf, Failure)> {
    if let Some(first) = search::first(name) {
        let why = load(&Wanted::File(first.clone())).err()?;
        return Some((first, why));
    }
    let mut candidates = search::candidates().into_iter();
    let dangling = candidates.find(|candidate| is_dangling(&candidate.file) && candidate.file.ends_with(name))?;
    Some((dangling.file, unknown()))
}

/// The remedy for a file that cannot be loaded, to which a name leads.
fn replace(name: &str, file: &Path, why: &Failure) -> Advice {
    // An older library is behind the name that has no version.
    if name == PLAIN_NAME
        && file.is_symlink()
        && Maker::of(file) != Maker::None
        && let Ok(library) = load_name(SONAME)
    {
        return link(&file.with_file_name(name), &as_found(&library.file).file);
    }
    repair(file, why)
}

/// The remedy for an entry of LD_LIBRARY_PATH that the loader cannot search.
fn unsearched() -> Option<Advice> {
    let (home, entries) = (env::var("HOME").unwrap_or_default(), search::library_path_entries());
    for (index, entry) in entries.iter().enumerate() {
        let is_closed =
            |directory: &&Path| access(*directory, AccessFlags::X_OK) == Err(Errno::EACCES) && directory.is_dir();
        if let Some(directory) = entry.ancestors().filter(is_closed).last() {
            return Some(Remedy::LibrarySearch.with("directory", directory.display()));
        }
        let text = entry.to_string_lossy();
        let in_home = ["~", "$HOME", "${HOME}"].iter().find_map(|home| text.strip_prefix(home));
        let directory = match in_home {
            Some(rest) => PathBuf::from(format!("{home}{rest}")),
            None if entry.is_file() => entry.with_file_name(""),
            None => continue,
        };
        let mut corrected = entries.clone();
        corrected[index] = directory;
        let corrected: Vec<_> = corrected.iter().map(|entry| entry.to_string_lossy()).collect();
        return Some(Remedy::LibraryEntry.with("path", corrected.join(":")).with("entry", text));
    }
    None
}

fn is_dangling(file: &Path) -> bool {
    file.is_symlink() && !file.exists()
}

/// The remedy for a library that ends its process, or hangs.
pub(super) fn faulty(kind: &Kind) -> Remedy {
    match kind {
        // It was built for another CPU.
        Kind::Died(signal) if *signal == Signal::SIGILL as i32 => Remedy::LibraryBuild,
        _ => Remedy::LibraryOther,
    }
}

/// The remedy for a file that cannot be loaded for this reason.
fn repair(file: &Path, why: &Failure) -> Advice {
    let shown = file.display();
    if is_dangling(file) {
        let target = fs::read_link(file).unwrap_or_default();
        return Remedy::LibraryDangling.with("file", shown).with("target", target.display());
    }
    let is_closed = files::open(file).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    // The loader's message begins with the name of the missing file, behind those of the files that need it.
    let needed = why.text.split_once(": cannot open shared object file").map(|(before, _)| before);
    let needed = needed.and_then(|before| before.rsplit(": ").next()).unwrap_or_default();
    let remedy = match &why.kind {
        _ if is_closed => Remedy::LibraryReadable,
        // Another C library is of another distribution.
        _ if !needed.is_empty() && !needed.starts_with("libc.") => Remedy::LibraryNeeds,
        _ if Maker::of(file) == Maker::None => Remedy::LibraryRemove,
        kind @ (Kind::Died(_) | Kind::Hung) => faulty(kind),
        _ if statvfs(file).is_ok_and(|mount| mount.flags().contains(FsFlags::ST_NOEXEC)) => Remedy::LibraryNoexec,
        // It has gdr_open, and not all functions.
        _ if why.text.contains("undefined symbol: gdr_") && !why.text.ends_with("gdr_open") => Remedy::LibraryUpdate,
        _ => Remedy::LibraryBuild,
    };
    let remedy = remedy.with("needed", needed).with("oldest", Version::OLDEST_GDRDRV);
    remedy.with("file", shown).with("mount", files::mount_of(&search::real(file))).with("reason", &why.text)
}

/// The remedy if a library is installed where the loader looks, but its cache does not have it yet.
fn uncached(name: &str) -> Option<Advice> {
    let mut files = files::matching(Path::new("/etc/ld.so.conf.d"), "");
    files.push("/etc/ld.so.conf".into());
    for directory in files.iter().filter_map(files::text).collect::<Vec<_>>().join("\n").lines() {
        let file = Path::new(directory.trim()).join(name);
        if file.is_absolute() && load(&Wanted::File(file.clone())).is_ok() {
            return Some(Remedy::LibraryCache.with("file", file.display()));
        }
    }
    None
}

/// The library of each name. The loader takes the names of loaded libraries from their SONAME. So one
/// name can lead to a library that the other does not lead to.
fn by_name(candidates: &[Candidate]) -> Vec<Finding> {
    let (soname, plain) = (load_name(SONAME), load_name(PLAIN_NAME));
    if let (Err(why), Err(_)) = (&soname, &plain) {
        return vec![why.finding(SONAME, || missing(if broken(SONAME).is_some() { SONAME } else { PLAIN_NAME }))];
    }
    let mut findings = Vec::new();
    for (name, library, users) in [
        (SONAME, &soname, "UCX, NVSHMEM and linked programs ask for it"),
        (PLAIN_NAME, &plain, "NCCL, DPDK, aws-ofi-nccl and TensorRT-LLM open it"),
    ] {
        findings.push(match library {
            Ok(library) => rate(name, library, candidates),
            Err(why) => Failure { text: format!("{users}: {}", why.text), ..why.clone() }
                .finding(name, || missing(name))
                .only_if(false),
        });
    }
    if let (Ok(soname), Ok(plain)) = (soname, plain)
        && search::real(&soname.file) != search::real(&plain.file)
    {
        let value = format!("{SONAME} and {PLAIN_NAME} lead to different files");
        let known = findings.iter().find_map(|finding| finding.advice.clone());
        let advice = known.unwrap_or_else(|| add_link(PLAIN_NAME, &soname.file));
        findings.push(Finding::warning("names", value, advice));
    }
    findings
}

/// How to have a name lead to this file.
fn add_link(name: &str, file: &Path) -> Advice {
    let found = as_found(file);
    let link_file = found.file.with_file_name(name);
    if found.place == search::PRELOADED && link_file.exists() {
        return find_in(&found.file, "");
    }
    link(&link_file, &found.file)
}

/// A file as the loader found it, before links.
fn as_found(file: &Path) -> Candidate {
    let mut candidates = search::candidates().into_iter();
    let found = candidates.find(|other| search::real(&other.file) == search::real(file));
    found.unwrap_or(Candidate { place: "", file: file.into() })
}

fn link(link: &Path, file: &Path) -> Advice {
    let name = Path::new(file.file_name().unwrap_or_default());
    let target = if link.parent() == file.parent() { name } else { file };
    Remedy::LibraryLink.with("target", target.display()).with("link", link.display())
}

/// How to have programs find this file; before another one, or not.
fn find_in(file: &Path, first: &str) -> Advice {
    let directory = file.parent().unwrap_or(Path::new("/")).display();
    Remedy::LibraryPath.with("directory", directory).with("first", first)
}

/// The library that a name leads to, with a warning if one of this project's is behind it.
pub(super) fn rate(name: &'static str, library: &Loaded, candidates: &[Candidate]) -> Finding {
    let value = describe(library);
    match behind(name, &library.file, candidates) {
        Some((ours, advice)) => Finding::warning(name, format!("{value} comes before {}", ours.display()), advice),
        None => Finding::ok(name, value),
    }
}

/// How to have the first of these names that leads to a library lead to one of this project's, if it does not.
/// Without any, how to have the first one lead to a library.
pub(super) fn instead(names: &[&str]) -> Option<Advice> {
    for name in names {
        if let Ok(library) = load_name(name) {
            return behind(name, &library.file, &search::candidates()).map(|(_, advice)| advice);
        }
    }
    names.first().map(|name| missing(name))
}

fn is_ours(file: &Path) -> bool {
    Maker::of(file) == Maker::This && !search::is_foreign(file)
}

/// This project's library that is behind another one, to which the name leads, and how to have the name lead there.
fn behind<'a>(name: &str, library: &Path, candidates: &'a [Candidate]) -> Option<(&'a Path, Advice)> {
    if is_ours(library) {
        return None;
    }
    let order = candidates.iter().position(|other| is_ours(&other.file))?;
    let winner = candidates.iter().position(|other| search::real(&other.file) == search::real(library))?;
    let (ours, other) = (&candidates[order], &candidates[winner]);
    let named = ours.file.with_file_name(name);
    // The cache lists names, not directories, in its order. A preloaded file can be in any directory.
    let in_order = ours.place == search::LIBRARY_PATH || ours.place != other.place;
    let first = order < winner && in_order && ours.place != search::PRELOADED;
    let over = || find_in(&ours.file, " first, or remove the other library from the path");
    let advice = match other.place {
        search::PRELOADED => without_preload(&other.file.display().to_string(), search::PRELOADED),
        _ if is_ours(&named) => over(),
        _ if first || other.file == named => add_link(name, &ours.file),
        _ => {
            let mut advice = add_link(name, &ours.file);
            advice.commands.extend(over().commands);
            advice
        }
    };
    Some((&ours.file, advice))
}

fn without_preload(file: &str, place: &str) -> Advice {
    let list = env::var(search::PRELOADED).unwrap_or_default();
    let others: Vec<_> = list.split([':', ' ']).filter(|entry| !entry.is_empty() && *entry != file).collect();
    let mut advice = Remedy::LibraryPreload.with("file", file).with("place", place).with("rest", others.join(":"));
    if place != search::PRELOADED {
        advice.commands.clear();
    }
    advice
}

/// Variables of build systems, container runtimes and engines, not of the library.
const OF_OTHERS: [&str; 6] =
    ["GDRCOPY_ENABLED", "GDRCOPY_HOME", "GDRCOPY_LIBDIR", "GDRCOPY_LIBRARY_PATH", "GDRCOPY_PATH_L", "GDRCOPY_ROOT_DIR"];

/// The environment variables that change what the library does, and those that do not, but look so.
pub(super) fn settings(environment: &Environment) -> Vec<Finding> {
    let own = environment.iter().filter(|(name, _)| name.starts_with("GDRCOPY_"));
    let mut findings: Vec<_> = own.map(|(name, value)| setting(name, value)).collect();
    if findings.is_empty() {
        findings.push(Finding::ok("environment", "no GDRCOPY_ variable set"));
    }
    findings.extend(preloaded(environment));
    findings
}

/// Warns of preloaded files that do not exist, or that come before libgdrapi.
pub(super) fn preloaded(environment: &Environment) -> Vec<Finding> {
    const FILE: &str = "/etc/ld.so.preload";
    let (variable, of_file) = (environment.get(search::PRELOADED).cloned(), files::text(FILE));
    let mut findings = Vec::new();
    for (place, list) in [(search::PRELOADED, variable), (FILE, of_file)] {
        let list = list.unwrap_or_default();
        let entries = list.split([':', ' ', '\n']).filter(|entry| entry.contains('/') && !entry.contains('$'));
        for entry in entries {
            let file = Path::new(entry);
            let why = match file.exists() {
                false => "which is not there",
                true if search::is_foreign(file) => "which is for another CPU",
                true if search::of_preloaded(file.into()).is_some() => continue,
                true if elf::Functions::read(file).has("gdr_open") => "whose gdr_open comes before libgdrapi's",
                true => continue,
            };
            let value = format!("{place} has {entry}, {why}");
            findings.push(Finding::warning("environment", value, without_preload(entry, place)));
        }
    }
    findings
}

fn setting(name: &str, value: &str) -> Finding {
    let text = format!("{name}={value}");
    if let Some((_, instead)) = variables::GONE.iter().find(|(gone, _)| *gone == name) {
        let advice = Remedy::VariableGone.with("name", name).with("instead", instead);
        return Finding::warning("environment", text, advice);
    }
    match variables::ALL.iter().find(|variable| variable.name == name) {
        Some(variable) if !variable.takes(value) => {
            let advice = Remedy::VariableValue.with("name", name).with("values", &variable.values);
            Finding::warning("environment", format!("{text} is not {}", variable.values), advice)
        }
        None if !OF_OTHERS.contains(&name) => {
            let alike = |known: &&Variable| strsim::jaro_winkler(known.name, name);
            let nearest = variables::ALL.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
            let advice = Remedy::VariableUnknown.with("name", name);
            let advice = advice.with("nearest", nearest.map_or("", |variable| variable.name));
            Finding::warning("environment", format!("{text}: the library knows no such variable"), advice)
        }
        _ => Finding::ok("environment", text),
    }
}

/// The file of a library that a test used, or what it was to be.
pub(super) fn shown(library: Option<&Loaded>, wanted: &Wanted) -> String {
    let name = match (library, wanted) {
        (Some(library), _) => return library.file.display().to_string(),
        (None, Wanted::File(file)) => return file.display().to_string(),
        (None, Wanted::Name(name)) => name,
        (None, Wanted::Default) => SONAME,
    };
    search::first(name).map_or(name.into(), |file| file.display().to_string())
}
