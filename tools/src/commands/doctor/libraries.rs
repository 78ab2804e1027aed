//! The libgdrapi that programs get.
#![forbid(unsafe_code)]

use std::env;
use std::path::Path;

use super::probe::{self, Loaded, Probe};
use super::report::Finding;
use crate::libgdrapi::search::{self, Candidate};

pub(super) fn findings(asked_for: Option<&Path>) -> Vec<Finding> {
    let candidates = search::candidates();
    let mut findings: Vec<_> = candidates.iter().map(candidate).collect();
    findings.push(match asked_for {
        Some(file) => loaded("--lib", Some(file), &[]),
        None => loaded("loaded", None, &candidates),
    });
    findings.push(settings());
    findings
}

fn candidate(candidate: &Candidate) -> Finding {
    let Candidate { place, file } = candidate;
    Finding::ok("on the path", format!("{} ({}), by {place}", file.display(), maker(file)))
}

fn maker(file: &Path) -> &'static str {
    match search::is_ours(file) {
        true => "this project's",
        false => "another one",
    }
}

/// The one that the loader chooses, or whether it loads `asked_for`.
fn loaded(subject: &'static str, asked_for: Option<&Path>, candidates: &[Candidate]) -> Finding {
    let reply = match probe::ask(Probe::Library, asked_for) {
        Ok(reply) => reply.answer,
        Err(error) => {
            return Finding::problem(
                subject,
                format!("cannot be tested: {error:#}"),
                probe::NOT_STARTED,
            );
        }
    };
    match (reply.library, reply.failure) {
        (Some(library), None) => rate(subject, &library, candidates),
        (_, failure) => Finding::problem(
            subject,
            failure.map_or("nothing".into(), |failure| failure.what),
            match asked_for {
                Some(_) => "name a libgdrapi file for this CPU architecture",
                None => {
                    "install libgdrapi (make install), then run ldconfig or put its directory on \
                     LD_LIBRARY_PATH"
                }
            },
        ),
    }
}

fn rate(subject: &'static str, library: &Loaded, candidates: &[Candidate]) -> Finding {
    let Loaded { file, version } = library;
    let version = version.map_or("no version".into(), |(major, minor)| format!("{major}.{minor}"));
    let value = format!("{} ({}, {version})", file.display(), maker(file));
    let hidden = candidates.iter().find(|other| search::is_ours(&other.file));
    match hidden {
        Some(ours) if !search::is_ours(file) => Finding::warning(
            subject,
            format!("{value} comes before {}", ours.file.display()),
            how_to_override(ours.file.parent().unwrap_or(Path::new("/"))),
        ),
        Some(ours) if ours.place == search::BESIDE => Finding::ok(
            subject,
            format!(
                "{value}, beside gdrcopy; programs find it with its directory on LD_LIBRARY_PATH"
            ),
        ),
        _ => Finding::ok(subject, value),
    }
}

/// How to make the loader choose the library in this directory.
fn how_to_override(directory: &Path) -> String {
    let preload = directory.join(search::PRELOAD_OBJECT);
    let mut remedy = format!(
        "put {} first on LD_LIBRARY_PATH, or remove the other one from the path",
        directory.display()
    );
    if preload.exists() {
        remedy += &format!("; LD_PRELOAD={} overrides it, too", preload.display());
    }
    remedy
}

/// The environment variables that change what the library does.
fn settings() -> Finding {
    let mut set: Vec<_> = env::vars()
        .filter(|(name, _)| name.starts_with("GDRCOPY_"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    set.sort();
    Finding::ok(
        "environment",
        if set.is_empty() { "no GDRCOPY_ variable set".into() } else { set.join(" ") },
    )
}
