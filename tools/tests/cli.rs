//! The command line of all tools.

mod common;

use std::os::unix::fs::symlink;
use std::process::Command;

use common::{gdrcopy, library, run};

const TOOLS: [&str; 11] =
    ["copybw", "copylat", "compare", "apiperf", "pplat", "tune", "doctor", "ps", "trace", "suspend", "resume"];

#[test]
fn wrong_options_give_status_2() {
    for tool in TOOLS {
        let output = run(&mut gdrcopy(&[], &[tool, "--no-such-option"]));
        assert_eq!(output.status, Some(2), "{tool}: {output:?}");
        assert!(output.stderr.contains("--no-such-option"), "{tool}: {output:?}");
        assert_eq!(output.stdout, "", "{tool}");
    }
}

#[test]
fn help_needs_no_gpu() {
    for tool in TOOLS {
        for option in ["-h", "--help"] {
            let output = run(Command::new(env!("CARGO_BIN_EXE_gdrcopy")).args([tool, option]));
            assert_eq!(output.status, Some(0), "{tool}: {output:?}");
            assert!(output.stdout.contains("Usage: gdrcopy"), "{tool}: {output:?}");
        }
    }
}

#[test]
fn last_of_equal_options_counts() {
    let one = format!("--lib={}", library().display());
    let output = run(&mut gdrcopy(&[], &["copybw", &one, "-s", "1M", "-s", "64K", "-w", "0", "-r", "1", "-r", "10"]));
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.stdout.contains("65536 bytes in pages"), "{output:?}");
}

#[test]
fn link_name_selects_the_tool() {
    let directory = tempfile::tempdir().unwrap();
    for tool in TOOLS {
        let link = directory.path().join(format!("gdrcopy_{tool}"));
        symlink(env!("CARGO_BIN_EXE_gdrcopy"), &link).unwrap();
        let output = run(Command::new(&link).arg("-h"));
        assert!(output.stdout.contains(&format!("Usage: gdrcopy {tool}")), "{output:?}");
        let output = run(Command::new(&link).arg("--version"));
        assert!(output.stdout.contains(env!("CARGO_PKG_VERSION")), "{output:?}");
    }
}

#[test]
fn missing_cuda_driver_is_explained() {
    let library = library();
    for tool in ["copybw", "copylat", "compare", "apiperf", "tune"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
        let output = run(command.args([tool, "--lib", library.to_str().unwrap()]));
        assert_eq!(output.status, Some(1), "{tool}: {output:?}");
        assert!(output.stderr.contains("no CUDA driver"), "{tool}: {output:?}");
        assert!(!output.stderr.contains("panicked"), "{tool}: {output:?}");
    }
}

#[test]
fn default_library_is_the_loaders_choice() {
    let directory = tempfile::tempdir().unwrap();
    symlink(library(), directory.path().join("libgdrapi.so.2")).unwrap();
    let few = ["copybw", "-w", "10", "-r", "10"];
    let output = run(gdrcopy(&[], &few).env("LD_LIBRARY_PATH", directory.path()));
    assert_eq!(output.status, Some(0), "{output:?}");
    let file = library().canonicalize().unwrap();
    assert!(output.stdout.contains(file.to_str().unwrap()), "{output:?}");

    let output = run(gdrcopy(&[], &few).env_remove("LD_LIBRARY_PATH"));
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains("--lib"), "{output:?}");
}

#[test]
fn file_that_is_no_library_is_named() {
    let program = env!("CARGO_BIN_EXE_gdrcopy");
    for file in [program, "/nowhere/libgdrapi.so"] {
        let output = run(&mut gdrcopy(&[], &["copybw", "--lib", file]));
        assert_eq!(output.status, Some(1), "{output:?}");
        assert!(output.stderr.contains(file), "{output:?}");
    }
    let one = format!("--lib={}", library().display());
    let output = run(&mut gdrcopy(&[], &["copybw", &one, &one, &one]));
    assert_eq!(output.status, Some(2), "{output:?}");
}

#[test]
fn missing_gpu_is_reported() {
    let one = format!("--lib={}", library().display());
    let output = run(&mut gdrcopy(&["--gpus", "2"], &["copylat", &one, "-d", "2"]));
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains("no GPU 2; CUDA has 2"), "{output:?}");
}
