//! States of a system, planted under gdremu, and doctor's report on them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;
use tempfile::TempDir;

use super::common::{self, FAULTY, built, library, run};
use super::remedies::Remedy;

/// The functions of a library of release 2.4, which opens nothing.
const OLD: &str = "tools/tests/old.c";

/// A file of a planted state.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// With {dir} for the directory of the state.
    Text(&'static str),
    Link(&'static str),
    /// This project's library.
    Ours,
    /// For another CPU.
    Foreign,
    /// Forwards to this project's library, corrupts copies as FAULTY selects.
    Faulty,
    Old,
    /// Aborts when it is used.
    Absent,
    /// A libcuda.so.1, whose cuInit fails with CU_INIT.
    Libcuda,
    Nvml,
    Talking,
    /// Preloaded, the driver behind /dev/gdrdrv.
    Driver,
}

use Content::{Absent, Driver, Faulty, Foreign, Libcuda, Link, Nvml, Old, Ours, Talking, Text};

/// A state of a system. In options and variables {dir} is a directory with the files, and with this project's library
/// under both names in `right`, where the loader looks.
#[derive(Clone, Copy)]
pub(crate) struct State {
    /// The remedy of the first step, or several where the computer of the test decides.
    pub(crate) first: &'static [Remedy],
    /// The report has no problem.
    pub(crate) usable: bool,
    /// Options of gdremu.
    pub(crate) emulated: &'static str,
    /// No step changes what gdremu emulates.
    pub(crate) is_fixed: bool,
    /// Without gdremu.
    pub(crate) is_real: bool,
    /// With mounts of its own, as root.
    pub(crate) is_private: bool,
    pub(crate) arguments: &'static str,
    pub(crate) variables: &'static [(&'static str, &'static str)],
    pub(crate) files: &'static [(&'static str, Content)],
    /// Commands of the shell that starts doctor.
    pub(crate) before: &'static str,
}

/// Nothing is wrong.
pub(crate) const HEALTHY: State = State {
    first: &[],
    usable: true,
    emulated: "",
    is_fixed: false,
    is_real: false,
    is_private: false,
    arguments: "",
    variables: &[],
    files: &[],
    before: ":",
};

/// A planted state, which can be examined again.
pub(crate) struct Planted {
    pub(crate) state: State,
    directory: TempDir,
}

fn compiled(source: &str, name: &str) -> PathBuf {
    // Threads want the same one.
    static DONE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut done = DONE.lock().unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !done.contains(&file) {
        common::compile(source, file.clone());
        done.push(file.clone());
    }
    file
}

impl Content {
    fn write(self, file: &Path, directory: &str) {
        let copy = |source: &Path| {
            fs::copy(source, file).unwrap();
        };
        match self {
            Text(text) => fs::write(file, text.replace("{dir}", directory)).unwrap(),
            Link(target) => symlink(target, file).unwrap(),
            Ours => copy(&library()),
            Foreign => {
                let mut bytes = fs::read(library()).unwrap();
                bytes[18] = 0xf3; // e_machine: RISC-V
                fs::write(file, bytes).unwrap();
            }
            Faulty => copy(&compiled(FAULTY, "doctors-faulty.so")),
            Old => copy(&compiled(OLD, "doctors-old.so")),
            Absent => copy(&compiled("c_tests/absent/libgdrapi.c", "doctors-absent.so")),
            Libcuda => copy(&compiled("tools/tests/libcuda.c", "libcuda.so.1")),
            Nvml => copy(&compiled("tools/tests/nvml.c", "libnvidia-ml.so.1")),
            Driver => copy(&compiled("tools/tests/node.c", "doctors-node.so")),
            Talking => copy(&compiled("tools/tests/talking.c", "doctors-talking.so")),
        }
    }
}

impl State {
    pub(crate) fn plant(self) -> Planted {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().to_str().unwrap().to_owned();
        let right = [("right/libgdrapi.so.2", Ours), ("right/libgdrapi.so", Link("libgdrapi.so.2"))];
        for (name, content) in right.iter().chain(self.files) {
            let file = directory.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            content.write(&file, &path);
        }
        Planted { state: self, directory }
    }

    pub(crate) fn examine(self) -> Report {
        self.plant().examine(&[])
    }
}

impl Planted {
    pub(crate) fn path(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    /// The command of doctor, after these commands of the shell.
    pub(crate) fn command(&self, steps: &[String]) -> Command {
        let State { emulated, arguments, variables, before, is_real, is_private, .. } = self.state;
        let here = |text: &str| text.replace("{dir}", self.path());
        let words = |text: &str| text.split_whitespace().map(here).collect::<Vec<_>>();
        let mut command = Command::new("env");
        if is_private {
            command.args(["unshare", "-m"]);
        }
        if !is_real {
            command.arg(built("gdremu")).args(words(emulated)).arg("--");
        }
        // A step of its own each, as they are typed.
        let script = format!("{}\n{}\nexec \"$@\"", here(before), steps.join("\n"));
        command.args(["sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_gdrcopy"), "doctor", "--limit", "600"]);
        command.args(words(arguments));
        command.env("LD_LIBRARY_PATH", here("{dir}/right")).env("FAULTY_BEHIND", library()).env("FAULTY", "no");
        for variable in ["CUDA_VISIBLE_DEVICES", "NCCL_GDRCOPY_ENABLE", "UCX_TLS", "UCX_CONFIG_DIR", "SLURM_JOB_ID"] {
            command.env_remove(variable);
        }
        command.env("HOME", here("{dir}")).current_dir(self.path());
        command.envs(variables.iter().map(|(name, value)| (*name, here(value))));
        command
    }

    pub(crate) fn examine(&self, steps: &[String]) -> Report {
        let mut command = self.command(steps);
        let output = run(command.arg("--json"));
        Report { status: output.status, json: output.json() }
    }
}

/// The JSON report.
pub(crate) struct Report {
    pub(crate) status: Option<i32>,
    pub(crate) json: Value,
}

impl Report {
    /// The findings of sections whose title has this prefix.
    pub(crate) fn findings(&self, section: &str) -> Vec<&Value> {
        let sections = self.json["sections"].as_array().unwrap();
        let these = sections.iter().filter(|other| other["title"].as_str().unwrap().starts_with(section));
        these.flat_map(|section| section["findings"].as_array().unwrap()).collect()
    }

    /// Asserts that there is a finding with these words in its value.
    #[track_caller]
    pub(crate) fn finds(&self, verdict: &str, section: &str, subject: &str, words: &[&str]) {
        let mut findings = self.findings(section).into_iter();
        let found = findings.any(|finding| {
            let value = finding["value"].as_str().unwrap();
            finding["subject"] == subject
                && finding["verdict"] == verdict
                && words.iter().all(|word| value.contains(word))
        });
        assert!(found, "{verdict} {section}/{subject} {words:?} in {:#}", self.json);
    }

    /// The steps, with what may be done instead.
    pub(crate) fn steps(&self) -> Vec<&Value> {
        let mut steps = Vec::new();
        for step in self.json["steps"].as_array().unwrap() {
            steps.push(step);
            steps.extend(Some(&step["or"]).filter(|or| !or.is_null()));
        }
        steps
    }

    /// Asserts that status, counts, remedies and steps agree with each other.
    #[track_caller]
    pub(crate) fn is_consistent(&self) {
        let findings = self.findings("");
        for (count, verdict) in [("problems", "problem"), ("warnings", "warning")] {
            let number = findings.iter().filter(|finding| finding["verdict"] == verdict).count();
            assert_eq!(self.json[count], number, "{:#}", self.json);
        }
        let usable = self.json["problems"] == 0;
        assert_eq!((&self.json["usable"], self.status), (&usable.into(), Some(i32::from(!usable))));
        for finding in findings {
            let is_bad = ["warning", "problem"].contains(&finding["verdict"].as_str().unwrap());
            assert_eq!(finding["remedy"].is_string(), is_bad, "{finding}");
        }
        for step in self.steps() {
            // A word in braces was not filled in; awk has braces itself.
            let text = step.to_string().replace("{print $1}", "");
            assert_eq!(text.matches('{').count(), 1 + usize::from(step["or"].is_object()), "{text}");
        }
    }
}

/// The identifier of a remedy.
pub(crate) fn name(remedy: Remedy) -> String {
    serde_json::to_value(remedy).unwrap().as_str().unwrap().to_owned()
}
