//! The names, versions and variables that UCX, NCCL, NVSHMEM, libfabric and DPDK need to use libgdrapi.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use gdrcopy::Version;
use nix::unistd::{Uid, User};

use super::libraries::{self, Environment};
use super::probe::{Loaded, Wanted};
use super::report::Finding;
use crate::libgdrapi::search::{self, PLAIN_NAME, SONAME};
use crate::system::files;

/// A program that loads libgdrapi.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Engine {
    Nccl,
    Ucx,
    Nvshmem,
    Libfabric,
    Dpdk,
}

use Engine::{Dpdk, Libfabric, Nccl, Nvshmem, Ucx};

impl Engine {
    pub(super) fn name(self) -> &'static str {
        match self {
            Nccl => "NCCL",
            Ucx => "UCX",
            Nvshmem => "NVSHMEM",
            Libfabric => "libfabric",
            Dpdk => "DPDK",
        }
    }

    /// The names that it asks the loader for, one after the other.
    fn libraries(self) -> &'static [&'static str] {
        match self {
            Nccl | Dpdk => &[PLAIN_NAME],
            Ucx | Nvshmem => &[SONAME],
            Libfabric => &[PLAIN_NAME, SONAME],
        }
    }

    /// The oldest library and module that it accepts.
    fn oldest(self) -> Version {
        match self {
            Nccl => Version::new(2, 1),
            _ => Version::OLDEST_GDRDRV,
        }
    }

    /// Other requirements that doctor cannot see.
    fn unseen(self) -> Option<(&'static str, &'static str)> {
        match self {
            Ucx => Some((
                "plugin",
                "not examined: UCX needs its plugin libuct_cuda_gdrcopy.so, which PyPI's wheels lack; \
                 `ucx_info -d | grep gdr_copy` shows it",
            )),
            _ => None,
        }
    }
}

/// A variable that decides whether an engine uses libgdrapi.
struct Switch {
    engine: Engine,
    name: &'static str,
    /// The part of the engine that does without libgdrapi; if empty, all of it does.
    part: &'static str,
    /// True if libgdrapi is used with this value, or if it is not set.
    uses: fn(Option<&str>) -> bool,
}

const fn switch(engine: Engine, name: &'static str, part: &'static str, uses: fn(Option<&str>) -> bool) -> Switch {
    Switch { engine, name, part, uses }
}

const SWITCHES: [Switch; 9] = [
    switch(Ucx, UCX_TLS, "", |list| list.is_none_or(has_gdr_copy)),
    // NCCL takes the number that a value begins with, 0 if there is none, and its default if it is too large. It uses
    // GDRCopy only if this variable is 1 (seen with NCCL 2.28.9).
    switch(Nccl, ENABLE, "", |value| number(value) == Some(1)),
    switch(Nccl, "NCCL_GDRCOPY_FIFO_ENABLE", "FIFOs", |value| number(value) != Some(0)),
    switch(Nccl, "NCCL_GDRCOPY_SYNC_ENABLE", "synchronization", |value| number(value) != Some(0)),
    // 1 and 2 both skip libgdrapi.
    switch(Nccl, "NCCL_GDRCOPY_USE_INTERNAL_DMABUF", "", |value| number(value).unwrap_or(0) == 0),
    switch(Nccl, "DOCA_GPUNETIO_DISABLE_GDRCOPY", "GPUNetIO", |value| !value.is_some_and(word)),
    switch(Nvshmem, "NVSHMEM_DISABLE_GDRCOPY", "", |value| !value.is_some_and(word)),
    switch(Nvshmem, "NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF", "", |value| !value.is_some_and(word)),
    switch(Libfabric, "FI_HMEM_CUDA_USE_GDRCOPY", "", |value| value.is_none_or(word)),
];

/// The only switch by which an engine does without libgdrapi unless it is set.
const ENABLE: &str = "NCCL_GDRCOPY_ENABLE";

const UCX_TLS: &str = "UCX_TLS";

/// Entries of it that contain the transport gdr_copy.
const WITH_GDR_COPY: [&str; 2] = ["gdr_copy", "cuda"];

/// DPDK's directory of the library, instead of the loader's.
const PATH_OF_DPDK: &str = "GDRCOPY_PATH_L";

fn word(value: &str) -> bool {
    let falsehoods = ["0", "n", "no", "false", "off"];
    !falsehoods.contains(&value.to_lowercase().as_str())
}

/// A number as C's strtoll reads it with base 0; `None` where NCCL takes its default.
fn number(value: Option<&str>) -> Option<i64> {
    let value = value.filter(|value| !value.is_empty())?.trim_start();
    let (sign, digits) = value.split_at(value.starts_with(['+', '-']).into());
    let (digits, base) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    let end = digits.find(|digit: char| !digit.is_digit(base)).unwrap_or(digits.len());
    match &digits[..end] {
        "" => Some(0),
        digits => i64::from_str_radix(&format!("{sign}{digits}"), base).ok(),
    }
}

/// Returns whether UCX may use gdr_copy with this list.
fn has_gdr_copy(list: &str) -> bool {
    let (names, excluded) = match list.strip_prefix('^') {
        Some(names) => (names, true),
        None => (list, false),
    };
    let named = |wanted: &[&str]| {
        let names = names.split(',').map(|name| name.trim_start_matches('\\'));
        names.map(str::trim).any(|name| wanted.contains(&name))
    };
    match excluded {
        true => !named(&WITH_GDR_COPY),
        false => named(&WITH_GDR_COPY) || named(&["all"]),
    }
}

impl Switch {
    /// `needed`: the engine is to use libgdrapi.
    fn rate(&self, value: Option<&str>, needed: bool) -> Finding {
        let name = self.name;
        let text = value.unwrap_or("not set");
        if (self.uses)(value) {
            return Finding::ok(text).about(name);
        }
        let engine = self.engine.name();
        let who = match self.part {
            "" => engine.to_owned(),
            part => format!("{engine}'s {part}"),
        };
        let text = format!("{text}: {who} does without libgdrapi");
        let remedy = match name {
            ENABLE => format!("set {name}=1"),
            UCX_TLS => format!("unset {name}, or have it include gdr_copy"),
            _ => format!("unset {name}"),
        };
        match value {
            // Not all systems run NCCL.
            None if !needed => Finding::ok(format!("{text}; 1 has NCCL use it")).about(name),
            _ => Finding::problem(text, remedy).about(name).only_if(needed && self.part.is_empty()),
        }
    }
}

/// The variables of all engines, or of the one that is to use libgdrapi. Those of defaults are left out. `unread`
/// is a file of NCCL that doctor may not read.
pub(super) fn settings(needed: Option<Engine>, environment: &Environment, unread: Option<&Path>) -> Vec<Finding> {
    let wanted = SWITCHES.iter().filter(|switch| needed.is_none_or(|it| it == switch.engine));
    let rated = wanted.filter_map(|switch| {
        let value = environment.get(switch.name).map(String::as_str);
        if let (ENABLE, None, Some(file)) = (switch.name, value, unread) {
            let text = format!("not set, and {} cannot be read: run this as its user", file.display());
            return Some(Finding::unknown(text).about(ENABLE));
        }
        let shown = value.is_some() || [ENABLE, UCX_TLS].contains(&switch.name);
        shown.then(|| switch.rate(value, needed.is_some()))
    });
    rated.collect()
}

/// Adds the variables of NCCL's files of settings, which the environment overrides. They are those of a process, or of this
/// one. Stops at a file that may not be read, and returns it.
pub(super) fn add_files_of_nccl(environment: &mut Environment, process: Option<u32>) -> Option<PathBuf> {
    let own = environment.get("NCCL_CONF_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let home = match process {
        Some(_) => environment.get("HOME").map(PathBuf::from),
        None => User::from_uid(Uid::current()).ok().flatten().map(|user| user.dir),
    };
    let home = home.map(|home| home.join(".nccl.conf"));
    for file in own.or(home).into_iter().chain([PathBuf::from("/etc/nccl.conf")]) {
        let seen = match (process, file.strip_prefix("/")) {
            (Some(pid), Ok(file)) => PathBuf::from(format!("/proc/{pid}/root")).join(file),
            (Some(pid), Err(_)) => PathBuf::from(format!("/proc/{pid}/cwd")).join(&file),
            (None, _) => file.clone(),
        };
        let text = match files::bytes(&seen) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if [ErrorKind::NotFound, ErrorKind::InvalidInput].contains(&error.kind()) => continue,
            Err(_) => return Some(file),
        };
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            if SWITCHES.iter().any(|switch| switch.engine == Nccl && switch.name == name) {
                environment.entry(name.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
    }
    None
}

/// Checks the engine's requirements. Returns the file of its library.
pub(super) fn needs(
    engine: Engine,
    environment: &Environment,
    module: Option<Version>,
) -> (Option<Loaded>, Vec<Finding>) {
    let (library, mut findings) = library(engine, environment);
    let oldest = engine.oldest();
    let too_old = |version: Version| version < oldest;
    let of_library = library.as_ref().and_then(|library| library.version);
    let of_library = of_library.map(|(major, minor)| Version::new(major as u32, minor as u32));
    for (what, version) in [("libgdrapi", of_library), ("gdrdrv", module)] {
        if let Some(version) = version.filter(|&version| too_old(version)) {
            let value = format!("{what} {version}, and {} needs {oldest}", engine.name());
            let remedy = format!("update {what} to {oldest} or later");
            findings.push(Finding::problem(value, remedy).about("version"));
        }
    }
    findings.extend(settings(Some(engine), environment, None));
    findings.extend(engine.unseen().map(|(subject, text)| Finding::unknown(text).about(subject)));
    (library, findings)
}

/// How to have the engine load this project's library, if it loads another one by a name.
pub(super) fn instead(engine: Engine, environment: &Environment) -> Option<String> {
    let by_path = engine == Dpdk && environment.contains_key(PATH_OF_DPDK);
    if by_path { None } else { libraries::instead(engine.libraries()) }
}

/// The library that the engine loads.
fn library(engine: Engine, environment: &Environment) -> (Option<Loaded>, Vec<Finding>) {
    if let (Dpdk, Some(directory)) = (engine, environment.get(PATH_OF_DPDK)) {
        let file = format!("{directory}/{PLAIN_NAME}");
        return match libraries::load(&Wanted::File(file.into())) {
            Ok(library) => {
                let found = Finding::ok(libraries::describe(&library)).about(PATH_OF_DPDK);
                (Some(library), vec![found])
            }
            Err(why) => {
                let remedy = why.remedy(|| format!("unset {PATH_OF_DPDK}, or name the directory of {PLAIN_NAME}"));
                (None, vec![Finding::problem(why.to_string(), remedy).about(PATH_OF_DPDK)])
            }
        };
    }
    let mut findings = Vec::new();
    for &name in engine.libraries() {
        match libraries::load(&Wanted::Name(name.into())) {
            Ok(library) => {
                let found = libraries::rate(name, &library, &search::candidates());
                return (Some(library), vec![found]);
            }
            Err(why) => {
                let remedy = why.remedy(|| libraries::missing(name));
                findings.push(Finding::problem(why.to_string(), remedy).about(name));
            }
        }
    }
    (None, findings)
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    fn verdict(name: &str, value: Option<&str>, needed: bool) -> Verdict {
        let switch = SWITCHES.iter().find(|switch| switch.name == name).expect(name);
        switch.rate(value, needed).verdict
    }

    #[test]
    fn transports_of_ucx_with_and_without_gdr_copy() {
        for list in ["all", "rc,cuda", "sm,cuda_copy,gdr_copy", "\\gdr_copy", "^cuda_ipc", "^rc"] {
            assert_eq!(verdict(UCX_TLS, Some(list), false), Verdict::Ok, "{list}");
        }
        for list in ["rc,sm", "sm,cuda_copy,cuda_ipc", "^gdr_copy", "^rc,cuda", ""] {
            assert_eq!(verdict(UCX_TLS, Some(list), false), Verdict::Warning, "{list}");
            assert_eq!(verdict(UCX_TLS, Some(list), true), Verdict::Problem, "{list}");
        }
    }

    #[test]
    fn numbers_of_nccl_are_those_of_strtoll() {
        for (value, expected) in [
            ("1", 1),
            ("+1", 1),
            ("-1", -1),
            (" 1", 1),
            ("1 ", 1),
            ("0x1F", 31),
            ("010", 8),
            ("1abc", 1),
            ("08", 0),
            ("true", 0),
            ("+", 0),
        ] {
            assert_eq!(number(Some(value)), Some(expected), "{value}");
        }
        for default in [None, Some(""), Some("99999999999999999999")] {
            assert_eq!(number(default), None, "{default:?}");
        }
    }

    #[test]
    fn unset_switch_is_a_problem_only_for_an_engine_that_needs_it() {
        assert_eq!(verdict(ENABLE, None, false), Verdict::Ok);
        assert_eq!(verdict(ENABLE, None, true), Verdict::Problem);
        assert_eq!(verdict("NCCL_GDRCOPY_FIFO_ENABLE", Some("0"), true), Verdict::Warning);
        assert_eq!(verdict("FI_HMEM_CUDA_USE_GDRCOPY", None, true), Verdict::Ok);
    }
}
