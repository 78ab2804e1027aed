//! The libgdrapi that programs get, by each name that they ask for.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::probe::{self, Loaded, Wanted};
use super::report::Finding;
use super::variables;
use crate::libgdrapi::search::{self, Candidate, Maker, PLAIN_NAME, SONAME};
use crate::system::files;

/// Environment variables and their values.
pub(super) type Environment = BTreeMap<String, String>;

pub(super) fn findings(asked_for: Option<&Path>, environment: &Environment) -> Vec<Finding> {
    let candidates = search::candidates();
    let mut findings: Vec<_> = candidates.iter().map(|it| candidate(it).about("on the path")).collect();
    match asked_for {
        Some(file) => findings.push(asked(file).about("--lib")),
        None => findings.extend(by_name(&candidates)),
    }
    findings.extend(settings(environment));
    findings
}

fn candidate(candidate: &Candidate) -> Finding {
    let Candidate { place, file } = candidate;
    let maker = Maker::of(file);
    let value = format!("{} ({}), by {place}", file.display(), maker.describe());
    match maker {
        Maker::None => Finding::warning(value, repair(file)),
        _ => Finding::ok(value),
    }
}

/// Why there is no library.
pub(super) enum Missing {
    /// The loader's message.
    NotLoaded(String),
    /// The loader was not asked.
    NotAsked(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let (Missing::NotLoaded(why) | Missing::NotAsked(why)) = self;
        out.write_str(why)
    }
}

impl Missing {
    /// The remedy, which is this one if the loader was asked.
    pub(super) fn remedy(&self, otherwise: impl FnOnce() -> String) -> String {
        match self {
            Missing::NotAsked(_) => probe::NOT_STARTED.into(),
            Missing::NotLoaded(_) => otherwise(),
        }
    }
}

/// The file that the loader takes, or why it takes none.
pub(super) fn load(wanted: &Wanted) -> Result<Loaded, Missing> {
    let reply = probe::ask(wanted, None);
    let (answer, _) = reply.map_err(|error| Missing::NotAsked(format!("{error:#}")))?;
    match (answer.library, answer.failure) {
        (Some(library), None) => Ok(library),
        (_, failure) => Err(Missing::NotLoaded(failure.map_or("nothing".into(), |failure| failure.what))),
    }
}

/// File, maker and version of a library.
pub(super) fn describe(library: &Loaded) -> String {
    let Loaded { file, version } = library;
    let version = version.map_or("no version".into(), |(major, minor)| format!("{major}.{minor}"));
    format!("{} ({}, {version})", file.display(), Maker::of(file).describe())
}

fn asked(file: &Path) -> Finding {
    match load(&Wanted::File(file.into())) {
        Ok(library) => Finding::ok(describe(&library)),
        Err(why) => {
            let remedy = why.remedy(|| "name a libgdrapi file for this CPU architecture".into());
            Finding::problem(why.to_string(), remedy)
        }
    }
}

/// The remedy if a name leads nowhere.
pub(super) fn missing(name: &str) -> String {
    if let Some(file) = broken(name) {
        return repair(&file);
    }
    let other = if name == SONAME { PLAIN_NAME } else { SONAME };
    match load(&Wanted::Name(other.into())) {
        Ok(library) => add_link(name, &library.file),
        Err(_) => INSTALL.into(),
    }
}

/// The file that the loader finds first by a name, if it cannot be loaded.
fn broken(name: &str) -> Option<PathBuf> {
    let first = search::first(name)?;
    load(&Wanted::File(first.clone())).is_err().then_some(first)
}

/// The remedy for a file that cannot be loaded.
fn repair(file: &Path) -> String {
    let refused = files::open(file).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    match refused {
        true => format!("make {} readable for this user", file.display()),
        false => format!("remove {}, or replace it by a library that can be loaded", file.display()),
    }
}

/// The remedy if no name leads to a library.
const INSTALL: &str = "install libgdrapi (package libgdrapi, or make lib_install), then run ldconfig \
    or put its directory on LD_LIBRARY_PATH";

/// The library of each name. The loader takes the names of loaded libraries from their SONAME. So one
/// name can lead to a library that the other does not lead to.
fn by_name(candidates: &[Candidate]) -> Vec<Finding> {
    let soname = load(&Wanted::Name(SONAME.into()));
    let plain = load(&Wanted::Name(PLAIN_NAME.into()));
    match (soname, plain) {
        (Err(why), Err(_)) => {
            let broken = || [SONAME, PLAIN_NAME].into_iter().find_map(broken).map(|file| repair(&file));
            let finding = match load(&Wanted::Default) {
                Ok(beside) => Finding::warning(
                    format!("programs find none; beside gdrcopy is {}", describe(&beside)),
                    broken().unwrap_or_else(|| find_in(&beside.file)),
                ),
                Err(_) => {
                    let remedy = why.remedy(|| broken().unwrap_or_else(|| INSTALL.into()));
                    Finding::problem(format!("no library found: {why}"), remedy)
                }
            };
            vec![finding.about(SONAME)]
        }
        (Ok(library), Err(_)) => {
            let finding = rate(SONAME, &library, candidates);
            vec![finding, leads_nowhere(PLAIN_NAME, &library.file)]
        }
        (Err(_), Ok(library)) => {
            let finding = rate(PLAIN_NAME, &library, candidates);
            vec![leads_nowhere(SONAME, &library.file), finding]
        }
        (Ok(soname), Ok(plain)) => {
            let mut findings = vec![rate(SONAME, &soname, candidates), rate(PLAIN_NAME, &plain, candidates)];
            if search::real(&soname.file) != search::real(&plain.file) {
                let value = format!("{SONAME} and {PLAIN_NAME} lead to different files");
                let both = "have one directory with both names first on LD_LIBRARY_PATH, or preload its";
                let known = findings.iter().find_map(|finding| finding.remedy.clone());
                let remedy = known.unwrap_or_else(|| format!("{both} {}", search::PRELOAD_OBJECT));
                findings.push(Finding::warning(value, remedy).about("names"));
            }
            findings
        }
    }
}

/// How to have programs find a library.
fn find_in(file: &Path) -> String {
    let directory = file.parent().unwrap_or(Path::new("/")).display();
    format!("put {directory} on LD_LIBRARY_PATH, or into /etc/ld.so.conf.d and run ldconfig")
}

/// `name` leads nowhere, and the other one to `file`.
fn leads_nowhere(name: &'static str, file: &Path) -> Finding {
    let users = match name {
        PLAIN_NAME => "NCCL, DPDK, aws-ofi-nccl and TensorRT-LLM open",
        _ => "UCX, NVSHMEM and linked programs ask for",
    };
    let value = format!("leads nowhere, and {users} this name");
    let remedy = broken(name).map_or_else(|| add_link(name, file), |broken| repair(&broken));
    Finding::warning(value, remedy).about(name)
}

/// How to have a name lead to this file.
fn add_link(name: &str, file: &Path) -> String {
    // As the loader found it, before links.
    let candidates = search::candidates();
    let found = candidates.iter().find(|other| search::real(&other.file) == search::real(file));
    let file = found.map_or(file, |candidate| &candidate.file);
    let target = file.file_name().unwrap_or_default().display();
    let link = file.with_file_name(name);
    let replace = if link.symlink_metadata().is_ok() { "f" } else { "" };
    let remedy = format!("add the link: ln -s{replace} {target} {}, and run ldconfig", link.display());
    remedy + &or_preload(file.parent().unwrap_or(Path::new("/")))
}

/// The object that serves both names, if it is in this directory.
fn or_preload(directory: &Path) -> String {
    let object = directory.join(search::PRELOAD_OBJECT);
    match object.exists() {
        true => format!("; LD_PRELOAD={} serves both names without", object.display()),
        false => String::new(),
    }
}

/// The library that a name leads to, with a warning if one of this project's is behind it.
pub(super) fn rate(name: &'static str, library: &Loaded, candidates: &[Candidate]) -> Finding {
    let value = describe(library);
    let finding = match behind(name, &library.file, candidates) {
        Some((ours, remedy)) => Finding::warning(format!("{value} comes before {}", ours.display()), remedy),
        None => Finding::ok(value),
    };
    finding.about(name)
}

/// How to have the first of these names that leads to a library lead to one of this project's, if it does not.
/// Without any, how to have the first one lead to a library.
pub(super) fn instead(names: &[&str]) -> Option<String> {
    let mut loaded = names.iter().filter_map(|&name| Some((name, load(&Wanted::Name(name.into())).ok()?)));
    let Some((name, library)) = loaded.next() else {
        return names.first().map(|name| missing(name));
    };
    let candidates = search::candidates();
    behind(name, &library.file, &candidates).map(|(_, remedy)| remedy)
}

/// This project's library that is behind another one, to which the name leads, and how to have the name lead there.
fn behind<'a>(name: &str, library: &Path, candidates: &'a [Candidate]) -> Option<(&'a Path, String)> {
    let is_ours = |file: &Path| Maker::of(file) == Maker::This && !search::is_foreign(file);
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
    let remedy = match other.place {
        search::PRELOADED => format!("remove {} from LD_PRELOAD", other.file.display()),
        _ if is_ours(&named) => how_to_override(&ours.file),
        _ if first || other.file == named => add_link(name, &ours.file),
        _ => format!("{}; and {}", add_link(name, &ours.file), how_to_override(&ours.file)),
    };
    Some((&ours.file, remedy))
}

/// How to make the loader choose the library in the directory of this file.
fn how_to_override(file: &Path) -> String {
    let directory = file.parent().unwrap_or(Path::new("/"));
    let remedy =
        format!("put {} first on LD_LIBRARY_PATH, or remove the other library from the path", directory.display());
    remedy + &or_preload(directory)
}

/// Variables of build systems, container runtimes and engines, not of the library.
const OF_OTHERS: [&str; 6] =
    ["GDRCOPY_ENABLED", "GDRCOPY_HOME", "GDRCOPY_LIBDIR", "GDRCOPY_LIBRARY_PATH", "GDRCOPY_PATH_L", "GDRCOPY_ROOT_DIR"];

/// The environment variables that change what the library does, and those that do not, but look so.
pub(super) fn settings(environment: &Environment) -> Vec<Finding> {
    let set = environment.iter().filter(|(name, _)| name.starts_with("GDRCOPY_"));
    let mut findings: Vec<_> = set.map(|(name, value)| setting(name, value).about("environment")).collect();
    if findings.is_empty() {
        findings.push(Finding::ok("no GDRCOPY_ variable set").about("environment"));
    }
    findings
}

fn setting(name: &str, value: &str) -> Finding {
    let text = format!("{name}={value}");
    let Some(variable) = variables::ALL.iter().find(|variable| variable.name == name) else {
        if OF_OTHERS.contains(&name) {
            return Finding::ok(text);
        }
        let alike = |known: &variables::Variable| strsim::jaro_winkler(known.name, name);
        let nearest = variables::ALL.iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
        let nearest = nearest.map_or("", |variable| variable.name);
        return Finding::warning(
            format!("{text}: the library knows no such variable"),
            format!("unset {name}, or correct its name: the nearest one is {nearest}"),
        );
    };
    match variable.takes(value) {
        true => Finding::ok(text),
        false => Finding::warning(format!("{text} is not {}", variable.values), format!("unset or correct {name}")),
    }
}
