//! `gdrcopy compare`: methods side by side, every byte checked.

mod common;

use std::path::Path;

use common::{FAULTY, Output, compile, gdrcopy, lib, library, run};
use serde_json::Value;

/// Compares the library of this workspace with the one in `other`.
fn compare(other: &Path, options: &[&str], environment: &[(&str, &str)]) -> Output {
    let ours = format!("--lib=ours={}", library().display());
    let other = format!("--lib=other={}", other.display());
    let sweep = ["--sizes=1,64,1000,1M", "--alignments=0,20,63", "--budget=0"];
    let mut command = gdrcopy(&[], &["compare", &ours, &other]);
    command.args(sweep).args(options);
    run(command.envs(environment.iter().copied()))
}

#[test]
fn one_file_named_twice_gives_two_libraries() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (json, svg) = (path("c.json"), path("c.svg"));
    let output = compare(
        &library(),
        &[
            &format!("--json={}", json.display()),
            &format!("--plot={}", svg.display()),
            "--with=memcpy,cumemcpy",
            &format!("--lib=ours={}", library().display()),
        ],
        &[],
    )
    .with_status(0);
    output.prints(&["write, ns: ours\n", "read, time / time of ours: cuMemcpy\n"]);
    for method in ["memcpy", "cuMemcpy"] {
        let crossover = format!("read: {method} is faster than ours from: ");
        output.prints(&[&crossover]);
    }

    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let records = results["records"].as_array().unwrap();
    let methods: Vec<_> = records.iter().map(|record| record["method"].as_str().unwrap()).collect();
    let expected = ["ours", "other", "ours (2)", "memcpy", "cuMemcpy"];
    assert_eq!(methods[..expected.len()], expected);
    assert_eq!(results["setup"]["libraries"].as_array().unwrap().len(), 3);
    // Directions, sizes, alignments.
    assert_eq!(records.len(), 2 * 4 * 3 * expected.len());
    for record in records {
        assert!(record["samples"].as_u64() >= Some(21), "{record}");
        assert_eq!(record["alignment_bytes"], record["offset_bytes"].as_u64().unwrap() % 64);
    }
    assert!(std::fs::read_to_string(svg).unwrap().contains("read: time; ours from"));
}

#[test]
fn wrong_copies_get_no_ratio_and_status_1() {
    let directory = tempfile::tempdir().unwrap();
    let faulty = compile(FAULTY, directory.path().join("faulty.so"));
    let behind = directory.path().join("behind.so");
    std::fs::copy(library(), &behind).unwrap();
    for (fault, direction) in [("short", "write"), ("long", "write"), ("wrong", "read")] {
        let environment = [("FAULTY", fault), ("FAULTY_BEHIND", behind.to_str().unwrap())];
        let json = directory.path().join("c.json");
        let option = format!("--json={}", json.display());
        compare(&faulty, &[&option], &environment).with_status(1).prints(&["FAILED"]).reports(&["wrong copy: other: "]);
        let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        for record in results["records"].as_array().unwrap() {
            let is_wrong = record["direction"] == direction && record["method"] == "other";
            assert_eq!(record["error"].is_string(), is_wrong, "{fault}: {record}");
            assert_eq!(record["p50_ns"].is_null(), is_wrong, "{fault}: {record}");
            if record["method"] == "other" {
                assert_eq!(record["ratio"].is_null(), is_wrong, "{fault}: {record}");
            }
        }
    }
}

#[test]
fn removed_option_is_refused_with_one_line() {
    let output = run(&mut gdrcopy(&[], &["compare", "--batch", &lib()])).with_status(2);
    assert_eq!((&output.stdout[..], output.stderr.lines().count()), ("", 1), "{output:?}");
    output.reports(&["gdrcopy compare: --batch was removed: ", "`speed`"]);
}
