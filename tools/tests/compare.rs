//! `gdrcopy compare`: methods side by side, every byte checked.

mod common;

use std::path::Path;

use common::{Output, faulty_library, gdrcopy, library, run};
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
            "--variant=GDRCOPY_THREADS=3",
            "--cold",
        ],
        &[],
    );
    assert_eq!(output.status, Some(0), "{output:?}");
    for table in ["write, ns: ours\n", "read, host 3 past a line, ns: cuMemcpy\n"] {
        assert!(output.stdout.contains(table), "{table}: {output:?}");
    }
    for method in ["memcpy", "cuMemcpy"] {
        let crossover = format!("read: {method} is faster than ours from: ");
        assert!(output.stdout.contains(&crossover), "{output:?}");
    }

    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(results["cold"]["host"], true);
    let records = results["records"].as_array().unwrap();
    let methods = || records.iter().map(|record| record["method"].as_str().unwrap());
    let count = methods().take_while(|&method| method != "cuMemcpy").count() + 1;
    let expected = ["ours", "other", "ours threads=3"];
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
    let faulty = faulty_library(directory.path());
    let behind = directory.path().join("behind.so");
    std::fs::copy(library(), &behind).unwrap();
    for (fault, direction) in [("short", "write"), ("long", "write"), ("wrong", "read")] {
        let environment = [("FAULTY", fault), ("FAULTY_BEHIND", behind.to_str().unwrap())];
        let json = directory.path().join("c.json");
        let option = format!("--json={}", json.display());
        let output = compare(&faulty, &[&option], &environment);
        assert_eq!(output.status, Some(1), "{fault}: {output:?}");
        assert!(output.stdout.contains("FAILED"), "{fault}");
        assert!(output.stderr.contains("wrong copy: other: "), "{fault}: {output:?}");
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
    let lib = format!("--lib={}", library().display());
    let options = ["--kernel-matrix", "--direction=to", "--sizes=8", "--alignments=0"];
    let mut command = gdrcopy(&[], &["compare", &lib, "--budget=0", "--format=csv"]);
    command.args(options).arg("--svg").arg(&svg);
    let output = run(&mut command);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.stdout.contains("libgdrapi.so isa=portable,gdr_copy_to_mapping,write,8,"));
    assert!(!output.stdout.contains(",read,"), "{output:?}");
    assert!(svg.exists());
}

#[test]
fn batch_compares_the_crate_with_single_calls() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("c.json");
    let (lib, json_option) = (format!("--lib=ours={}", library().display()), format!("--json={}", json.display()));
    let output = run(&mut gdrcopy(&[], &["compare", "--batch", "--budget=0", &lib, &json_option]));
    assert_eq!(output.status, Some(0), "{output:?}");
    for method in ["gdr_copy_to_mapping", "Batch", "gdr_copy_from_mapping", "read_many", "load_all"] {
        assert!(output.stdout.contains(method), "{method}: {output:?}");
    }
    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    // Five batch sizes, that is two methods for three sizes in two directions,
    // and words.
    assert_eq!(results["records"].as_array().unwrap().len(), 5 * (2 * 3 * 2 + 1));
    assert_eq!(results["records"][0]["pattern"], "random");
}

#[test]
fn batch_names_its_patterns_and_takes_the_routine_from_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("c.json");
    let (lib, json_option) = (format!("--lib=ours={}", library().display()), format!("--json={}", json.display()));
    let patterns = ["even", "page"];
    let mut command = gdrcopy(
        &[],
        &["compare", "--batch", "--budget=0", "--direction=read", "--pattern=even,page", &lib, &json_option],
    );
    let output = run(command.env("GDRCOPY_ISA", "portable"));
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.stdout.contains("crate gdrcopy: portable"), "{output:?}");
    let results: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let records = results["records"].as_array().unwrap();
    assert_eq!(records.len(), 2 * 5 * (2 * 3 + 1));
    for pattern in patterns {
        let of_it = records.iter().filter(|record| record["pattern"] == pattern);
        assert_eq!(of_it.count(), records.len() / 2, "{pattern}");
        assert!(output.stdout.contains(pattern), "{output:?}");
    }
    let refused = run(&mut gdrcopy(&[], &["compare", "--pattern=even", &lib]));
    assert_eq!(refused.status, Some(2), "{refused:?}");
}
