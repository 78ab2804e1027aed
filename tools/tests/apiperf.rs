//! apiperf: one line per size and call.

mod common;

use common::{gdrcopy, lib, library, run};

#[test]
fn text_has_a_line_per_size_and_call() {
    let output = run(&mut gdrcopy(&[], &["apiperf", "-s", "256K", "-n", "20", "-w", "2", &lib()])).with_status(0);
    let header = output.stdout.lines().find(|line| line.starts_with("Call"));
    let names: Vec<_> = header.expect("a header").split_whitespace().collect();
    assert_eq!(names, ["Call", "Size(B)", "P50(us)", "P0(us)", "P99(us)", "Mean(us)"]);
    for size in ["65536", "131072", "262144"] {
        for call in ["pin", "map", "get_info", "unmap", "unpin"] {
            let mut lines = output.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let line = lines.find(|line| line.starts_with(&[call, size]));
            let line = line.unwrap_or_else(|| panic!("{call} {size}: {output:?}"));
            assert_eq!(line.len(), 6, "{line:?}");
            assert!(line[2..].iter().all(|cell| cell.parse::<f64>().is_ok()), "{line:?}");
        }
    }
}

#[test]
fn two_libraries_have_ratios() {
    let (a, b) = (format!("a={}", library().display()), format!("b={}", library().display()));
    let options = ["apiperf", "-s", "64K", "-n", "10", "--lib", &a, "--lib", &b];
    let document = run(gdrcopy(&[], &options).arg("--format=json")).json();
    let records = document["records"].as_array().unwrap();
    assert_eq!(records.len(), 2 * 5);
    for record in records {
        assert_eq!(record["ratio"].is_number(), record["library"] == "b", "{record}");
        assert_eq!(record["samples"], 10);
    }
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
fn size_below_a_page_or_no_iteration_is_refused() {
    for options in [["-s", "65535"], ["-n", "0"]] {
        run(gdrcopy(&[], &["apiperf"]).args(options)).with_status(2);
    }
}
