//! Ctrl-C: the results so far, everything released, status 130.

mod common;

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use common::{Output, gdrcopy, lib};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Iterations that take minutes.
const ENDLESS: &str = "1000000000";

/// Runs a tool, and sends it this signal when it has mapped its buffer, or as much later as it takes to have
/// results.
fn interrupted(name: &str, options: &[&str], signal: Signal) -> Output {
    let mut delay = Duration::ZERO;
    loop {
        let output = interrupted_after(delay, name, options, signal);
        let is_early = output.stderr.contains("interrupted before the first result");
        if !is_early {
            return output;
        }
        assert_eq!((output.status, &*output.stdout), (Some(130), ""), "{name}: {output:?}");
        delay = delay * 2 + Duration::from_millis(50);
    }
}

fn interrupted_after(delay: Duration, name: &str, options: &[&str], signal: Signal) -> Output {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let emulated = ["--leak-exit", "99", "--trace", trace.path().to_str().unwrap()];
    let mut child = gdrcopy(&emulated, &[name, "--format", "json", &lib()])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !fs::read_to_string(trace.path()).unwrap().contains("mmap") {
        assert_eq!(child.try_wait().unwrap(), None, "nothing was mapped");
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(delay);
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    Output::from(child.wait_with_output().unwrap())
}

#[test]
fn interrupt_prints_the_results_so_far() {
    // The number of samples without an interrupt. Copies are divided into 100, and each part is cut short.
    for (name, options, samples) in [
        ("copybw", &["-s", "1M", "-w", ENDLESS][..], 100),
        ("copylat", &["-s", "64K", "-w", ENDLESS], 100),
        ("apiperf", &["-s", "64K", "-n", ENDLESS], 1_000_000_000),
        ("pplat", &["-u", "0", "-B", "1", "-T", "1", "-t", ENDLESS], 1_000_000_000),
    ] {
        let output = interrupted(name, options, Signal::SIGINT).with_status(130);
        output.reports(&["Ctrl-C again ends at once", "interrupted; these are the results so far"]);
        assert!(!output.stderr.contains("leak"), "{name}: {output:?}");
        let document = output.json();
        assert_eq!(document["interrupted"], true, "{name}");
        let first = &document["records"][0];
        assert!(first["p50_ns"].is_number(), "{name}: {first}");
        assert!(first["samples"].as_u64() < Some(samples), "{name}: {first}");
    }
}

#[test]
fn sigterm_equals_ctrl_c() {
    interrupted("copylat", &["-s", "64K", "-w", ENDLESS], Signal::SIGTERM).with_status(130);
}
