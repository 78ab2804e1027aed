//! UCX's programs, on the path or in a directory, and what they can.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::children::{Limit, Running};
use super::settings::{BANDWIDTH, LATENCY, Setting, THRESHOLD};

/// Directories with UCX's programs.
pub(super) struct Ucx {
    directories: Vec<PathBuf>,
    /// Its libraries, if they are not to be found by the loader's own rules.
    libraries: Option<PathBuf>,
}

/// The answers of `ucx_info`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) version: String,
    /// It knows the variables of the model.
    pub(super) has_model: bool,
    /// It has a threshold for messages within a node.
    pub(super) has_intra: bool,
    /// Its transport gdr_copy works here.
    pub(super) has_gdr_copy: bool,
}

impl Ucx {
    /// The one of a directory, which has them in `bin`, or of the path.
    pub(super) fn find(directory: Option<&Path>) -> Ucx {
        let Some(directory) = directory else {
            let path = env::var_os("PATH").unwrap_or_default();
            return Ucx { directories: env::split_paths(&path).collect(), libraries: None };
        };
        let libraries = directory.join("lib");
        Ucx {
            directories: vec![directory.join("bin"), directory.to_owned()],
            libraries: libraries.is_dir().then_some(libraries),
        }
    }

    /// A program of it, without the variables that tune sets.
    pub(super) fn program(&self, name: &str) -> Option<Command> {
        let files = self.directories.iter().map(|directory| directory.join(name));
        let file = files.into_iter().find(|file| file.is_file())?;
        let mut command = Command::new(file);
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

    /// Asks its `ucx_info`, if it has one.
    pub(super) fn facts(&self, limit: &Limit) -> Result<Option<Facts>> {
        let Some(mut command) = self.program("ucx_info") else {
            return Ok(None);
        };
        let mut running = Running::start(command.args(["-v", "-d", "-c"]))?;
        let status = running.wait(limit)?;
        let output = running.output();
        ensure!(status.success(), "ucx_info: {status}: {}", last_words(&output));
        Ok(Some(Facts::of(&output)))
    }
}

impl Facts {
    fn of(output: &str) -> Facts {
        let has = |text: &str| output.lines().any(|line| line.trim_start_matches(['#', ' ']).starts_with(text));
        let version = output.lines().find_map(|line| line.split_once("Library version: "));
        Facts {
            version: version.map_or("unknown", |(_, version)| version.trim()).to_owned(),
            has_model: has(&format!("{BANDWIDTH}=")),
            has_intra: has(&format!("{THRESHOLD}=intra:")),
            has_gdr_copy: has("Transport: gdr_copy"),
        }
    }
}

/// Variables of a command.
pub(super) fn set(command: &mut Command, settings: &[Setting]) {
    for Setting { name, value, .. } in settings {
        command.env(name, value);
    }
}

/// The first error that UCX logged, or else the last line.
pub(super) fn last_words(output: &str) -> &str {
    let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().next_back().unwrap_or("it printed nothing");
    lines.find(|line| line.contains(" ERROR ")).unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_those_of_ucx_info() {
        let old = "# Library version: 1.13.1\n#      Transport: tcp\nUCX_RNDV_THRESH=auto\n";
        assert_eq!(Facts::of(old), Facts { version: "1.13.1".into(), ..Facts::default() });
        let new = "# Library version: 1.22.0\n# Memory domain: gdr_copy\n#      Transport: gdr_copy\n\
                   UCX_RNDV_THRESH=intra:auto,inter:auto\nUCX_GDR_COPY_BW=0MBs,get_dedicated:250MBs\n";
        let expected = Facts { version: "1.22.0".into(), has_model: true, has_intra: true, has_gdr_copy: true };
        assert_eq!(Facts::of(new), expected);
    }

    #[test]
    fn errors_of_ucx_come_before_its_last_line() {
        assert_eq!(last_words("[1] UCX ERROR no\nbye\n\n"), "[1] UCX ERROR no");
        assert_eq!(last_words("one\n two \n"), "two");
        assert_eq!(last_words("\n"), "it printed nothing");
    }
}
