//! The exit status after a GPU kernel that gdremu does not run: tests/refused.c under gdremu.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::{GDREMU, built, compile};

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("refused", "plain", [built("gdremu-cuda")]))
}

fn run(options: &[&str], arguments: &[&str]) -> Output {
    let mut gdremu = Command::new(GDREMU);
    gdremu.args(options).arg("--").arg(program()).args(arguments);
    gdremu.output().unwrap()
}

fn printed(output: &Output) -> (usize, usize) {
    let text = String::from_utf8_lossy(&output.stderr);
    (
        text.matches("gdremu: GPU kernel nothing is not run: ").count(),
        text.matches("(--unsupported)").count(),
    )
}

#[test]
fn refused_kernel_is_printed_once_and_fails_the_run() {
    for arguments in [&["0"] as &[&str], &["0", "in a child"]] {
        let output = run(&[], arguments);
        assert_eq!(output.status.code(), Some(124), "{output:?}");
        assert_eq!(printed(&output), (1, 1), "{output:?}");
    }
}

#[test]
fn unsupported_option_chooses_the_consequence() {
    for (option, status, lines) in
        [("exit:3", 3, (1, 1)), ("warn", 0, (1, 0)), ("ignore", 0, (0, 0))]
    {
        let output = run(&["--unsupported", option], &["0"]);
        assert_eq!(output.status.code(), Some(status), "{option}: {output:?}");
        assert_eq!(printed(&output), lines, "{option}: {output:?}");
    }
}

#[test]
fn program_that_fails_keeps_its_status() {
    let output = run(&[], &["5"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(printed(&output), (1, 0), "{output:?}");
}
