//! `gdrcopy pplat` under gdremu, which runs its GPU kernel.

mod common;

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use common::{Output, faulty_library, gdrcopy, library, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Few rounds and threads, as the GPU kernel is interpreted.
const SMALL: [&str; 8] = ["-t", "20", "-B", "2", "-T", "3", "-u", "0"];

/// Runs pplat with this workspace's library.
fn pplat(options: &[&str]) -> Output {
    let library = library();
    let mut arguments = vec!["pplat", "--lib", library.to_str().unwrap()];
    arguments.extend(SMALL);
    arguments.extend(options);
    run(&mut gdrcopy(&[], &arguments))
}

fn document(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
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
                    ]);
                    assert_eq!(output.status, Some(0), "{output:?}");
                    let document = document(&output);
                    assert_eq!(document["verified"], true);
                    let record = &document["records"][0];
                    assert_eq!(record["producer"], ["cpu", "gpu"][usize::from(mode == "1")]);
                    assert_eq!(record["gpu_flag"], gpu_flag);
                    assert_eq!(record["cpu_flag"], cpu_flag);
                    assert_eq!(record["data"], data);
                    assert_eq!(record["iterations"], 20);
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
    let output = pplat(&[]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(output.stdout.contains("the CPU produces 0 bytes"), "{output:?}");
    let mut lines = output.stdout.lines().rev();
    let cells: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert!(cells[1..].iter().all(|cell| cell.parse::<f64>().unwrap() > 0.0));
    let names = lines.next().unwrap().split("  ").map(str::trim);
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["Round trip", "P0.Time(us)", "P50.Time(us)", "P99.Time(us)"]);
    assert_eq!(cells.len(), names.len());
}

#[test]
fn two_libraries_take_turns() {
    let file = library();
    let second = format!("second={}", file.display());
    let output = pplat(&["--lib", &second, "--format", "csv", "-s", "64"]);
    assert_eq!(output.status, Some(0), "{output:?}");
    let mut reader = csv::Reader::from_reader(output.stdout.as_bytes());
    let names = reader.headers().unwrap().clone();
    let lines: Vec<_> = reader.records().map(Result::unwrap).collect();
    let cell = |line: usize, name| {
        let column = names.iter().position(|other| other == name).unwrap();
        lines[line][column].to_owned()
    };
    assert_eq!(lines.len(), 2);
    assert_eq!(cell(0, "library"), "libgdrapi.so");
    assert_eq!(cell(1, "library"), "second");
    assert_eq!(cell(0, "iterations"), "20");
    assert_eq!(cell(1, "iterations"), "20");
    assert_eq!(cell(0, "ratio"), "1.0");
    assert!(cell(1, "ratio").parse::<f64>().unwrap() > 0.0);
}

/// Runs pplat with a library that corrupts copies.
fn faulty(fault: &str, options: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let faulty = faulty_library(directory.path());
    let mut arguments = vec!["pplat", "--lib", faulty.to_str().unwrap()];
    arguments.extend(SMALL);
    arguments.extend(options);
    let mut command = gdrcopy(&[], &arguments);
    run(command.env("FAULTY", fault).env("FAULTY_BEHIND", library()))
}

#[test]
fn wrong_data_is_found_on_both_sides() {
    for (fault, mode) in [("short", "0"), ("wrong", "1")] {
        let output = faulty(fault, &["-m", mode, "-s", "102", "--format", "json"]);
        assert_eq!(output.status, Some(1), "{output:?}");
        assert!(output.stderr.contains("words of the data were wrong"), "{output:?}");
        // One word per round; 10 more rounds than are timed.
        assert_eq!(document(&output)["records"][0]["wrong_words"], 30, "{output:?}");
        let output = faulty(fault, &["-m", mode, "-s", "102", "--verify=no"]);
        assert_eq!(output.status, Some(0), "{output:?}");
    }
}

#[test]
fn missing_answer_ends_the_run() {
    // The library corrupts what the CPU reads from its flag.
    let output = faulty("wrong", &["-C", "gpumem", "-u", "1"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    let expected = "the GPU has not answered round 1 within 1 s";
    assert!(output.stderr.contains(expected), "{output:?}");
}

#[test]
fn impossible_launches_are_explained() {
    let file = library();
    let lib = file.to_str().unwrap();
    let output = run(&mut gdrcopy(&[], &["pplat", "--lib", lib, "-B", "10000"]));
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(output.stderr.contains("use a smaller -B or -T"), "{output:?}");
    for wrong in [["-B", "0"], ["-T", "1025"], ["-m", "2"], ["-G", "disk"], ["-t", "0"]] {
        let output = run(&mut gdrcopy(&[], &["pplat", wrong[0], wrong[1]]));
        assert_eq!(output.status, Some(2), "{wrong:?}: {output:?}");
    }
    let output = run(&mut gdrcopy(&[], &["pplat", "-s", "5G"]));
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(output.stderr.contains("4G"), "{output:?}");
}

#[test]
fn interrupt_prints_the_results_so_far() {
    let file = library();
    let mut command =
        gdrcopy(&[], &["pplat", "--lib", file.to_str().unwrap(), "-t", "1000000000", "-u", "0", "-B", "1", "-T", "1"]);
    let mut gdremu = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let tool = loop {
        match tool_that_runs(gdremu.id()) {
            Some(tool) => break tool,
            None => {
                let ended = gdremu.try_wait().unwrap();
                assert!(ended.is_none(), "it never started: {ended:?}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    };
    kill(tool, Signal::SIGINT).unwrap();
    let output = Output::from(gdremu.wait_with_output().unwrap());
    assert_eq!(output.status, Some(130), "{output:?}");
    assert!(output.stdout.contains("P50.Time(us)"), "{output:?}");
    assert!(output.stderr.contains("interrupted"), "{output:?}");
}

/// The process that gdremu runs, as soon as its GPU kernel has a thread.
fn tool_that_runs(gdremu: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{gdremu}/task/{gdremu}/children")).ok()?;
    let tool = children.split_whitespace().next()?.parse().ok()?;
    let threads = fs::read_dir(format!("/proc/{tool}/task")).ok()?;
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).ok();
    threads.flatten().filter_map(name).any(|name| name.trim() == "gdremu-stream").then(|| Pid::from_raw(tool))
}

#[test]
fn dma_bufs_replace_gdrdrv() {
    let file = library();
    let mut arguments = vec!["pplat", "--lib", file.to_str().unwrap(), "-s", "4096"];
    arguments.extend(SMALL);
    let emulated = ["--no-gdrdrv", "--cuda-version", "13.3"];
    let output = run(&mut gdrcopy(&emulated, &arguments));
    assert_eq!(output.status, Some(0), "{output:?}");
}
