//! The output of the tools that measure, their checks of every byte, their buffers and CPUs.

mod common;

use std::fs;
use std::io::Write;

use common::{Output, assert_documented, corrupted, gdrcopy, library, run};
use serde_json::Value;

/// Few repetitions, and 64 KiB.
fn few(name: &str) -> &'static [&'static str] {
    match name {
        "compare" => &["--sizes=64", "--budget=0"],
        "apiperf" => &["-s", "64K", "-n", "10", "-w", "3"],
        "pplat" => &["-t", "20", "-B", "2", "-T", "3", "-u", "0"],
        "tune" => &["--budget=4"],
        _ => &["-s", "64K", "-w", "50", "-r", "20"],
    }
}

/// Runs a tool with the library of this workspace.
fn tool(emulated: &[&str], name: &str, options: &[&str]) -> Output {
    let library = format!("ours={}", library().display());
    run(gdrcopy(emulated, &[name, "--lib", &library]).args(few(name)).args(options))
}

/// Runs a tool with it twice.
fn with_two(name: &str, options: &[&str]) -> Output {
    let other = format!("--lib=other={}", library().display());
    tool(&[], name, &[&[&other[..]], options].concat()).with_status(0)
}

fn records(output: &Output) -> Vec<Value> {
    output.json()["records"].as_array().unwrap().clone()
}

/// The words of the lines that begin with one.
fn lines<'a>(output: &'a Output, word: &str) -> Vec<Vec<&'a str>> {
    let mut lines: Vec<Vec<_>> = output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    lines.retain(|line| line.first() == Some(&word));
    lines
}

#[test]
fn copybw_prints_the_lines_that_scripts_search_for() {
    let output = tool(&["--gpus", "2"], "copybw", &["-s", "128K", "-d", "1"]).with_status(0);
    for direction in ["write", "read"] {
        let line = output.stdout.lines().find_map(|line| line.strip_prefix(&format!("{direction} BW: ")));
        let number = line.expect("a line").strip_suffix("MB/s").expect("MB/s");
        assert!(number.parse::<f64>().unwrap() > 0.0, "{output:?}");
    }
    output.prints(&["GPU 0: gdremu GPU, 0000:", "(used)"]);
    output.prints(&["131072 bytes in pages of 65536", "write-combining mapping", "cuMemAlloc"]);
    let used = output.stdout.lines().find(|line| line.ends_with("(used)"));
    assert!(used.unwrap().starts_with("GPU 1:"), "{output:?}");
    let output = tool(&[], "copybw", &["-w", "0"]);
    assert!(!output.stdout.contains("write BW"), "{output:?}");
    output.prints(&["read BW"]);
}

#[test]
fn copybw_sweeps_sizes_and_copies_parts() {
    let all = records(&tool(&[], "copybw", &["-l", "4K", "-o", "100", "--format", "json"]));
    // 1 to 4096, both directions.
    assert_eq!(all.len(), 2 * 13);
    for (i, record) in all.iter().enumerate() {
        assert_eq!(record["size_bytes"], 1 << (i % 13));
        assert_eq!(record["offset_bytes"], 100);
        assert_eq!(record["error"], Value::Null);
        assert!(record["p50_ns"].as_f64().unwrap() >= 0.0);
    }

    let parts = records(&tool(&[], "copybw", &["-s", "1M", "-c", "1000", "-o", "65535", "--format=json"]));
    assert_eq!(parts.len(), 2);
    for record in parts {
        assert_eq!(record["size_bytes"], 1000);
        assert_eq!(record["offset_bytes"], 65535);
        assert_eq!(record["alignment_bytes"], 63);
        assert_eq!(record["lines"], 17);
        assert_eq!(record["ratio"], Value::Null);
    }
}

#[test]
fn json_has_the_documented_keys() {
    for name in ["copybw", "copylat", "compare", "apiperf", "pplat"] {
        assert_documented(name, &tool(&[], name, &["--format=json"]).with_status(0).json());
    }
}

#[test]
fn tables_have_a_line_per_size_and_function() {
    let output = tool(&[], "copylat", &["-s", "8K", "-c"]).with_status(0);
    assert_eq!(lines(&output, "Test")[0], ["Test", "Size(B)", "P50(us)", "P0(us)", "P99(us)", "MiB/s"]);
    for function in ["gdr_copy_to_mapping", "gdr_copy_from_mapping", "cuMemcpyHtoD", "cuMemcpyDtoH"] {
        let sizes: Vec<usize> = lines(&output, function).iter().map(|line| line[1].parse().unwrap()).collect();
        let doubling: Vec<_> = (0..14).map(|exponent| 1 << exponent).collect();
        assert_eq!(sizes, doubling, "{function}");
    }

    let output = tool(&[], "apiperf", &["-s", "256K"]).with_status(0);
    assert_eq!(lines(&output, "Call")[0], ["Call", "Size(B)", "P50(us)", "P0(us)", "P99(us)", "Mean(us)"]);
    for call in ["pin", "map", "get_info", "unmap", "unpin"] {
        let of_call = lines(&output, call);
        assert_eq!(of_call.iter().map(|line| line[1]).collect::<Vec<_>>(), ["65536", "131072", "262144"]);
        for cell in of_call.iter().flat_map(|line| &line[2..]) {
            assert!(cell.parse::<f64>().is_ok(), "{of_call:?}");
        }
    }
}

#[test]
fn two_libraries_are_shown_side_by_side_with_ratios() {
    for (name, count) in [("copybw", 4), ("copylat", 2 * 2 * 17), ("apiperf", 2 * 5), ("pplat", 2)] {
        let output = with_two(name, &[]);
        output.prints(&["ours", "other", "Ratio"]);
        // The path of a library can be longer.
        let too_wide = |line: &&str| line.chars().count() > 80 && !line.contains('/');
        assert_eq!(output.stdout.lines().find(too_wide), None);
        let records = records(&with_two(name, &["--format", "json"]));
        assert_eq!(records.len(), count, "{name}");
        for record in records {
            let label = if record["method"].is_string() { &record["method"] } else { &record["library"] };
            assert_eq!(record["ratio"].is_number(), *label == "other", "{name}: {record}");
            let samples = match (name, record["direction"].as_str()) {
                ("apiperf", _) => 10,
                (_, Some("write")) => 50,
                _ => 20,
            };
            assert_eq!(record["samples"], samples, "{name}: {record}");
        }
    }
    with_two("copybw", &[]).prints(&["write, ours: 50 calls each size", "read, other: 20 calls each size"]);
    // Even if both have one name.
    let label = format!("--lib=ours={}", library().display());
    tool(&[], "copybw", &[&label]).with_status(0).prints(&["ours: write BW", "ours (2): write BW"]);
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_measurement() {
    for name in ["copybw", "copylat", "compare", "apiperf", "pplat", "tune"] {
        for option in ["--json", "--plot"] {
            if option == "--plot" && ["pplat", "tune"].contains(&name) {
                continue;
            }
            let trace = tempfile::NamedTempFile::new().unwrap();
            let emulated = ["--trace", trace.path().to_str().unwrap()];
            let output = tool(&emulated, name, &[option, "/nowhere/file"]).with_status(1);
            output.reports(&["/nowhere/file cannot be written: name another file"]);
            assert_eq!(fs::read_to_string(trace.path()).unwrap(), "", "{name}");
        }
    }
}

#[test]
fn wrong_copies_give_status_1() {
    for (name, options) in [
        ("copybw", &["-s", "128K", "-c", "1000", "-o", "8"][..]),
        // Smaller than its pages, so that a write that is too long stays inside the mapping.
        ("copylat", &["-s", "60K"]),
    ] {
        for (fault, wrong, right) in [("short", "to", "from"), ("long", "to", "from"), ("wrong", "from", "to")] {
            let output = corrupted(name, fault, &[few(name), options].concat()).with_status(1);
            output.prints(&["FAILED"]);
            output.reports(&[&format!("gdr_copy_{wrong}_mapping of ")]);
            let other = format!("gdr_copy_{right}_mapping of ");
            assert!(!output.stderr.contains(&other), "{name} {fault}: {output:?}");
        }
    }
    corrupted("apiperf", "short", few("apiperf")).with_status(1).reports(&["wrong after a write: device byte"]);
}

#[test]
fn cold_device_needs_a_cached_mapping() {
    tool(&["--platform", "cached"], "copylat", &["-s", "4K", "-C"]).with_status(0).prints(&["cached mapping"]);
    tool(&[], "copylat", &["-s", "4K", "-C"]).with_status(2).reports(&["cached mappings"]);
}

#[test]
fn mapping_and_pcie_are_those_of_the_options() {
    let coherent = ["--platform", "cached"];
    tool(&coherent, "copybw", &[]).prints(&["cached mapping"]);
    tool(&coherent, "copybw", &["-M", "wc"]).prints(&["write-combining mapping"]);
    tool(&[], "copybw", &["-M", "cache"]).with_status(1).reports(&["Leave out -M"]);
    for name in ["copybw", "copylat", "apiperf"] {
        tool(&coherent, name, &["-P"]).with_status(0).prints(&["write-combining"]);
        tool(&[], name, &["-P"]).with_status(1).reports(&["gdr_pin_buffer_v2", "Leave out -P"]);
    }
    tool(&[&coherent[..], &["--fault", "PIN_BUFFER_V2:ENOMEM"]].concat(), "copybw", &["-P"]).reports(&["BAR1"]);
}

#[test]
fn plots_have_a_curve_per_library_and_say_that_the_gpu_is_emulated() {
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("chart.svg");
    let copies: &[_] = &["write: time; ours from", "; other from", "read: bandwidth; ours from"];
    for (name, options, curves) in [
        ("copybw", &["-l"][..], copies),
        ("copylat", &[], copies),
        ("compare", &[], copies),
        ("apiperf", &[], &["pin: time; ours from", "unpin: time; ours from", "; other from"]),
    ] {
        let output = with_two(name, &[options, &["--plot", chart.to_str().unwrap()]].concat());
        assert_eq!(output.stderr.matches("the GPU is emulated").count(), 1, "{output:?}");
        let svg = fs::read_to_string(&chart).unwrap();
        for text in [&["emulated, not PCIe: "], curves].concat() {
            assert!(svg.contains(text), "{name}: {text}");
        }
        assert!(!svg.contains("PCIe 5.0"), "{name}");
        fs::remove_file(&chart).unwrap();
    }
}

#[test]
fn ranges_outside_the_buffer_are_refused() {
    for options in [
        &["-o", "65536"][..],
        &["-c", "65537"],
        &["-c", "100", "-o", "65500"],
        &["-c", "0"],
        &["-l", "256K"],
        &["-l", "-c", "5"],
        &["-s", "1X"],
    ] {
        tool(&[], "copybw", options).with_status(2).reports(&["--help"]);
    }
    for (name, option, value) in [("copylat", "-s", "0"), ("apiperf", "-s", "65535"), ("apiperf", "-n", "0")] {
        tool(&[], name, &[option, value]).with_status(2);
    }
}

#[test]
fn apiperf_releases_pins_and_mappings() {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let emulated = ["--trace", trace.path().to_str().unwrap(), "--leak-exit", "99"];
    tool(&emulated, "apiperf", &[]).with_status(0);
    let trace = fs::read_to_string(trace.path()).unwrap();
    let count = |call: &str| trace.matches(&format!("\"{call}\"")).count();
    // One pin shows that the buffer can be pinned, then 3 warm up and 10 are timed.
    assert_eq!(count("PIN_BUFFER") + count("PIN_BUFFER_V2"), 14, "{trace}");
    assert_eq!(count("mmap"), 14);
    assert_eq!(count("UNPIN_BUFFER"), 14);
}

#[test]
fn every_kind_of_memory_is_measured() {
    for name in ["copybw", "copylat", "apiperf"] {
        for (option, kind) in [("cuMemAlloc", "cuMemAlloc"), ("cumemcreate", "cuMemCreate")] {
            let expected = format!("buffer from {kind}:");
            tool(&[], name, &["-a", option]).with_status(0).prints(&[&expected]);
        }
    }
}

#[test]
fn failing_calls_are_explained_with_status_1() {
    for (fault, call, advice) in [
        ("PIN_BUFFER_V2:EINVAL", "gdr_pin_buffer: EINVAL", "-a cuMemCreate"),
        ("PIN_BUFFER_V2:ENOMEM", "gdr_pin_buffer: ENOMEM", "BAR1"),
        ("MMAP:EAGAIN", "gdr_map: EAGAIN", "GDRCOPY_ENABLE_LOGGING=1"),
        ("OPEN:EACCES", "gdr_open", "gdrcopy doctor"),
        ("cuMemAlloc:2", "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY", "(2)"),
        ("cuMemAlloc:4242", "cuMemAlloc: ", "(4242)"),
    ] {
        for name in ["copybw", "copylat", "apiperf"] {
            let output = tool(&["--fault", fault], name, &[]).with_status(1);
            output.reports(&[call, advice]);
            assert_eq!(output.stdout, "", "{name} {fault}");
        }
    }
}

#[test]
fn measuring_cpu_is_reported() {
    let output = tool(&[], "copybw", &["--cpu", "0"]);
    output.prints(&["on CPU 0"]);
    assert!(!output.stderr.contains("--cpu"), "{output:?}");
    tool(&[], "copybw", &["--cpu", "0", "--format", "json"]).prints(&["\"cpu\": 0"]);
    tool(&[], "copybw", &["--cpu", "1023"]).with_status(1).reports(&["cannot run on CPU [1023]"]);
    for wrong in ["x", "3-1", ""] {
        assert_eq!(tool(&[], "copybw", &["--cpu", wrong]).status, Some(2), "{wrong}");
    }
}

#[test]
fn cpu_on_another_node_gives_a_warning() {
    let is_here = |node: &usize| fs::exists(format!("/sys/devices/system/cpu/cpu0/node{node}")).unwrap_or(false);
    let Some(node) = (0..64).find(is_here) else {
        eprintln!("skipped: the kernel does not report the NUMA nodes of CPUs");
        return;
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}", node + 3).unwrap();
    let emulated = format!("--file=/sys/bus/pci/devices/0000:1b:00.0/numa_node={}", file.path().display());
    let output = tool(&[&emulated], "copybw", &["--cpu", "0"]).with_status(0);
    output.reports(&[&format!("CPU 0 is on NUMA node {node}, the GPU on node {}", node + 3)]);
    output.prints(&[&format!("on CPU 0, GPU on NUMA node {}", node + 3)]);
}
