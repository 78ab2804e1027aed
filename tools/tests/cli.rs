//! The command line, whatever the tool.

mod common;

use common::{gdrcopy, run};

const TOOLS: [&str; 5] = ["copybw", "copylat", "apiperf", "pplat", "doctor"];

#[test]
fn wrong_options_are_told_with_status_2() {
    for tool in TOOLS {
        let said = run(&mut gdrcopy(&[], &[tool, "--no-such-option"]));
        assert_eq!(said.status, Some(2), "{tool}: {said:?}");
        assert!(said.stderr.contains("--no-such-option"), "{tool}: {said:?}");
        assert_eq!(said.stdout, "", "{tool}");
    }
}

#[test]
fn help_is_given_without_a_gpu() {
    for tool in TOOLS {
        for option in ["-h", "--help"] {
            let said =
                run(std::process::Command::new(env!("CARGO_BIN_EXE_gdrcopy")).args([tool, option]));
            assert_eq!(said.status, Some(0), "{tool}: {said:?}");
            assert!(said.stdout.contains("Usage: gdrcopy"), "{tool}: {said:?}");
        }
    }
}
