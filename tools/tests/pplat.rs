//! `gdrcopy pplat` on emulated machines, whose GPUs run its kernel.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{Output, gdrcopy, library, run};
use serde_json::Value;

/// Few enough rounds and threads for a GPU that is interpreted.
const SMALL: [&str; 8] = ["-t", "20", "-B", "2", "-T", "3", "-u", "0"];

/// Runs it with this workspace's library.
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
                        "-m", mode, "-G", gpu_flag, "-C", cpu_flag, "-D", data, "-s", "1001",
                        "--format", "json",
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
fn flags_alone_are_the_default_and_people_get_a_table() {
    let output = pplat(&[]);
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(
        output.stdout.contains("the CPU produces 0 bytes"),
        "{output:?}"
    );
    let mut lines = output.stdout.lines().rev();
    let cells: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert!(
        cells[1..]
            .iter()
            .all(|cell| cell.parse::<f64>().unwrap() > 0.0)
    );
    let names = lines.next().unwrap().split("  ").map(str::trim);
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    assert_eq!(
        names,
        ["Round trip", "P0.Time(us)", "P50.Time(us)", "P99.Time(us)"]
    );
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

/// Runs it with a library that spoils copies.
fn faulty(fault: &str, options: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let faulty = folder.path().join("faulty.so");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&faulty)
        .arg(root.join("tools/tests/faulty.c"))
        .arg("-I")
        .arg(root.join("include"))
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());
    let mut arguments = vec!["pplat", "--lib", faulty.to_str().unwrap()];
    arguments.extend(SMALL);
    arguments.extend(options);
    let mut command = gdrcopy(&[], &arguments);
    run(command.env("FAULTY", fault).env("FAULTY_BEHIND", library()))
}

#[test]
fn data_that_does_not_arrive_is_noticed_on_either_side() {
    for (fault, mode) in [("short", "0"), ("wrong", "1")] {
        let output = faulty(fault, &["-m", mode, "-s", "102", "--format", "json"]);
        assert_eq!(output.status, Some(1), "{output:?}");
        assert!(
            output.stderr.contains("words of the data were wrong"),
            "{output:?}"
        );
        // A word in each round, of which the first 10 are not timed.
        assert_eq!(
            document(&output)["records"][0]["wrong_words"],
            30,
            "{output:?}"
        );
        let output = faulty(fault, &["-m", mode, "-s", "102", "--verify=no"]);
        assert_eq!(output.status, Some(0), "{output:?}");
    }
}

#[test]
fn an_answer_that_does_not_come_ends_the_game() {
    // The library spoils what the CPU reads of its flag.
    let output = faulty("wrong", &["-C", "gpumem", "-u", "1"]);
    assert_eq!(output.status, Some(1), "{output:?}");
    let told = "the GPU has not answered round 1 within 1 s";
    assert!(output.stderr.contains(told), "{output:?}");
}

#[test]
fn what_cannot_be_played_is_explained() {
    let file = library();
    let lib = file.to_str().unwrap();
    let output = run(&mut gdrcopy(&[], &["pplat", "--lib", lib, "-B", "10000"]));
    assert_eq!(output.status, Some(1), "{output:?}");
    assert!(
        output.stderr.contains("take a smaller -B or -T"),
        "{output:?}"
    );
    for wrong in [
        ["-B", "0"],
        ["-T", "1025"],
        ["-m", "2"],
        ["-G", "disk"],
        ["-t", "0"],
    ] {
        let output = run(&mut gdrcopy(&[], &["pplat", wrong[0], wrong[1]]));
        assert_eq!(output.status, Some(2), "{wrong:?}: {output:?}");
    }
    let output = run(&mut gdrcopy(&[], &["pplat", "-s", "5G"]));
    assert_eq!(output.status, Some(2), "{output:?}");
    assert!(output.stderr.contains("4G"), "{output:?}");
}

#[test]
fn interrupted_it_tells_what_it_has() {
    let file = library();
    let mut command = gdrcopy(
        &[],
        &[
            "pplat",
            "--lib",
            file.to_str().unwrap(),
            "-t",
            "1000000000",
            "-u",
            "0",
            "-B",
            "1",
            "-T",
            "1",
        ],
    );
    let mut gdremu = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let tool = loop {
        match tool_that_plays(gdremu.id()) {
            Some(tool) => break tool,
            None => {
                let ended = gdremu.try_wait().unwrap();
                assert!(ended.is_none(), "it never played: {ended:?}");
                thread::sleep(Duration::from_millis(10));
            }
        }
    };
    let killed = Command::new("kill").args(["-INT", &tool]).status();
    assert!(killed.unwrap().success());
    let output = Output::from(gdremu.wait_with_output().unwrap());
    assert_eq!(output.status, Some(130), "{output:?}");
    assert!(output.stdout.contains("P50.Time(us)"), "{output:?}");
    assert!(output.stderr.contains("interrupted"), "{output:?}");
}

/// The process that gdremu runs, as soon as its kernel has a thread.
fn tool_that_plays(gdremu: u32) -> Option<String> {
    let children = fs::read_to_string(format!("/proc/{gdremu}/task/{gdremu}/children")).ok()?;
    let tool = children.split_whitespace().next()?.to_owned();
    let threads = fs::read_dir(format!("/proc/{tool}/task")).ok()?;
    let name = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("comm")).ok();
    threads
        .flatten()
        .filter_map(name)
        .any(|name| name.trim() == "gdremu-stream")
        .then_some(tool)
}

#[test]
fn it_needs_no_gdrdrv_where_dma_bufs_can_be_mapped() {
    let file = library();
    let mut arguments = vec!["pplat", "--lib", file.to_str().unwrap(), "-s", "4096"];
    arguments.extend(SMALL);
    let machine = ["--no-gdrdrv", "--cuda-version", "13.3"];
    let output = run(&mut gdrcopy(&machine, &arguments));
    assert_eq!(output.status, Some(0), "{output:?}");
}
