//! Tests that need a driver and a GPU: they run themselves again under gdremu, in each mode that matters.

#[path = "../built/mod.rs"]
mod built;
mod cuda;
mod gates;
mod model;
mod safe_core;

use std::process::Command;

/// Runs the ignored tests whose names contain `filter` on the machine that `options` of gdremu describe.
fn under_gdremu(options: &[&str], filter: &str) {
    under_gdremu_with(options, filter, "");
}

/// The same, with what an ignored test of `gates` is to find.
fn under_gdremu_with(options: &[&str], filter: &str, outcome: &str) {
    let tests = std::env::current_exe().expect("a path");
    let status = Command::new(built::built("gdremu"))
        .args(options)
        .arg("--")
        .arg(&tests)
        .args(["--ignored", "--nocapture", "--test-threads=1", filter])
        .env("GDREMU_OPTIONS_OF_TEST", options.join(" "))
        .env("OUTCOME_OF_TEST", outcome)
        .status()
        .expect("gdremu starts");
    assert!(status.success(), "gdremu {}", options.join(" "));
}

#[test]
fn safe_core_under_gdremu() {
    under_gdremu(&[], "safe_core::");
}

#[test]
fn gates() {
    for (options, outcome) in gates::MACHINES {
        let options: Vec<_> = options.split(' ').collect();
        under_gdremu_with(&options, "gates::", &outcome.to_code());
    }
}

#[test]
fn model_persistent() {
    under_gdremu(&["--leak-exit", "9"], "model::");
}

#[test]
fn model_traditional() {
    under_gdremu(&["--traditional", "--leak-exit", "9"], "model::");
}

#[test]
fn model_module_defects() {
    under_gdremu(&["--stale-handle-bug", "--leak-exit", "9"], "model::");
}

#[test]
fn model_handles_above_32_bits() {
    under_gdremu(
        &["--handle-base", "0x123456789", "--leak-exit", "9"],
        "model::",
    );
}

#[test]
fn model_coherent() {
    under_gdremu(&["--platform", "cached", "--leak-exit", "9"], "model::");
}

#[test]
fn model_device() {
    under_gdremu(&["--platform", "device", "--leak-exit", "9"], "model::");
}

#[test]
fn model_old_drivers() {
    for version in ["2.0", "2.3", "2.4"] {
        under_gdremu(
            &[
                "--driver-version",
                version,
                "--strict-sizes",
                "--leak-exit",
                "9",
            ],
            "model::",
        );
    }
}
