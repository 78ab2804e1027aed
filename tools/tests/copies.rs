//! The output of copybw and copylat, and that every byte is checked.

mod common;

use std::fs;
use std::path::Path;

use common::{Output, faulty_library, gdrcopy, library, run};
use serde_json::Value;

const FAST: [&str; 4] = ["-w", "50", "-r", "20"];

/// Runs a tool with the library of this workspace.
fn tool(emulated: &[&str], name: &str, options: &[&str]) -> Output {
    let library = format!("ours={}", library().display());
    run(gdrcopy(emulated, &[name, "--lib", &library]).args(FAST).args(options))
}

/// Runs a tool with it twice.
fn with_two(name: &str, options: &[&str]) -> Output {
    let other = format!("other={}", library().display());
    let mut all = vec!["--lib", &other];
    all.extend(options);
    tool(&[], name, &all)
}

/// The number after `label`, as scripts search for it.
fn number_after(text: &str, label: &str) -> f64 {
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
fn copybw_prints_the_lines_that_scripts_search_for() {
    let output = tool(&["--gpus", "2"], "copybw", &["-d", "1"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(number_after(&output.stdout, "write BW: ") > 0.0);
    assert!(number_after(&output.stdout, "read BW: ") > 0.0);
    assert!(output.stdout.contains("GPU 0: gdremu GPU, 0000:"), "{output:?}");
    assert!(output.stdout.contains("(used)"), "{output:?}");
    for fact in ["131072 bytes in pages of 65536", "write-combining mapping", "cuMemAlloc"] {
        assert!(output.stdout.contains(fact), "{fact}: {output:?}");
    }
    let used = output.stdout.lines().find(|line| line.ends_with("(used)"));
    assert!(used.unwrap().starts_with("GPU 1:"), "{output:?}");
}

#[test]
fn copybw_sweeps_sizes_and_copies_parts() {
    let output = tool(&[], "copybw", &["-l", "4K", "-o", "100", "--format", "csv"]);
    let mut lines = output.stdout.lines();
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

    let output = tool(&[], "copybw", &["-s", "1M", "-c", "1000", "-o", "65535", "--format=json"]);
    let records = records(&output.stdout);
    assert_eq!(records.len(), 2);
    for record in records {
        assert_eq!(record["size_bytes"], 1000);
        assert_eq!(record["offset_bytes"], 65535);
        assert_eq!(record["ratio"], Value::Null);
    }
}

#[test]
fn directions_can_be_left_out() {
    let output = tool(&[], "copybw", &["-w", "0"]);
    assert!(!output.stdout.contains("write BW"), "{output:?}");
    assert!(output.stdout.contains("read BW"), "{output:?}");
}

#[test]
fn copylat_has_its_columns() {
    let output = tool(&[], "copylat", &["-s", "8K", "-c"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let header = output.stdout.lines().find(|line| line.starts_with("Test"));
    let names: Vec<_> = header.expect("a header").split_whitespace().collect();
    let times = ["P50.Time(us)", "P0.Time(us)", "P99.Time(us)"];
    assert_eq!(names, [&["Test", "Size(B)"][..], &times].concat());
    let functions = ["gdr_copy_to_mapping", "gdr_copy_from_mapping", "cuMemcpyHtoD", "cuMemcpyDtoH"];
    assert_eq!(output.stdout.matches(" calls each size\nTest").count(), 2, "{output:?}");
    for function in functions {
        let lines = output.stdout.lines().filter(|line| line.starts_with(function));
        let sizes: Vec<usize> = lines.map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap()).collect();
        let doubling: Vec<_> = (0..14).map(|exponent| 1 << exponent).collect();
        assert_eq!(sizes, doubling, "{function}");
    }
}

#[test]
fn two_libraries_are_shown_side_by_side() {
    for name in ["copybw", "copylat"] {
        let output = with_two(name, &["-s", "64K"]);
        assert_eq!(output.status, Some(0), "{output:?}");
        for text in ["ours", "other", "Ratio"] {
            assert!(output.stdout.contains(text), "{name}: {output:?}");
        }
        let output = with_two(name, &["-s", "64K", "--format", "json"]);
        let records = records(&output.stdout);
        assert_eq!(records.len() % 4, 0, "{name}");
        for record in records {
            let is_first = record["method"] == "ours";
            assert_eq!(record["ratio"].is_number(), !is_first, "{name}: {record}");
            assert_eq!(record["samples"].as_u64(), Some(record["iterations"].as_u64().unwrap().min(100)));
        }
    }
}

#[test]
fn plots_have_a_curve_per_library_and_direction() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["copybw", "copylat"] {
        let file = directory.path().join(name);
        let output = with_two(name, &["-s", "4K", "--plot", file.to_str().unwrap()]);
        assert_eq!(output.status, Some(0), "{output:?}");
        let svg = std::fs::read_to_string(&file).unwrap();
        for text in ["ours, Writes", "ours, Reads", "other, Writes", "other, Reads", "GB/s", "PCIe 5.0 x16"] {
            assert!(svg.contains(text), "{name}: {text}");
        }
    }
}

#[test]
fn results_are_printed_if_the_plot_fails() {
    let output = tool(&[], "copybw", &["--plot", "/nowhere/plot.svg"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stdout.contains("write BW: "), "{output:?}");
    assert!(output.stderr.contains("/nowhere/plot.svg"), "{output:?}");
}

/// Runs a tool with a library that corrupts copies.
fn corrupted(name: &str, fault: &str, directory: &Path, options: &[&str]) -> Output {
    let faulty = format!("--lib=faulty={}", faulty_library(directory).display());
    run(gdrcopy(&[], &[name, &faulty]).args(FAST).args(options).env("FAULTY", fault).env("FAULTY_BEHIND", library()))
}

#[test]
fn wrong_copies_give_status_1() {
    let directory = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("copybw", &["-c", "1000", "-o", "8"][..]),
        // Smaller than its pages, so that a write that is too long stays inside the mapping.
        ("copylat", &["-s", "60K"]),
    ] {
        for (fault, wrong) in [("short", "to"), ("long", "to"), ("wrong", "from")] {
            let output = corrupted(name, fault, directory.path(), options);
            assert_eq!(output.status, Some(1), "{name} {fault}: {output:?}");
            assert!(output.stdout.contains("FAILED"), "{name} {fault}: {output:?}");
            let function = format!("gdr_copy_{wrong}_mapping of ");
            assert!(output.stderr.contains(&function), "{name} {fault}: {output:?}");
            let other = match wrong {
                "to" => "gdr_copy_from_mapping of ",
                _ => "gdr_copy_to_mapping of ",
            };
            assert!(!output.stderr.contains(other), "{name} {fault}: {output:?}");
        }
    }
}

#[test]
fn verify_no_skips_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let output = corrupted("copybw", "short", directory.path(), &["--verify=no"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.stdout.contains("write BW: "), "{output:?}");
}

#[test]
fn cold_device_needs_a_cached_mapping() {
    let output = tool(&["--platform", "cached"], "copylat", &["-s", "4K", "-C"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.stdout.contains("cached mapping"), "{output:?}");
    let output = tool(&[], "copylat", &["-s", "4K", "-C"]);
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(output.stderr.contains("cached mappings"), "{output:?}");
}

#[test]
fn several_runs_use_other_memory_and_show_the_fastest() {
    for (name, column) in [("copybw", "Fastest(us)"), ("copylat", "Fastest.Time(us)")] {
        let trace = tempfile::NamedTempFile::new().unwrap();
        let emulated = ["--trace", trace.path().to_str().unwrap()];
        let output = tool(&emulated, name, &["-s", "64K", "-R", "3"]);
        assert_eq!(output.status, Some(0), "{output:?}");
        assert!(output.stdout.contains(column), "{output:?}");
        let pins = std::fs::read_to_string(trace.path()).unwrap();
        assert_eq!(pins.matches("\"PIN_BUFFER_V2\"").count(), 3, "{pins}");

        let output = tool(&[], name, &["-s", "64K", "-R", "3", "--format=json"]);
        for record in records(&output.stdout) {
            let [p50, fastest] = ["p50_ns", "fastest_run_ns"].map(|time| record[time].as_f64().unwrap());
            assert!(fastest <= p50, "{record}");
        }
        let output = tool(&[], name, &["-s", "64K"]);
        assert!(!output.stdout.contains(column), "{output:?}");
    }
    assert_eq!(tool(&[], "copybw", &["-R", "0"]).status, Some(2));
}

#[test]
fn force_pcie_changes_the_mapping_of_a_coherent_gpu() {
    let coherent = ["--platform", "cached"];
    let output = tool(&coherent, "copybw", &[]);
    assert!(output.stdout.contains("cached mapping"), "{output:?}");
    for name in ["copybw", "copylat", "apiperf"] {
        let options = ["-s", "64K", "-P"];
        let library = format!("--lib={}", library().display());
        let run = |emulated: &[&str]| run(gdrcopy(emulated, &[name, &library, "-w", "5"]).args(options));
        let output = run(&coherent);
        assert_eq!(output.status, Some(0), "{output:?}");
        assert!(output.stdout.contains("write-combining"), "{output:?}");
        let output = run(&[]);
        assert_eq!(output.status, Some(1), "{output:?}");
        assert!(output.stderr.contains("gdr_pin_buffer_v2"), "{output:?}");
        assert!(output.stderr.contains("Leave out -P"), "{output:?}");
        let output = run(&[&coherent[..], &["--fault", "PIN_BUFFER_V2:ENOMEM"]].concat());
        assert!(output.stderr.contains("BAR1"), "{output:?}");
    }
}

#[test]
fn results_of_an_emulated_gpu_are_marked() {
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("chart.svg");
    for name in ["copybw", "copylat", "compare", "apiperf"] {
        let plot = ["-s", "64K", "--plot", chart.to_str().unwrap()];
        let options = if name == "compare" { &["--sizes=64", "--budget=0"][..] } else { &plot[..2] };
        let options = [options, &plot[2..]].concat();
        let output = run(gdrcopy(&[], &[name, "--lib", library().to_str().unwrap()]).args(options));
        assert_eq!(output.status, Some(0), "{name}: {output:?}");
        assert_eq!(output.stderr.matches("the GPU is emulated").count(), 1, "{name}: {output:?}");
        assert!(fs::read_to_string(&chart).unwrap().contains("emulated, not PCIe: "), "{name}");
        fs::remove_file(&chart).unwrap();
    }
}

#[test]
fn ranges_outside_the_buffer_are_refused() {
    for options in [
        &["-o", "131072"][..],
        &["-c", "131073"],
        &["-c", "100", "-o", "131000"],
        &["-c", "0"],
        &["-l", "256K"],
        &["-l", "-c", "5"],
        &["-s", "1X"],
    ] {
        let output = tool(&[], "copybw", options);
        assert_eq!(output.status, Some(2), "{options:?}: {output:?}");
        assert!(output.stderr.contains("--help"), "{options:?}: {output:?}");
    }
    assert_eq!(tool(&[], "copylat", &["-s", "0"]).status, Some(2));
}
