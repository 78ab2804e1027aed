//! Finds UCX's programs in the directories of PATH or in a given one, and queries the features of that UCX.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::children::{Limit, Running};
use super::settings::{BANDWIDTH, LATENCY, THRESHOLD};

/// The directories that have the programs and libraries of a UCX.
pub(super) struct Ucx {
    directories: Vec<PathBuf>,
    /// The directory of UCX's libraries, if the loader does not find them by its own rules.
    libraries: Option<PathBuf>,
}

/// The answers of `ucx_info`.
pub(super) struct Facts {
    pub(super) version: String,
    /// True if UCX has variables for the bandwidth and the latency of gdr_copy.
    pub(super) has_model: bool,
    /// True if UCX accepts a threshold for rendezvous that is only for messages within a node.
    pub(super) has_intra: bool,
    /// True if UCX's transport gdr_copy works here.
    pub(super) has_gdr_copy: bool,
}

impl Ucx {
    /// Returns the UCX in `directory`, whose programs are in `bin` or in the directory itself. Without `directory`,
    /// returns the UCX that is on PATH.
    pub(super) fn find(directory: Option<&Path>) -> Ucx {
        let Some(directory) = directory else {
            let path = env::var_os("PATH").unwrap_or_default();
            return Ucx { directories: env::split_paths(&path).collect(), libraries: None };
        };
        let libraries = directory.join("lib");
        Ucx {
            directories: vec![directory.join("bin"), directory.to_owned()],
            libraries: if libraries.is_dir() { Some(libraries) } else { None },
        }
    }

    /// Returns the command of a program of UCX. Its environment lacks the variables for which tune chooses values.
    pub(super) fn program(&self, name: &str) -> Option<Command> {
        let mut files = self.directories.iter().map(|directory| directory.join(name));
        let mut command = Command::new(files.find(|file| file.is_file())?);
        for variable in [BANDWIDTH, LATENCY, THRESHOLD] {
            command.env_remove(variable);
        }
        if let Some(libraries) = &self.libraries {
            let mut path = OsString::from(libraries);
            if let Some(others) = env::var_os("LD_LIBRARY_PATH") {
                path.push(":");
                path.push(others);
            }
            command.env("LD_LIBRARY_PATH", path);
        }
        Some(command)
    }

    /// Runs UCX's `ucx_info`. If there is no such program, assumes that UCX has all features.
    pub(super) fn facts(&self, limit: &Limit) -> Result<Facts> {
        let Some(mut command) = self.program("ucx_info") else {
            let version = "unknown".into();
            return Ok(Facts { version, has_model: true, has_intra: true, has_gdr_copy: true });
        };
        let mut running = Running::start(command.args(["-v", "-d", "-c"]))?;
        let status = running.wait(limit)?;
        let output = running.output();
        ensure!(status.success(), "ucx_info: {status}: {}", last_words(&output));
        Ok(Facts::of(&output))
    }
}

impl Facts {
    fn of(output: &str) -> Facts {
        let version = "unknown".into();
        let mut facts = Facts { version, has_model: false, has_intra: false, has_gdr_copy: false };
        for line in output.lines() {
            let words = line.trim_start_matches(['#', ' ']);
            // UCX 1.13, which Debian 12 has, prints the second text.
            for start in ["Library version: ", "Version "] {
                if let Some(version) = words.strip_prefix(start) {
                    facts.version = version.trim().into();
                }
            }
            facts.has_model |= words.starts_with(&format!("{BANDWIDTH}="));
            facts.has_intra |= words.starts_with(&format!("{THRESHOLD}=intra:"));
            facts.has_gdr_copy |= words.starts_with("Transport: gdr_copy");
        }
        facts
    }
}

/// Returns the first error that UCX logged, or else the last line.
pub(super) fn last_words(output: &str) -> &str {
    let mut last = "it printed nothing";
    for line in output.lines().map(str::trim) {
        if line.contains(" ERROR ") {
            return line;
        }
        if !line.is_empty() {
            last = line;
        }
    }
    last
}
