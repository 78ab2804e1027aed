//! The output of copybw and copylat, and that every byte is checked.

mod common;

use std::fs;

use common::{Output, assert_documented, corrupted, gdrcopy, lib, library, run};
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

fn records(output: &Output) -> Vec<Value> {
    output.json()["records"].as_array().unwrap().clone()
}

#[test]
fn copybw_prints_the_lines_that_scripts_search_for() {
    let output = tool(&["--gpus", "2"], "copybw", &["-d", "1"]).with_status(0);
    assert!(number_after(&output.stdout, "write BW: ") > 0.0);
    assert!(number_after(&output.stdout, "read BW: ") > 0.0);
    output.prints(&["GPU 0: gdremu GPU, 0000:", "(used)"]);
    output.prints(&["131072 bytes in pages of 65536", "write-combining mapping", "cuMemAlloc"]);
    let used = output.stdout.lines().find(|line| line.ends_with("(used)"));
    assert!(used.unwrap().starts_with("GPU 1:"), "{output:?}");
}

#[test]
fn copybw_sweeps_sizes_and_copies_parts() {
    let output = tool(&[], "copybw", &["-l", "4K", "-o", "100", "--format", "json"]);
    let all = records(&output);
    // 1 to 4096, both directions.
    assert_eq!(all.len(), 2 * 13);
    for (i, record) in all.iter().enumerate() {
        assert_eq!(record["size_bytes"], 1 << (i % 13));
        assert_eq!(record["offset_bytes"], 100);
        assert_eq!(record["error"], Value::Null);
        assert!(record["p50_ns"].as_f64().unwrap() >= 0.0);
    }

    let output = tool(&[], "copybw", &["-s", "1M", "-c", "1000", "-o", "65535", "--format=json"]);
    let parts = records(&output);
    assert_eq!(parts.len(), 2);
    for record in parts {
        assert_eq!(record["size_bytes"], 1000);
        assert_eq!(record["offset_bytes"], 65535);
        assert_eq!(record["ratio"], Value::Null);
    }
}

#[test]
fn json_has_the_documented_keys() {
    for options in [
        &["copybw"][..],
        &["copylat", "-s", "64"],
        &["compare", "--sizes=64", "--budget=0"],
        &["apiperf", "-s", "64K"],
        &["pplat", "-t", "20", "-B", "2", "-T", "3"],
    ] {
        let output = run(gdrcopy(&[], options).args([&lib(), "--format=json"])).with_status(0);
        assert_documented(options[0], &output.json());
    }
}

#[test]
fn directions_can_be_left_out() {
    let output = tool(&[], "copybw", &["-w", "0"]);
    assert!(!output.stdout.contains("write BW"), "{output:?}");
    output.prints(&["read BW"]);
}

#[test]
fn copylat_has_its_columns() {
    let output = tool(&[], "copylat", &["-s", "8K", "-c"]).with_status(0);
    let header = output.stdout.lines().find(|line| line.starts_with("Test"));
    let names: Vec<_> = header.expect("a header").split_whitespace().collect();
    assert_eq!(names, ["Test", "Size(B)", "P50(us)", "P0(us)", "P99(us)", "MiB/s"]);
    let functions = ["gdr_copy_to_mapping", "gdr_copy_from_mapping", "cuMemcpyHtoD", "cuMemcpyDtoH"];
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
        let output = with_two(name, &["-s", "64K"]).with_status(0);
        output.prints(&["write, ours: 50 calls each size", "read, other: 20 calls each size", "Ratio"]);
        // The path of a library can be longer.
        let too_wide = |line: &&str| line.chars().count() > 80 && !line.contains('/');
        assert_eq!(output.stdout.lines().find(too_wide), None);
        let output = with_two(name, &["-s", "64K", "--format", "json"]);
        let records = records(&output);
        assert_eq!(records.len() % 4, 0, "{name}");
        for record in records {
            let is_first = record["method"] == "ours";
            assert_eq!(record["ratio"].is_number(), !is_first, "{name}: {record}");
            assert_eq!(record["samples"].as_u64(), Some(record["iterations"].as_u64().unwrap().min(100)));
        }
    }
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_measurement() {
    for tool in ["copybw", "copylat", "compare", "apiperf", "pplat", "tune"] {
        for option in ["--json", "--plot"] {
            if option == "--plot" && ["pplat", "tune"].contains(&tool) {
                continue;
            }
            let trace = tempfile::NamedTempFile::new().unwrap();
            let emulated = ["--trace", trace.path().to_str().unwrap()];
            let output = run(&mut gdrcopy(&emulated, &[tool, &lib(), option, "/nowhere/file"])).with_status(1);
            output.reports(&["/nowhere/file cannot be written: name another file"]);
            assert_eq!(fs::read_to_string(trace.path()).unwrap(), "", "{tool}");
        }
    }
}

#[test]
fn wrong_copies_give_status_1() {
    for (name, options) in [
        ("copybw", &["-c", "1000", "-o", "8"][..]),
        // Smaller than its pages, so that a write that is too long stays inside the mapping.
        ("copylat", &["-s", "60K"]),
    ] {
        for (fault, wrong) in [("short", "to"), ("long", "to"), ("wrong", "from")] {
            let output = corrupted(name, fault, &[&FAST, options].concat()).with_status(1);
            output.prints(&["FAILED"]);
            let function = format!("gdr_copy_{wrong}_mapping of ");
            output.reports(&[&function]);
            let other = if wrong == "to" { "gdr_copy_from_mapping of " } else { "gdr_copy_to_mapping of " };
            assert!(!output.stderr.contains(other), "{name} {fault}: {output:?}");
        }
    }
}

#[test]
fn verify_no_skips_the_check() {
    corrupted("copybw", "short", &["--verify=no", "-w", "50", "-r", "20"]).with_status(0).prints(&["write BW: "]);
}

#[test]
fn cold_device_needs_a_cached_mapping() {
    tool(&["--platform", "cached"], "copylat", &["-s", "4K", "-C"]).with_status(0).prints(&["cached mapping"]);
    tool(&[], "copylat", &["-s", "4K", "-C"]).with_status(2).reports(&["cached mappings"]);
}

#[test]
fn force_pcie_changes_the_mapping_of_a_coherent_gpu() {
    let coherent = ["--platform", "cached"];
    let output = tool(&coherent, "copybw", &[]);
    output.prints(&["cached mapping"]);
    for name in ["copybw", "copylat", "apiperf"] {
        let options = ["-s", "64K", "-P"];
        let run = |emulated: &[&str]| run(gdrcopy(emulated, &[name, &lib(), "-w", "5"]).args(options));
        run(&coherent).with_status(0).prints(&["write-combining"]);
        run(&[]).with_status(1).reports(&["gdr_pin_buffer_v2", "Leave out -P"]);
        run(&[&coherent[..], &["--fault", "PIN_BUFFER_V2:ENOMEM"]].concat()).reports(&["BAR1"]);
    }
}

#[test]
fn plots_have_a_curve_per_library_and_say_that_the_gpu_is_emulated() {
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("chart.svg");
    let copies: &[_] = &["write: time; ours from", "; other from", "read: bandwidth; ours from"];
    for (options, curves) in [
        (&["copybw", "-l", "-s", "4K", "-w", "50"][..], copies),
        (&["copylat", "-s", "4K", "-w", "50"], copies),
        (&["compare", "--sizes=64", "--budget=0"], copies),
        (&["apiperf", "-s", "64K"], &["pin: time; ours from", "unpin: time; ours from", "; other from"]),
    ] {
        let libraries = ["ours", "other"].map(|label| format!("--lib={label}={}", library().display()));
        let output = run(gdrcopy(&[], options).args(&libraries).arg("--plot").arg(&chart)).with_status(0);
        assert_eq!(output.stderr.matches("the GPU is emulated").count(), 1, "{output:?}");
        let svg = fs::read_to_string(&chart).unwrap();
        for text in [&["emulated, not PCIe: "], curves].concat() {
            assert!(svg.contains(text), "{options:?}: {text}");
        }
        assert!(!svg.contains("PCIe 5.0"), "{options:?}");
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
        tool(&[], "copybw", options).with_status(2).reports(&["--help"]);
    }
    assert_eq!(tool(&[], "copylat", &["-s", "0"]).status, Some(2));
}
