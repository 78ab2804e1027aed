//! Runs `gdrcopy` as users do, under gdremu.
#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

#[path = "../../../tests/built/mod.rs"]
mod built;

use std::path::{Path, PathBuf};
use std::process::{self, Command};

pub(crate) use built::built;

/// An example of the tools.
pub(crate) fn example(name: &str) -> PathBuf {
    built::example(name)
}

/// The library of this workspace.
pub(crate) fn library() -> PathBuf {
    built("libgdrapi.so")
}

/// The command `gdremu OPTIONS -- gdrcopy ARGUMENTS`.
pub(crate) fn gdrcopy(emulated: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(built("gdremu"));
    command.args(emulated).arg("--");
    command.arg(env!("CARGO_BIN_EXE_gdrcopy")).args(arguments);
    command
}

/// Runs a command, and what it output.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().expect("gdremu starts");
    Output::from(output)
}

/// How a program ended, and what it output.
#[derive(Debug)]
pub(crate) struct Output {
    /// None if a signal ended the program.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
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

/// Builds the library that corrupts copies as FAULTY selects, and forwards to FAULTY_BEHIND.
pub(crate) fn faulty_library(directory: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let library = directory.join("faulty.so");
    let status = Command::new("gcc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&library)
        .arg(root.join("tools/tests/faulty.c"))
        .arg("-I")
        .arg(root.join("include"))
        .arg("-ldl")
        .status();
    assert!(status.expect("gcc starts").success());
    library
}
