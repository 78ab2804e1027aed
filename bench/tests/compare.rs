//! `compare` as users run it, on an emulated GPU.

#[path = "../../tests/built/mod.rs"]
mod built;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use built::built;
use serde_json::Value;

const GDREMU: &str = "gdremu";
const OURS: &str = "libgdrapi.so";

/// Compares the library of this workspace with the one in `other`.
fn compare(other: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(built(GDREMU));
    command.arg("--").arg(env!("CARGO_BIN_EXE_compare"));
    command.arg(format!("--lib=ours={}", built(OURS).display()));
    command.arg(format!("--lib=other={}", other.display()));
    command.args([
        "--sizes=1,64,1000,1M",
        "--alignments=0,20,63",
        "--host-alignments=0,3",
    ]);
    command.args(arguments).args(["--budget=0"]);
    command.envs(environment.iter().copied());
    command.output().expect("gdremu starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_same_file_twice_is_two_libraries() {
    let folder = tempfile::tempdir().unwrap();
    let (json, svg) = (folder.path().join("c.json"), folder.path().join("c.svg"));
    let files = [
        format!("--json={}", json.display()),
        format!("--svg={}", svg.display()),
    ];
    let arguments = [
        &files[0],
        &files[1],
        "--with=memcpy,cumemcpy",
        "--kernel-matrix",
        "--variant=GDRCOPY_THREADS=3",
        "--cold",
    ];
    let output = compare(&built(OURS), &arguments, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));

    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let methods = results["methods"].as_array().unwrap();
    assert_eq!(methods[0], "ours");
    assert_eq!(methods[1], "other");
    for variant in ["ours isa=portable", "ours threads=3"] {
        assert!(methods.iter().any(|method| method == variant), "{variant}");
    }
    assert_eq!(methods.last().unwrap(), "cuMemcpy");
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 4 * 3 * 2);
    for row in rows {
        for outcome in row["outcomes"].as_array().unwrap() {
            assert!(outcome["timed"]["samples"].as_u64() >= Some(21), "{row}");
        }
    }
    assert!(std::fs::read_to_string(svg).unwrap().contains("ours, read"));
}

/// Builds the library that spoils copies.
fn faulty_library(folder: &Path) -> PathBuf {
    let (package, library) = (
        Path::new(env!("CARGO_MANIFEST_DIR")),
        folder.join("faulty.so"),
    );
    let status = Command::new("gcc")
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&library)
        .arg(package.join("tests/faulty.c"))
        .arg("-I")
        .arg(package.join("../include"))
        .arg("-ldl")
        .status();
    assert!(status.expect("gcc starts").success());
    library
}

#[test]
fn wrong_copies_get_no_ratio_and_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let library = faulty_library(folder.path());
    let behind = folder.path().join("behind.so");
    std::fs::copy(built(OURS), &behind).unwrap();
    let json = folder.path().join("c.json");
    for (fault, direction) in [("short", "to"), ("long", "to"), ("wrong", "from")] {
        let output = compare(
            &library,
            &[&format!("--json={}", json.display())],
            &[
                ("FAULTY", fault),
                ("FAULTY_BEHIND", behind.to_str().unwrap()),
            ],
        );
        assert_eq!(
            output.status.code(),
            Some(1),
            "{fault}: {}",
            text(&output.stderr)
        );
        assert!(text(&output.stdout).contains("FAILED"), "{fault}");
        let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        for row in results["rows"].as_array().unwrap() {
            let is_spoilt = row["direction"] == direction;
            assert_eq!(row["ratios"][1].is_null(), is_spoilt, "{fault}: {row}");
            assert_eq!(
                row["outcomes"][1]["failed"].is_string(),
                is_spoilt,
                "{fault}: {row}"
            );
        }
    }
}
