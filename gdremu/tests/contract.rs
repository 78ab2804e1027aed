//! The contract of /dev/gdrdrv (tests/gdrdrv) on the emulated device, in every profile that has one.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use common::{GDREMU, gdremu, runtime};

/// Builds the C program, once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        runtime();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/gdrdrv");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gdrdrv");
        let mut make = Command::new("make");
        make.arg("--silent").arg("-C").arg(sources);
        make.arg(format!("out={}", out.display()));
        assert!(make.status().unwrap().success(), "{make:?}");
        out.join("contract")
    })
}

/// Runs all cases. At least `passed` must run, as differences of `implementation` expect.
fn assert_keeps_the_contract(options: &[&str], implementation: &str, passed: usize) {
    let mut command = Command::new(GDREMU);
    command.args(options).arg("--").arg(program());
    command.env("GDRDRV_IMPLEMENTATION", implementation);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed: Vec<_> = text.lines().filter(|line| !line.starts_with("ok")).collect();
    assert!(output.status.success(), "{options:?}: {failed:#?}");
    let ran = text.lines().filter(|line| line.starts_with("ok") && !line.contains("# SKIP")).count();
    assert!(ran >= passed, "{options:?}: {text}");
}

/// Tests of profiles, with the least number of cases that must run.
macro_rules! profiles {
    ($($test:ident: $profile:literal, $implementation:literal, $passed:literal;)*) => {$(
        #[test]
        fn $test() {
            assert_keeps_the_contract(&["--profile", $profile], $implementation, $passed);
        }
    )*};
}

profiles! {
    default: "default", "gdremu", 63;
    traditional: "traditional", "gdremu", 61;
    defects: "defects", "gdremu-defects", 62;
    high_handles: "high-handles", "gdremu", 63;
    cached: "cached", "gdremu", 63;
    cached_traditional: "cached-traditional", "gdremu", 61;
    no_force_pcie: "no-force-pcie", "gdremu", 63;
    device: "device", "gdremu", 63;
    gdrdrv_2_5: "gdrdrv-2.5", "gdremu", 63;
    gdrdrv_2_4_4: "gdrdrv-2.4.4", "gdremu", 54;
    gdrdrv_2_4: "gdrdrv-2.4", "gdremu", 54;
    gdrdrv_2_3: "gdrdrv-2.3", "gdremu", 55;
    gdrdrv_2_0: "gdrdrv-2.0", "gdremu", 54;
}

#[test]
fn without_a_device_all_cases_are_skipped() {
    let output = gdremu(&["--no-gdrdrv"], program(), &[]);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("1..0 # SKIP"), "{text}");
}
