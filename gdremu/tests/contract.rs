//! Checks the contract of /dev/gdrdrv (gdrdrv-c/contract) on the emulated device, in every profile (named set
//! of gdremu's options) that has a device.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{GDREMU, gdremu, runtime};

/// Builds, only once, the C program that checks the contract of /dev/gdrdrv. Returns its path.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        runtime();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gdrdrv-c/contract");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gdrdrv");
        let mut make = Command::new("make");
        make.arg("--silent").arg("-C").arg(sources);
        make.arg(format!("out={}", out.display()));
        assert!(make.status().unwrap().success(), "{make:?}");
        out.join("contract")
    })
}

/// gdremu's profiles (named sets of options), each with the name of the implementation whose results the C program
/// expects (`GDRDRV_IMPLEMENTATION`), and the least number of cases that must run.
const PROFILES: &[(&str, &str, usize)] = &[
    ("default", "gdremu", 63),
    ("traditional", "gdremu", 61),
    ("defects", "gdremu-defects", 62),
    ("high-handles", "gdremu", 63),
    ("cached", "gdremu", 63),
    ("cached-traditional", "gdremu", 61),
    ("no-force-pcie", "gdremu", 63),
    ("device", "gdremu", 63),
    ("gdrdrv-2.5", "gdremu", 63),
    ("gdrdrv-2.4.4", "gdremu", 54),
    ("gdrdrv-2.4", "gdremu", 54),
    ("gdrdrv-2.3", "gdremu", 55),
    ("gdrdrv-2.0", "gdremu", 54),
];

#[test]
fn all_profiles_keep_the_contract() {
    for (profile, implementation, least) in PROFILES {
        let mut command = Command::new(GDREMU);
        command.args(["--profile", profile, "--"]).arg(program());
        command.env("GDRDRV_IMPLEMENTATION", implementation);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut failed = Vec::new();
        let mut passed = 0;
        for line in text.lines() {
            if !line.starts_with("ok") {
                failed.push(line);
            } else if !line.contains("# SKIP") {
                passed += 1;
            }
        }
        assert!(output.status.success(), "{profile}: {failed:#?}");
        assert!(passed >= *least, "{profile}: {text}");
    }
}

#[test]
fn without_a_device_all_cases_are_skipped() {
    let output = gdremu(&["--no-gdrdrv"], program(), &[]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("1..0 # SKIP"), "{text}");
}

#[test]
fn name_that_no_case_has_is_refused_before_other_cases_run() {
    let output = gdremu(&[], program(), &["version_is_2_and_at_least_that_of_the_oldest_library", "no_case"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("ok "), "{output:?}");
}
