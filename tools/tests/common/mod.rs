//! Runs `gdrcopy` as users do, under gdremu.
#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

#[path = "../../../tests/built/mod.rs"]
mod built;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Once;

use serde_json::Value;

pub(crate) use built::{built, example};

/// Returns the path of this workspace's library.
pub(crate) fn library() -> PathBuf {
    built("libgdrapi.so")
}

/// Returns the option that names this workspace's library.
pub(crate) fn lib() -> String {
    format!("--lib={}", library().display())
}

/// Returns the command `gdremu EMULATED -- gdrcopy ARGUMENTS`.
pub(crate) fn gdrcopy(emulated: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(built("gdremu"));
    command.args(emulated).arg("--");
    command.arg(env!("CARGO_BIN_EXE_gdrcopy")).args(arguments);
    command
}

/// Runs a command, and returns its exit status and its output.
pub(crate) fn run(command: &mut Command) -> Output {
    eprintln!("{command:?}"); // Rust shows this if the test fails.
    Output::from(command.output().expect("gdremu starts"))
}

/// The exit status of a program, and its output.
#[derive(Debug)]
pub(crate) struct Output {
    /// None if a signal ended the program.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Asserts the exit status.
    #[track_caller]
    pub(crate) fn with_status(self, status: i32) -> Output {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }

    /// Returns stdout as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that stdout has these texts.
    #[track_caller]
    pub(crate) fn prints(&self, texts: &[&str]) -> &Output {
        for text in texts {
            assert!(self.stdout.contains(text), "{text}: {self:?}");
        }
        self
    }

    /// Asserts that stderr has these texts.
    #[track_caller]
    pub(crate) fn reports(&self, texts: &[&str]) -> &Output {
        for text in texts {
            assert!(self.stderr.contains(text), "{text}: {self:?}");
        }
        self
    }
}

impl From<process::Output> for Output {
    fn from(output: process::Output) -> Output {
        Output {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The root of the project.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Compiles a C source of the project with gcc and the project's headers.
pub(crate) fn gcc(source: impl AsRef<Path>, options: &[&str], output: &Path) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread"]);
    gcc.args(["include", "c_tests"].map(|directory| format!("-I{ROOT}/{directory}")));
    gcc.arg(Path::new(ROOT).join(source)).args(options).arg("-o").arg(output).arg("-ldl");
    assert!(gcc.status().expect("gcc starts").success(), "{gcc:?}");
}

/// Compiles a C source of the project to this shared library, and returns the library's path.
pub(crate) fn compile(source: &str, library: PathBuf) -> PathBuf {
    let soname = format!("-Wl,-soname,{}", library.file_name().unwrap().display());
    gcc(source, &["-shared", "-fPIC", &soname], &library);
    library
}

/// Builds the objects that `gdrcopy trace` preloads, in the directory of the program `gdrcopy`.
pub(crate) fn preloaded() {
    static MADE: Once = Once::new();
    if env::var_os("GDRCOPY_TEST_BUILT").is_some() {
        return;
    }
    MADE.call_once(|| {
        let mut make = Command::new("make");
        make.args(["-s", "trace", "-C", ROOT]);
        assert!(make.status().expect("make starts").success(), "{make:?}");
        for file in ["libgdrcopy_trace.so", "libgdrcopy_trace_alias.so", "libgdrcopy_trace_newer.so"] {
            let beside = Path::new(env!("CARGO_BIN_EXE_gdrcopy")).with_file_name(file);
            fs::copy(Path::new(ROOT).join("build/trace").join(file), beside).unwrap();
        }
    });
}

/// The source of a library that corrupts copies as the variable FAULTY selects, and forwards calls to another library.
pub(crate) const FAULTY: &str = "tools/tests/faulty.c";

/// The source of a libgdrapi as another maker could write it. It needs no driver, and lacks some functions.
pub(crate) const OTHER: &str = "tools/tests/other.c";

/// Runs a tool with a library that has this fault, one of those that faulty.c names.
pub(crate) fn corrupted(tool: &str, fault: &str, options: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let faulty = format!("--lib={}", compile(FAULTY, directory.path().join("faulty.so")).display());
    run(gdrcopy(&[], &[tool]).args(options).arg(faulty).env("FAULTY", fault).env("FAULTY_BEHIND", library()))
}

/// Asserts that the keys of a tool's JSON are those that README.md lists.
#[track_caller]
pub(crate) fn assert_documented(tool: &str, json: &Value) {
    let readme = include_str!("../../README.md");
    let mut documented = BTreeSet::new();
    for row in readme.split("<!-- json:").nth(1).unwrap().lines().skip(3).take_while(|line| line.starts_with('|')) {
        let columns: Vec<_> = row.split('|').map(str::trim).collect();
        let tools = columns[2].replace("all", "copies apiperf pplat").replace("copies", "copybw copylat compare tune");
        if tools.split(' ').any(|name| name == tool) {
            documented.extend(columns[1].split(", ").map(|key| key.trim_matches('`').to_owned()));
        }
    }
    let mut keys = BTreeSet::new();
    collect_keys(json, "", &mut keys);
    assert_eq!(keys, documented, "{tool}");
}

fn collect_keys(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let dot = if path.is_empty() { "" } else { "." };
                collect_keys(value, &format!("{path}{dot}{name}"), keys);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for value in values {
                collect_keys(value, &format!("{path}[]"), keys);
            }
        }
        _ => {
            keys.insert(path.to_owned());
        }
    }
}
