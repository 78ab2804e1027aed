//! apiperf: one line per size, and a histogram of the pins.

mod common;

use common::{gdrcopy, lib, library, run};

#[test]
fn text_lists_calls_and_sizes() {
    let output = run(&mut gdrcopy(&[], &["apiperf", "-s", "256K", "-n", "20", "-w", "2", &lib()])).with_status(0);
    let header = output.stdout.lines().find(|line| line.starts_with("Size(B)"));
    let names: Vec<_> = header.expect("a header").split_whitespace().skip(2).collect();
    let calls = ["pin", "map", "get_info", "unmap", "unpin"];
    assert_eq!(names, calls.map(|call| format!("{call}.Time(us)")));
    for size in ["65536", "131072", "262144"] {
        let line = output.stdout.lines().find(|line| line.starts_with(size));
        let cells: Vec<_> = line.expect(size).split_whitespace().skip(2).collect();
        assert_eq!(cells.len(), 5, "{output:?}");
        assert!(cells.iter().all(|cell| cell.parse::<f64>().is_ok()), "{cells:?}");
        assert!(output.stdout.contains(&format!("histogram of pin, {size} bytes")));
    }
    // Ten bars a size, twenty pins in each histogram.
    let bars: Vec<_> = output.stdout.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(bars.len(), 30);
    let counts = bars.iter().map(|bar| {
        let behind = bar.split_once(']').unwrap().1;
        behind.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    });
    assert_eq!(counts.sum::<usize>(), 60);
}

#[test]
fn two_libraries_have_ratios() {
    let (a, b) = (format!("a={}", library().display()), format!("b={}", library().display()));
    let options = ["apiperf", "-s", "64K", "-n", "10", "--lib", &a, "--lib", &b];
    run(&mut gdrcopy(&[], &options)).prints(&["P50 ratio"]);
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("plot.svg");
    let output = run(gdrcopy(&[], &options).args(["--format=json", "--plot"]).arg(&plot));
    let document = output.json();
    let records = document["records"].as_array().unwrap();
    assert_eq!(records.len(), 2 * 5);
    for record in records {
        assert_eq!(record["ratio"].is_number(), record["library"] == "b", "{record}");
        assert_eq!(record["samples"], 10);
    }
    assert_eq!(document["pins"][0]["ns"].as_array().unwrap().len(), 10);
    assert!(std::fs::read_to_string(plot).unwrap().contains("b, unpin"));
}

#[test]
fn pins_and_mappings_are_released() {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let emulated = ["--trace", trace.path().to_str().unwrap(), "--leak-exit", "99"];
    run(&mut gdrcopy(&emulated, &["apiperf", "-s", "64K", "-n", "10", "-w", "3", &lib()])).with_status(0);
    let trace = std::fs::read_to_string(trace.path()).unwrap();
    let count = |call: &str| trace.matches(&format!("\"{call}\"")).count();
    // One pin shows that the buffer can be pinned, then 3 warm up and 10 are timed.
    assert_eq!(count("PIN_BUFFER") + count("PIN_BUFFER_V2"), 14, "{trace}");
    assert_eq!(count("mmap"), 14);
    assert_eq!(count("UNPIN_BUFFER"), 14);
}

#[test]
fn several_runs_use_other_memory_and_show_the_fastest() {
    let library = lib();
    let trace = tempfile::NamedTempFile::new().unwrap();
    let emulated = ["--trace", trace.path().to_str().unwrap()];
    let options = ["apiperf", "-s", "64K", "-n", "10", "-w", "3", "-R", "2", &library];
    run(&mut gdrcopy(&emulated, &options)).with_status(0).prints(&["median and of the fastest run"]);
    let trace = std::fs::read_to_string(trace.path()).unwrap();
    // In each run one that shows that the buffer can be pinned, 3 that warm up, and 10 timed ones.
    assert_eq!(trace.matches("\"PIN_BUFFER_V2\"").count(), 28, "{trace}");

    let output = run(gdrcopy(&[], &options).arg("--format=json"));
    let document = output.json();
    assert_eq!(document["runs"], 2);
    assert_eq!(document["pins"][0]["ns"].as_array().unwrap().len(), 20);
    for record in document["records"].as_array().unwrap() {
        assert!(record["fastest_run_ns"].as_f64() <= record["p50_ns"].as_f64());
    }
}

#[test]
fn size_below_a_page_or_no_iteration_is_refused() {
    for options in [["-s", "65535"], ["-n", "0"]] {
        run(gdrcopy(&[], &["apiperf"]).args(options)).with_status(2);
    }
}
