//! Tests `gdrcopy tune`: the settings that it prints, the pairs of processes that it runs, and its warning on an
//! emulated GPU. A stand-in takes the place of UCX's ucx_perftest. `make consumers` runs tune with UCX itself.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use common::{Output, assert_documented, corrupted, gcc, gdrcopy, lib, run};

/// Runs tune with the library of this workspace, and without UCX.
fn tune(options: &[&str]) -> Output {
    run(gdrcopy(&[], &["tune", "--budget=4", &lib()]).args(options).env("PATH", "/nowhere"))
}

/// A directory with stand-ins for two programs of UCX: ucx_perftest, from ucx_perftest.c, and ucx_info.
struct Ucx(TempDir);

const INFO: &str = "# Library version: 1.22.0\n#      Transport: gdr_copy\nUCX_RNDV_THRESH=intra:auto,inter:auto\n\
                    UCX_GDR_COPY_BW=get_dedicated:250.00MBps\n";

impl Ucx {
    fn new(info: &str) -> Ucx {
        let ucx = Ucx(tempfile::tempdir().unwrap());
        gcc("tools/tests/ucx_perftest.c", &[], &ucx.path("ucx_perftest"));
        fs::write(ucx.path("ucx_info"), format!("#!/bin/sh\necho '{info}'\n")).unwrap();
        fs::set_permissions(ucx.path("ucx_info"), PermissionsExt::from_mode(0o755)).unwrap();
        ucx
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the command that runs tune with this fake UCX. Its ucx_perftest reports the times from `times()`.
    fn command(&self, emulated: &[&str], budget: u32, variables: &[(&str, &str)]) -> Command {
        let mut command = gdrcopy(emulated, &["tune", &lib(), "--cpu=0", &format!("--budget={budget}"), "--ucx"]);
        command.arg(self.0.path()).env("FAKE_TIMES", times()).envs(variables.iter().copied());
        command
    }

    /// Runs tune with these environment variables, and with a budget of more time than it needs.
    fn tune(&self, variables: &[(&str, &str)]) -> Output {
        run(&mut self.command(&[], 3600, variables)).with_status(0)
    }
}

/// Returns the value that tune prints for a setting of UCX, if it prints one.
fn setting<'a>(output: &'a Output, name: &str) -> Option<&'a str> {
    output.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[track_caller]
fn assert_threshold(output: &Output, threshold: Option<&str>) {
    assert_eq!(setting(output, "UCX_RNDV_THRESH"), threshold, "{output:?}");
}

/// Returns the times of messages of a size over a route, such as `host` or `cuda`, from the table that tune prints.
fn row(output: &Output, route: &str, size: &str) -> Vec<String> {
    let rows = output.stdout.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let mut rows = rows.filter(|row| row.len() > 3 && row[1] == route && row[2] == size);
    rows.next().unwrap_or_else(|| panic!("{route} {size}: {output:?}")).split_off(3)
}

/// Returns times of messages for ucx_perftest to report. Up to 4 KiB, those of the eager protocol are the shortest.
fn times() -> String {
    let mut times = String::new();
    for size in [256, 1024, 2048, 4096, 8192, 16384, 24576, 32768, 65536, 1 << 20] {
        let eager = if size <= 4096 { 1 } else { 90 };
        for (mode, time) in [("default", 9), ("model", 9), ("eager", eager), ("rendezvous", 9)] {
            times += &format!("cuda,cuda {mode} {size} {time}\n");
        }
    }
    times
}

/// Returns the number between `before` and `after`.
fn number(text: &str, before: &str, after: &str) -> f64 {
    let rest = text.split_once(before).expect(text).1;
    let number = rest.split_once(after).expect(text).0;
    number.parse().expect(text)
}

#[test]
fn text_is_a_shell_fragment_with_the_settings() {
    let output = tune(&[]).with_status(0);
    output.reports(&["no ucx_perftest on the path", "--ucx", "emulated", "meaningless"]);
    output.prints(&["# no ucx_perftest on the path", "emulated", "meaningless"]);
    let sourced = Command::new("env")
        .args(["-i", "sh", "-euc"])
        .arg(format!("{}\necho \"$UCX_GDR_COPY_BW $UCX_GDR_COPY_LAT $NCCL_GDRCOPY_ENABLE\"", output.stdout))
        .output();
    let sourced = Output::from(sourced.unwrap());
    assert_eq!(sourced.stderr, "");
    let values: Vec<_> = sourced.stdout.split_whitespace().collect();
    let [bandwidth, latency, "1"] = values[..] else {
        panic!("{sourced:?} of {output:?}");
    };
    assert!(number(bandwidth, "0MBs,get_dedicated:", "MBs,put_shared:") > 0.0);
    assert!(number(bandwidth, ",put_shared:", "MBs") > 0.0);
    assert!(number(latency, "get:", "ns,put:") > 0.0);
    assert!(number(latency, ",put:", "ns") > 0.0);
}

#[test]
fn json_has_models_of_the_measurements() {
    let json = tune(&["--format", "json"]).json();
    assert_eq!(json["emulated"], true);
    let records = json["records"].as_array().unwrap();
    let expected = [("write", 8), ("write", 65536), ("read", 8), ("read", 65536)];
    assert_eq!(records.len(), expected.len());
    for (index, (direction, size)) in expected.into_iter().enumerate() {
        assert_eq!(records[index]["direction"], direction);
        assert_eq!(records[index]["size_bytes"], size);
    }
    assert_eq!(json["put"]["latency_ns"], records[0]["p50_ns"]);
    assert_eq!(json["get"]["latency_ns"], records[2]["p50_ns"]);
}

#[test]
fn threshold_is_that_of_the_measured_messages() {
    let ucx = Ucx::new(INFO);
    // The environment has settings from an earlier run of tune. The runs that measure UCX's defaults must not get them.
    let earlier = [("UCX_RNDV_THRESH", "1m"), ("UCX_GDR_COPY_BW", "bad")];
    let output = ucx.tune(&earlier);
    assert_threshold(&output, Some("auto,intra:4097"));
    assert!(setting(&output, "UCX_GDR_COPY_BW").is_some());
    output.prints(&["median of 3 runs"]);
    assert_eq!(row(&output, "cuda", "4096"), ["9.00", "9.00", "1.00", "9.00"]);
    output.reports(&["measuring messages of UCX 1.22.0"]);

    // With a second GPU, there is also a route from one GPU to the other.
    let output = run(ucx.command(&["--profile=two-gpus"], 3600, &[]).arg("--json=/dev/stderr")).with_status(0);
    output.prints(&["# cuda 0-1"]);
    assert_threshold(&output, Some("auto,intra:4097"));
    let json = &output.stderr[output.stderr.find("{\n").unwrap()..];
    assert_documented("tune", &serde_json::from_str(json).unwrap());
}

#[test]
fn faults_of_ucx_give_no_threshold_but_a_reason() {
    let ucx = Ucx::new(INFO);
    for (fake, reason) in [
        ("fail", "cuda, Default: ucx_perftest: exit status: 255: [1] UCX  ERROR no usable transports"),
        ("silent", "no time of 256, 1024, "),
        ("garbage", "no time of 256, "),
        ("deaf", "ucx_perftest does not listen: [1] UCX  ERROR server failed. bind() failed"),
    ] {
        let output = ucx.tune(&[("FAKE", fake)]);
        output.reports(&[reason]);
        assert_threshold(&output, None);
    }
}

#[test]
fn size_that_fails_is_left_out() {
    let ucx = Ucx::new(INFO);
    for (memory, route) in [("host", "host"), ("cuda,cuda", "cuda")] {
        let output = ucx.tune(&[("FAKE", "skip"), ("FAKE_MEMORY", memory)]);
        output.reports(&["no time of 8192 bytes: "]);
        assert_eq!(row(&output, route, "8192"), ["-"; 4]);
        assert_threshold(&output, Some("auto,intra:4097"));
    }
}

#[test]
fn ucx_that_cannot_be_tuned_is_named() {
    for (info, reason) in [
        // This is what ucx_info of Debian 12 prints.
        ("# Version 1.13.1\n# Git branch '', revision 09f27c0", "UCX 1.13.1 does not know UCX_GDR_COPY_BW"),
        (&INFO.replace("gdr_copy", "tcp"), "UCX 1.22.0 cannot use gdr_copy here"),
        (&INFO.replace("intra:auto,inter:auto", "auto"), "UCX 1.22.0 has no threshold for messages within a node"),
    ] {
        let output = Ucx::new(info).tune(&[]);
        output.reports(&[reason]);
        output.prints(&[&format!("# {reason}"), "\nUCX_GDR_COPY_BW="]);
        assert_threshold(&output, None);
    }
    let empty = tempfile::tempdir().unwrap();
    tune(&["--ucx", empty.path().to_str().unwrap()]).with_status(2).reports(&["has no bin/ucx_perftest"]);
}

/// Returns how many processes run whose command lines begin with this name.
fn running(name: &str) -> usize {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    processes.filter(|line| line.starts_with(name.as_bytes())).count()
}

#[test]
fn hanging_pairs_end_with_the_budget() {
    let ucx = Ucx::new(INFO);
    let sleep = format!("sleeper-of-{}-budget", std::process::id());
    for fake in ["hang", "endless"] {
        let output = run(&mut ucx.command(&[], 4, &[("FAKE", fake), ("FAKE_SLEEP", &sleep)])).with_status(0);
        assert_threshold(&output, None);
        assert!(setting(&output, "UCX_GDR_COPY_BW").is_some());
        assert_eq!(running(&sleep), 0);
    }
}

#[test]
fn interrupt_ends_pairs_and_all_that_they_started() {
    let ucx = Ucx::new(INFO);
    let sleep = format!("sleeper-of-{}-interrupt", std::process::id());
    let mut command = ucx.command(&[], 3600, &[("FAKE", "hang"), ("FAKE_SLEEP", &sleep)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while running(&sleep) == 0 {
        assert_eq!(child.try_wait().unwrap(), None, "no pair was started");
        thread::sleep(Duration::from_millis(20));
    }
    // The child is gdremu, which forwards the signal to tune.
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = Output::from(child.wait_with_output().unwrap()).with_status(130);
    assert_eq!(output.stdout, "");
    output.reports(&["interrupted before the first result"]);
    assert_eq!(running(&sleep), 0);
}

#[test]
fn wrong_copies_and_second_libraries_are_refused() {
    let output = corrupted("tune", "wrong", &["--budget=4"]).with_status(1);
    assert_eq!(output.stdout, "");
    output.reports(&["gdr_copy_from_mapping of "]);
    tune(&[&lib()]).with_status(2).reports(&["at most 1 librar"]);
}
