//! copybw and copylat: what they print, and that every byte is checked.

mod common;

use std::path::Path;

use common::{Said, faulty_library, gdrcopy, library, run};
use serde_json::Value;

const FAST: [&str; 4] = ["-w", "50", "-r", "20"];

/// Runs a tool with the library of this workspace.
fn tool(machine: &[&str], name: &str, options: &[&str]) -> Said {
    let library = format!("ours={}", library().display());
    run(gdrcopy(machine, &[name, "--lib", &library])
        .args(FAST)
        .args(options))
}

/// Runs a tool with it twice.
fn with_two(name: &str, options: &[&str]) -> Said {
    let other = format!("other={}", library().display());
    let mut all = vec!["--lib", &other];
    all.extend(options);
    tool(&[], name, &all)
}

/// The line's number behind `label`, as scripts look for it.
fn number_behind(text: &str, label: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    let line = line.unwrap_or_else(|| panic!("no line {label}: {text}"));
    let number = line.strip_suffix("MB/s").expect(line);
    number.parse().expect(line)
}

fn records(json: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(json).unwrap();
    document["records"].as_array().unwrap().clone()
}

#[test]
fn copybw_prints_what_scripts_look_for() {
    let said = tool(&["--gpus", "2"], "copybw", &["-d", "1"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(number_behind(&said.stdout, "write BW: ") > 0.0);
    assert!(number_behind(&said.stdout, "read BW: ") > 0.0);
    assert!(said.stdout.contains("GPU 0: gdremu GPU, 0000:"), "{said:?}");
    assert!(said.stdout.contains("(used)"), "{said:?}");
    for fact in [
        "131072 bytes in pages of 65536",
        "write-combining mapping",
        "cuMemAlloc",
    ] {
        assert!(said.stdout.contains(fact), "{fact}: {said:?}");
    }
    let used = said.stdout.lines().find(|line| line.ends_with("(used)"));
    assert!(used.unwrap().starts_with("GPU 1:"), "{said:?}");
}

#[test]
fn copybw_sweeps_sizes_and_copies_parts() {
    let said = tool(&[], "copybw", &["-l", "4K", "-o", "100", "--format", "csv"]);
    let mut lines = said.stdout.lines();
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    let column = |name| names.iter().position(|&other| other == name).unwrap();
    let rows: Vec<Vec<_>> = lines.map(|line| line.split(',').collect()).collect();
    // 1 to 4096, both directions.
    assert_eq!(rows.len(), 2 * 13);
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row[column("size_bytes")], (1 << (i % 13)).to_string());
        assert_eq!(row[column("offset_bytes")], "100");
        assert_eq!(row[column("error")], "");
        assert!(row[column("p50_ns")].parse::<f64>().unwrap() >= 0.0);
    }

    let said = tool(
        &[],
        "copybw",
        &["-s", "1M", "-c", "1000", "-o", "65535", "--format=json"],
    );
    let records = records(&said.stdout);
    assert_eq!(records.len(), 2);
    for record in records {
        assert_eq!(record["size_bytes"], 1000);
        assert_eq!(record["offset_bytes"], 65535);
        assert_eq!(record["ratio"], Value::Null);
    }
}

#[test]
fn directions_can_be_left_out() {
    let said = tool(&[], "copybw", &["-w", "0"]);
    assert!(!said.stdout.contains("write BW"), "{said:?}");
    assert!(said.stdout.contains("read BW"), "{said:?}");
}

#[test]
fn copylat_has_its_columns() {
    let said = tool(&[], "copylat", &["-s", "8K", "-c"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    let header = said.stdout.lines().find(|line| line.starts_with("Test"));
    let names: Vec<_> = header.expect("a header").split_whitespace().collect();
    let times = ["P50.Time(us)", "P0.Time(us)", "P99.Time(us)"];
    assert_eq!(names, [&["Test", "Size(B)"][..], &times].concat());
    let functions = [
        "gdr_copy_to_mapping",
        "gdr_copy_from_mapping",
        "cuMemcpyHtoD",
        "cuMemcpyDtoH",
    ];
    assert_eq!(
        said.stdout.matches(" calls each size\nTest").count(),
        2,
        "{said:?}"
    );
    for function in functions {
        let lines = said
            .stdout
            .lines()
            .filter(|line| line.starts_with(function));
        let sizes: Vec<usize> = lines
            .map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
            .collect();
        let doubling: Vec<_> = (0..14).map(|exponent| 1 << exponent).collect();
        assert_eq!(sizes, doubling, "{function}");
    }
}

#[test]
fn two_libraries_stand_side_by_side() {
    for name in ["copybw", "copylat"] {
        let said = with_two(name, &["-s", "64K"]);
        assert_eq!(said.status, Some(0), "{said:?}");
        for text in ["ours", "other", "Ratio"] {
            assert!(said.stdout.contains(text), "{name}: {said:?}");
        }
        let said = with_two(name, &["-s", "64K", "--format", "json"]);
        let records = records(&said.stdout);
        assert_eq!(records.len() % 4, 0, "{name}");
        for record in records {
            let is_first = record["method"] == "ours";
            assert_eq!(record["ratio"].is_number(), !is_first, "{name}: {record}");
            assert_eq!(
                record["samples"].as_u64(),
                Some(record["iterations"].as_u64().unwrap().min(100))
            );
        }
    }
}

#[test]
fn plots_have_a_line_for_each_library_and_direction() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["copybw", "copylat"] {
        let file = folder.path().join(name);
        let said = with_two(name, &["-s", "4K", "--plot", file.to_str().unwrap()]);
        assert_eq!(said.status, Some(0), "{said:?}");
        let svg = std::fs::read_to_string(&file).unwrap();
        for text in [
            "ours, write",
            "ours, read",
            "other, write",
            "other, read",
            "MiB/s",
        ] {
            assert!(svg.contains(text), "{name}: {text}");
        }
    }
}

#[test]
fn results_are_told_also_where_they_cannot_be_drawn() {
    let said = tool(&[], "copybw", &["--plot", "/nowhere/plot.svg"]);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.stdout.contains("write BW: "), "{said:?}");
    assert!(said.stderr.contains("/nowhere/plot.svg"), "{said:?}");
}

/// Runs a tool with a library that spoils copies.
fn spoilt(name: &str, fault: &str, folder: &Path, options: &[&str]) -> Said {
    let faulty = format!("--lib=faulty={}", faulty_library(folder).display());
    run(gdrcopy(&[], &[name, &faulty])
        .args(FAST)
        .args(options)
        .env("FAULTY", fault)
        .env("FAULTY_BEHIND", library()))
}

#[test]
fn wrong_copies_are_told_with_status_1() {
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("copybw", &["-c", "1000", "-o", "8"][..]),
        // Smaller than its pages, so that a write that is too long stays inside the mapping.
        ("copylat", &["-s", "60K"]),
    ] {
        for (fault, wrong) in [("short", "to"), ("long", "to"), ("wrong", "from")] {
            let said = spoilt(name, fault, folder.path(), options);
            assert_eq!(said.status, Some(1), "{name} {fault}: {said:?}");
            assert!(said.stdout.contains("FAILED"), "{name} {fault}: {said:?}");
            let function = format!("gdr_copy_{wrong}_mapping of ");
            assert!(said.stderr.contains(&function), "{name} {fault}: {said:?}");
            let other = match wrong {
                "to" => "gdr_copy_from_mapping of ",
                _ => "gdr_copy_to_mapping of ",
            };
            assert!(!said.stderr.contains(other), "{name} {fault}: {said:?}");
        }
    }
}

#[test]
fn who_asks_not_to_verify_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let said = spoilt("copybw", "short", folder.path(), &["--verify=no"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.stdout.contains("write BW: "), "{said:?}");
}

#[test]
fn cold_copies_are_for_cached_mappings() {
    let said = tool(&["--platform", "cached"], "copylat", &["-s", "4K", "-C"]);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.stdout.contains("cached mapping"), "{said:?}");
    let said = tool(&[], "copylat", &["-s", "4K", "-C"]);
    assert_eq!(said.status, Some(2), "{said:?}");
    assert!(said.stderr.contains("cached mappings"), "{said:?}");
}

#[test]
fn ranges_that_do_not_fit_are_wrong_usage() {
    for options in [
        &["-o", "131072"][..],
        &["-c", "131073"],
        &["-c", "100", "-o", "131000"],
        &["-c", "0"],
        &["-l", "256K"],
        &["-l", "-c", "5"],
        &["-s", "1X"],
    ] {
        let said = tool(&[], "copybw", options);
        assert_eq!(said.status, Some(2), "{options:?}: {said:?}");
        assert!(said.stderr.contains("--help"), "{options:?}: {said:?}");
    }
    assert_eq!(tool(&[], "copylat", &["-s", "0"]).status, Some(2));
}
