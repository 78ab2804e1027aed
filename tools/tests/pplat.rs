//! `gdrcopy pplat` under gdremu, which runs its GPU kernel.

mod common;

use common::{Output, corrupted, gdrcopy, lib, run};

/// Few rounds and threads, as the GPU kernel is interpreted.
const SMALL: [&str; 8] = ["-t", "20", "-B", "2", "-T", "3", "-u", "0"];

/// Runs pplat with this workspace's library.
fn pplat(options: &[&str]) -> Output {
    run(gdrcopy(&[], &["pplat", &lib()]).args(SMALL).args(options))
}

#[test]
fn flags_and_data_go_both_ways_from_and_to_any_memory() {
    let places = ["gpumem", "hostmem"];
    for mode in ["0", "1"] {
        for gpu_flag in places {
            for cpu_flag in places {
                for data in places {
                    let output = pplat(&[
                        "-m", mode, "-G", gpu_flag, "-C", cpu_flag, "-D", data, "-s", "1001", "--format", "json",
                    ])
                    .with_status(0);
                    let document = output.json();
                    let record = &document["records"][0];
                    assert_eq!(record["producer"], ["cpu", "gpu"][usize::from(mode == "1")]);
                    assert_eq!(record["gpu_flag"], gpu_flag);
                    assert_eq!(record["cpu_flag"], cpu_flag);
                    assert_eq!(record["data"], data);
                    assert_eq!(record["samples"], 20);
                    assert_eq!(record["wrong_words"], 0);
                    let time = |name: &str| record[name].as_f64().unwrap();
                    assert!(0.0 < time("p0_ns") && time("p0_ns") <= time("p50_ns"));
                    assert!(time("p50_ns") <= time("p99_ns"));
                }
            }
        }
    }
}

#[test]
fn default_is_flags_only_in_a_table() {
    let output = pplat(&[]).with_status(0);
    output.prints(&["the CPU produces 0 bytes"]);
    let mut lines = output.stdout.lines().rev();
    let cells: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert!(cells[1..].iter().all(|cell| cell.parse::<f64>().unwrap() > 0.0));
    let names = lines.next().unwrap().split("  ").map(str::trim);
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["Round trip", "P50(us)", "P0(us)", "P99(us)"]);
    assert_eq!(cells.len(), names.len());
}

#[test]
fn wrong_data_is_found_on_both_sides() {
    for (fault, mode) in [("short", "0"), ("wrong", "1")] {
        let output = corrupted("pplat", fault, &[&SMALL[..], &["-m", mode, "-s", "102", "--format", "json"]].concat())
            .with_status(1);
        output.reports(&["words of the data were wrong"]);
        // One word per round; 10 more rounds than are timed.
        assert_eq!(output.json()["records"][0]["wrong_words"], 30, "{output:?}");
    }
}

#[test]
fn missing_answer_ends_the_run() {
    // The library corrupts what the CPU reads from its flag.
    let output = corrupted("pplat", "wrong", &[&SMALL[..], &["-C", "gpumem", "-u", "1"]].concat()).with_status(1);
    let expected = "the GPU has not answered round 1 within 1 s";
    output.reports(&[expected]);
}

#[test]
fn impossible_launches_are_explained() {
    run(&mut gdrcopy(&[], &["pplat", &lib(), "-B", "10000"])).with_status(1).reports(&["use a smaller -B or -T"]);
    for wrong in [["-B", "0"], ["-T", "1025"], ["-m", "2"], ["-G", "disk"], ["-t", "0"]] {
        run(&mut gdrcopy(&[], &["pplat", wrong[0], wrong[1]])).with_status(2);
    }
    run(&mut gdrcopy(&[], &["pplat", "-s", "5G"])).with_status(2).reports(&["4G"]);
}

#[test]
fn dma_bufs_replace_gdrdrv() {
    let emulated = ["--no-gdrdrv", "--cuda-version", "13.3"];
    run(gdrcopy(&emulated, &["pplat", &lib(), "-s", "4096"]).args(SMALL)).with_status(0);
}
