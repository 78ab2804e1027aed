//! `gdrcopy compare`: methods side by side, every byte checked.

mod common;

use std::path::Path;

use common::{FAULTY, Output, compile, gdrcopy, lib, library, run};
use serde_json::Value;

/// Compares the library of this workspace with the one in `other`.
fn compare(other: &Path, options: &[&str], environment: &[(&str, &str)]) -> Output {
    let ours = format!("--lib=ours={}", library().display());
    let other = format!("--lib=other={}", other.display());
    let sweep = ["--sizes=1,64,1000,1M", "--alignments=0,20,63", "--host-alignments=0,3", "--budget=0"];
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
            "--all-routines",
            "--variant=GDRCOPY_LOG_LEVEL=3",
            "--cold",
        ],
        &[],
    )
    .with_status(0);
    output.prints(&["write, ns: ours\n", "read, host 3 past a line, ns: cuMemcpy\n"]);
    for method in ["memcpy", "cuMemcpy"] {
        let crossover = format!("read: {method} is faster than ours from: ");
        output.prints(&[&crossover]);
    }

    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(results["cold"]["host"], true);
    let records = results["records"].as_array().unwrap();
    let methods = || records.iter().map(|record| record["method"].as_str().unwrap());
    let count = methods().take_while(|&method| method != "cuMemcpy").count() + 1;
    let expected = ["ours", "other", "ours log_level=3"];
    assert_eq!(methods().take(3).collect::<Vec<_>>(), expected);
    assert!(methods().any(|method| method == "ours isa=portable"));
    assert_eq!(results["setup"]["libraries"].as_array().unwrap().len(), count - 2);
    // Directions, sizes, alignments, host alignments.
    assert_eq!(records.len(), 2 * 4 * 3 * 2 * count);
    for record in records {
        assert!(record["samples"].as_u64() >= Some(21), "{record}");
        assert_eq!(record["alignment_bytes"], record["offset_bytes"].as_u64().unwrap() % 64);
    }
    assert!(std::fs::read_to_string(svg).unwrap().contains("ours, Reads"));
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
fn old_names_of_options_are_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("c.svg");
    let options = ["--kernel-matrix", "--direction=to", "--sizes=8", "--alignments=0"];
    let mut command = gdrcopy(&[], &["compare", &lib(), "--budget=0", "--format=csv"]);
    command.args(options).arg("--svg").arg(&svg);
    let output = run(&mut command).with_status(0);
    assert!(output.stdout.contains("libgdrapi.so isa=portable,gdr_copy_to_mapping,write,8,"));
    assert!(!output.stdout.contains(",read,"), "{output:?}");
    assert!(svg.exists());
}

/// Runs `compare --batch`. Returns what it printed, and its records.
fn batch(options: &[&str], environment: &[(&str, &str)]) -> (Output, Vec<Value>) {
    let json = tempfile::NamedTempFile::new().unwrap();
    let mut command = gdrcopy(&[], &["compare", "--batch", "--budget=0", &lib()]);
    command.args(options).arg("--json").arg(json.path()).envs(environment.iter().copied());
    let output = run(&mut command).with_status(0);
    let results: Value = serde_json::from_reader(json).unwrap();
    (output, results["records"].as_array().unwrap().clone())
}

#[test]
fn batch_compares_the_crate_with_single_calls() {
    let (output, records) = batch(&[], &[]);
    output.prints(&["gdr_copy_to_mapping", "Batch", "gdr_copy_from_mapping", "read_many", "load_all"]);
    // Five batch sizes, that is two methods for three sizes in two directions,
    // and words.
    assert_eq!(records.len(), 5 * (2 * 3 * 2 + 1));
    assert_eq!(records[0]["pattern"], "random");
}

#[test]
fn batch_names_its_patterns_and_takes_the_routine_from_the_environment() {
    let options = ["--direction=read", "--pattern=even,page"];
    let (output, records) = batch(&options, &[("GDRCOPY_ISA", "portable")]);
    output.prints(&["crate gdrcopy: portable"]);
    assert_eq!(records.len(), 2 * 5 * (2 * 3 + 1));
    for pattern in ["even", "page"] {
        let of_it = records.iter().filter(|record| record["pattern"] == pattern);
        assert_eq!(of_it.count(), records.len() / 2, "{pattern}");
        output.prints(&[&format!(" {pattern} |")]);
    }
    run(&mut gdrcopy(&[], &["compare", "--pattern=even", &lib()])).with_status(2);
}
