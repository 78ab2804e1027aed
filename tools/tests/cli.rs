//! The command line of all tools.

mod common;

use std::os::unix::fs::symlink;
use std::process::Command;

use clap::CommandFactory;
use common::{built, gdrcopy, lib, library, run};
use gdrcopy_tools::cli::{Cli, LINKS};

/// The names of all tools.
fn tools() -> Vec<String> {
    let program = Cli::command();
    program.get_subcommands().map(|tool| tool.get_name().to_owned()).collect()
}

#[test]
fn wrong_options_give_status_2() {
    for tool in &tools() {
        let output = run(&mut gdrcopy(&[], &[tool, "--no-such-option"])).with_status(2);
        output.reports(&["--no-such-option"]);
        assert_eq!(output.stdout, "", "{tool}");
    }
}

/// It has 24 lines, and 80 columns.
#[test]
fn help_fits_on_a_screen() {
    let program = || Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    let mut helps = vec![run(program().arg("--help"))];
    for tool in &tools() {
        let help = run(program().args([tool, "--help"]));
        assert_eq!(help.stdout, run(program().args([tool, "-h"])).stdout);
        helps.push(help);
    }
    for help in helps {
        let help = help.with_status(0);
        help.prints(&["Usage: gdrcopy"]);
        assert!(help.stdout.lines().count() <= 24, "{} lines: {}", help.stdout.lines().count(), help.stdout);
        for line in help.stdout.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn ps_lists_processes_that_use_gdrcopy() {
    let script = "\"$gdrcopy\" copybw -w 1000000000 >log & pid=$!; trap 'kill -9 $pid' EXIT
        until \"$gdrcopy\" ps | grep -A 1 \"$pid .* MiB  (emulated)\"; do kill -0 $pid || exit 1; done
        \"$gdrcopy\" ps --json";
    let directory = tempfile::tempdir().unwrap();
    symlink(library(), directory.path().join("libgdrapi.so.2")).unwrap();
    let mut ps = Command::new(built("gdremu"));
    ps.args(["--", "sh", "-c", script]).current_dir(&directory);
    ps.env("gdrcopy", env!("CARGO_BIN_EXE_gdrcopy")).env("LD_LIBRARY_PATH", directory.path());
    let output = run(&mut ps).with_status(0);
    let file = library().canonicalize().unwrap();
    output.prints(&[" MiB  (emulated)\n", &format!("\n  this project's: {}\n", file.display()), "\"emulated\": true"]);
}

#[test]
fn link_name_selects_the_tool() {
    let directory = tempfile::tempdir().unwrap();
    for tool in LINKS {
        let link = directory.path().join(format!("gdrcopy_{tool}"));
        symlink(env!("CARGO_BIN_EXE_gdrcopy"), &link).unwrap();
        run(Command::new(&link).arg("-h")).prints(&[&format!("Usage: gdrcopy {tool}")]);
    }
}

#[test]
fn missing_cuda_driver_is_explained() {
    for tool in ["copybw", "copylat", "compare", "apiperf", "tune"] {
        let output = run(Command::new(env!("CARGO_BIN_EXE_gdrcopy")).args([tool, &lib()])).with_status(1);
        output.reports(&["no CUDA driver"]);
        assert!(!output.stderr.contains("panicked"), "{tool}: {output:?}");
    }
}

#[test]
fn default_library_is_the_loaders_choice() {
    let directory = tempfile::tempdir().unwrap();
    symlink(library(), directory.path().join("libgdrapi.so.2")).unwrap();
    let few = ["copybw", "-w", "10", "-r", "10"];
    let output = run(gdrcopy(&[], &few).env("LD_LIBRARY_PATH", directory.path())).with_status(0);
    let file = library().canonicalize().unwrap();
    output.prints(&[file.to_str().unwrap()]);

    run(gdrcopy(&[], &few).env_remove("LD_LIBRARY_PATH")).with_status(1).reports(&["--lib"]);
}

#[test]
fn removed_option_is_refused_with_one_line() {
    let output = run(&mut gdrcopy(&[], &["copybw", "--sweep", &lib()])).with_status(2);
    assert_eq!((&output.stdout[..], output.stderr.lines().count()), ("", 1), "{output:?}");
    output.reports(&["gdrcopy copybw: --sweep was removed: `gdrcopy copylat`"]);
}
