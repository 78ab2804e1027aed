//! Tests of the tools that measure, for example of what they print after Ctrl-C, and of their check of every byte.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{Output, assert_documented, corrupted, gdrcopy, lib, library, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Returns options of a tool for a short run, with few repetitions and small copies.
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

/// Runs a tool once, with two libraries to compare: this workspace's library as `ours`, and again as `other`.
fn with_two(name: &str, options: &[&str]) -> Output {
    let second_library = format!("--lib=other={}", library().display());
    tool(&[], name, &[&[&second_library[..]], options].concat()).with_status(0)
}

fn records(output: &Output) -> Vec<Value> {
    output.json()["records"].as_array().unwrap().clone()
}

/// Returns the words of each line that begins with this word.
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
fn copybw_copies_parts() {
    let options = ["-s", "1M", "-c", "1000", "-o", "65535", "--format=json"];
    let parts = records(&tool(&[], "copybw", &options).with_status(0));
    assert_eq!(parts.len(), 2);
    for record in parts {
        assert_eq!(record["size_bytes"], 1000);
        assert_eq!(record["offset_bytes"], 65535);
        assert_eq!(record["alignment_bytes"], 63);
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

    let output = tool(&[], "pplat", &[]).with_status(0);
    output.prints(&["the CPU produces 0 bytes"]);
    assert_eq!(lines(&output, "Round"), [["Round", "trip", "P50(us)", "P0(us)", "P99(us)"]]);
    let [_, times @ ..] = &lines(&output, "ours")[0][..] else { panic!("{output:?}") };
    assert_eq!(times.len(), 3);
    assert!(times.iter().all(|cell| cell.parse::<f64>().unwrap() > 0.0), "{times:?}");
}

#[test]
fn two_libraries_are_shown_side_by_side_with_ratios() {
    for (name, count) in [("copybw", 4), ("copylat", 2 * 2 * 17), ("apiperf", 2 * 5), ("pplat", 2)] {
        let output = with_two(name, &[]);
        output.prints(&["ours", "other", "Ratio"]);
        for line in output.stdout.lines() {
            // A line with the path of a library can be longer.
            assert!(line.chars().count() <= 80 || line.contains('/'), "{line}");
        }
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
    with_two("copybw", &[])
        .prints(&["write, ours, at offset 0: 50 calls each size", "read, other, at offset 0: 20 calls"]);
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_measurement() {
    for name in ["copybw", "copylat", "compare", "apiperf", "pplat", "tune"] {
        let trace = tempfile::NamedTempFile::new().unwrap();
        let emulated = ["--trace", trace.path().to_str().unwrap()];
        let output = tool(&emulated, name, &["--json", "/nowhere/file"]).with_status(1);
        output.reports(&["/nowhere/file cannot be written"]);
        assert_eq!(fs::read_to_string(trace.path()).unwrap(), "", "{name}");
    }
}

#[test]
fn wrong_copies_give_status_1() {
    for (fault, wrong, right) in [("short", "to", "from"), ("long", "to", "from"), ("wrong", "from", "to")] {
        let options = [few("copybw"), &["-s", "128K", "-c", "1000", "-o", "8"]].concat();
        let output = corrupted("copybw", fault, &options).with_status(1);
        output.prints(&["FAILED"]);
        output.reports(&[&format!("wrong copy: faulty.so: gdr_copy_{wrong}_mapping of ")]);
        assert!(!output.stderr.contains(&format!("gdr_copy_{right}_mapping of ")), "{fault}: {output:?}");
    }
}

#[test]
fn compare_measures_libraries_and_other_methods() {
    let label = format!("--lib=ours={}", library().display());
    let sweep = ["--sizes=64,0,1M,1,1000,64", "--alignment=63", "--with=memcpy,cumemcpy", &label];
    let output = with_two("compare", &[&sweep[..], &["--json=/dev/stderr"]].concat());
    output.prints(&["\nwrite, ours, at offset 191", "\nread, cuMemcpy, at offset 191", "Ratio"]);
    let results: Value = serde_json::from_str(&output.stderr[output.stderr.find("{\n").unwrap()..]).unwrap();
    assert_eq!(results["setup"]["libraries"].as_array().unwrap().len(), 3);
    let records = results["records"].as_array().unwrap();
    let methods = ["ours", "other", "ours (2)", "memcpy", "cuMemcpy"];
    // There are two directions and four sizes. The tool has left out size 0 and the second 64 of `--sizes`.
    assert_eq!(records.len(), 2 * 4 * methods.len());
    for (number, record) in records.iter().enumerate() {
        assert_eq!(record["method"], methods[number % methods.len()]);
        assert_eq!(record["size_bytes"], [1, 64, 1000, 1 << 20][number / methods.len() % 4]);
        assert_eq!(record["alignment_bytes"], 63);
        assert!(record["samples"].as_u64() >= Some(21), "{record}");
    }
}

#[test]
fn compare_gives_wrong_copies_no_ratio_and_status_1() {
    let ours = lib();
    for (fault, direction) in [("short", "write"), ("long", "write"), ("wrong", "read")] {
        let options = [&ours, "--sizes=1,1M", "--alignment=20", "--budget=0", "--format=json"];
        let output = corrupted("compare", fault, &options).with_status(1);
        output.reports(&["wrong copy: faulty.so: "]);
        for record in records(&output) {
            let is_wrong = record["direction"] == direction && record["method"] == "faulty.so";
            assert_eq!(record["error"].is_string(), is_wrong, "{fault}: {record}");
            assert_eq!(record["p50_ns"].is_null(), is_wrong, "{fault}: {record}");
            if record["method"] == "faulty.so" {
                assert_eq!(record["ratio"].is_null(), is_wrong, "{fault}: {record}");
            }
        }
    }
}

/// Each case has gdremu's options, the tools with their options, the exit status that they must have, and a text that
/// they must print, to stdout if the status is 0 and otherwise to stderr.
const CASES: &[(&str, &str, i32, &str)] = &[
    ("", "copybw|copylat|apiperf -a cuMemAlloc", 0, "buffer from cuMemAlloc:"),
    ("", "copybw|copylat|apiperf -a cumemcreate", 0, "buffer from cuMemCreate:"),
    ("--platform cached", "copybw", 0, "cached mapping"),
    ("--platform cached", "copybw -M wc", 0, "write-combining mapping"),
    ("", "copybw -M cache", 1, "Leave out -M"),
    ("--platform cached", "copylat -s 4K -C", 0, "cached mapping"),
    ("", "copylat -s 4K -C", 2, "cached mappings"),
    ("--no-gdrdrv --cuda-version 13.3", "pplat -s 4096", 0, "4096 bytes in gpumem"),
    ("--fault PIN_BUFFER_V2:EINVAL", "copybw|copylat|apiperf", 1, "gdr_pin_buffer: EINVAL"),
    ("--fault PIN_BUFFER_V2:EINVAL", "copybw", 1, "-a cuMemCreate"),
    ("--fault PIN_BUFFER_V2:ENOMEM", "copybw|copylat|apiperf", 1, "The GPU's BAR1 has no room left"),
    ("--fault MMAP:EAGAIN", "copybw|copylat|apiperf", 1, "gdr_map: EAGAIN"),
    ("--fault MMAP:EAGAIN", "copybw", 1, "GDRCOPY_ENABLE_LOGGING=1"),
    ("--fault OPEN:EACCES", "copybw|copylat|apiperf", 1, "run `gdrcopy doctor`"),
    ("--fault cuMemAlloc:2", "copybw|copylat|apiperf", 1, "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"),
    ("--fault cuMemAlloc:4242", "copybw", 1, "(4242)"),
    ("--gpus 2", "copylat -d 2", 1, "no GPU 2; CUDA has 2"),
    ("", "copybw --lib /bin/sh", 1, "/bin/sh"),
    ("", "copybw --lib /nowhere/libgdrapi.so", 1, "/nowhere/libgdrapi.so"),
    ("", "copybw -s 1M -s 64K -w 0 -r 1 -r 10", 0, "65536 bytes in pages"),
    ("", "copybw -o 65536", 2, "do not fit into a buffer of 65536"),
    ("", "copybw -c 100 -o 65500", 2, "--help"),
    ("", "copybw -c 0", 2, "--help"),
    ("", "copybw -s 1X", 2, "ends in K, M or G"),
    ("", "copybw --cpu 1023", 1, "cannot run on CPU [1023]"),
    ("", "copybw --cpu=", 2, "--cpu"),
    ("", "copybw --lib =x", 2, "must not be empty"),
    ("", "copybw --lib x=", 2, "must not be empty"),
    ("", "copylat -s 0", 2, "--size must be at least 1"),
    ("", "apiperf -s 65535", 2, "--size must be at least 65536"),
    ("", "apiperf -n 0", 2, "--iterations"),
    ("", "pplat -B 0", 2, "--blocks"),
    ("", "pplat -T 1025", 2, "--threads"),
    ("", "pplat -m 2", 2, "--mode"),
    ("", "pplat -G disk", 2, "--gpu-flag"),
    ("", "pplat -t 0", 2, "--iterations"),
    ("", "pplat -s 5G", 2, "maximum is 4G"),
    ("", "pplat -B 10000", 1, "use a smaller -B or -T"),
];

#[test]
fn options_are_obeyed_or_refused_with_advice() {
    for (emulated, command, status, text) in CASES {
        let emulated: Vec<_> = emulated.split_whitespace().collect();
        let mut words = command.split_whitespace();
        for name in words.next().unwrap().split('|') {
            let output = tool(&emulated, name, &words.clone().collect::<Vec<_>>()).with_status(*status);
            match status {
                0 => output.prints(&[text]),
                _ => output.reports(&[text]),
            };
            assert_eq!(output.stdout.is_empty(), *status != 0, "{name}: {output:?}");
        }
    }
}

#[test]
fn apiperf_releases_pins_and_mappings() {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let emulated = ["--trace", trace.path().to_str().unwrap(), "--leak-exit", "99"];
    tool(&emulated, "apiperf", &[]).with_status(0);
    let trace = fs::read_to_string(trace.path()).unwrap();
    // The first pin shows that the buffer can be pinned. Then 3 pins warm up, and 10 are timed.
    assert_eq!(trace.matches("\"PIN_BUFFER").count(), 14, "{trace}");
    assert_eq!(trace.matches("\"mmap\"").count(), 14);
    assert_eq!(trace.matches("\"UNPIN_BUFFER\"").count(), 14);
}

#[test]
fn measuring_cpu_is_reported() {
    let output = tool(&[], "copybw", &["--cpu", "0"]);
    output.prints(&["on CPU 0"]);
    assert!(!output.stderr.contains("--cpu"), "{output:?}");
    tool(&[], "copybw", &["--cpu", "0", "--format", "json"]).prints(&["\"cpu\": 0"]);
}

#[test]
fn cpu_on_another_node_gives_a_warning() {
    let mut nodes = 0..64;
    let Some(node) = nodes.find(|node| fs::exists(format!("/sys/devices/system/cpu/cpu0/node{node}")).unwrap()) else {
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

#[test]
fn pplat_flags_and_data_go_both_ways_from_and_to_any_memory() {
    for bits in 0..16 {
        let [gpu_flag, cpu_flag, data] = [1, 2, 4].map(|bit| if bits & bit == 0 { "gpumem" } else { "hostmem" });
        let mode = if bits < 8 { "0" } else { "1" };
        let producer = if bits < 8 { "cpu" } else { "gpu" };
        let options = ["-m", mode, "-G", gpu_flag, "-C", cpu_flag, "-D", data, "-s", "1001", "--format", "json"];
        let document = tool(&[], "pplat", &options).with_status(0).json();
        let record = &document["records"][0];
        for (key, value) in [("producer", producer), ("gpu_flag", gpu_flag), ("cpu_flag", cpu_flag), ("data", data)] {
            assert_eq!(record[key], value);
        }
        assert_eq!((&record["samples"], &record["wrong_words"]), (&20.into(), &0.into()));
        let times = ["p0_ns", "p50_ns", "p99_ns"].map(|name| record[name].as_f64().unwrap());
        assert!(times[0] > 0.0 && times.is_sorted(), "{record}");
    }
}

#[test]
fn pplat_finds_wrong_data_on_both_sides() {
    for (fault, mode) in [("short", "0"), ("wrong", "1")] {
        let output =
            corrupted("pplat", fault, &[few("pplat"), &["-m", mode, "-s", "102", "--format", "json"]].concat())
                .with_status(1);
        output.reports(&["words of the data were wrong"]);
        // One word per round is wrong. There are 20 timed rounds, after 10 untimed ones.
        assert_eq!(output.json()["records"][0]["wrong_words"], 30, "{output:?}");
    }
}

#[test]
fn pplat_ends_without_an_answer() {
    // The library corrupts the CPU's reads of the flag by which the GPU answers, so the CPU never sees the answer.
    let output = corrupted("pplat", "wrong", &[few("pplat"), &["-C", "gpumem", "-u", "1"]].concat()).with_status(1);
    output.reports(&["the GPU has not answered round 1 within 1 s"]);
}

/// With this number of iterations, a measurement takes minutes.
const ENDLESS: &str = "1000000000";

/// Runs a tool, and sends it this signal when it has mapped its buffer. If the tool has no results by then, runs it
/// again, and sends the signal later.
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
fn interrupts_and_termination_print_the_results_so_far() {
    // Each case has the number of samples that a run without an interrupt would have. Copies are divided into 100
    // samples, and the sample in which the interrupt arrives gets fewer copies.
    for (name, options, samples, signal) in [
        ("copybw", &["-s", "1M", "-w", ENDLESS][..], 100, Signal::SIGINT),
        ("copylat", &["-s", "64K", "-w", ENDLESS], 100, Signal::SIGTERM),
        ("apiperf", &["-s", "64K", "-n", ENDLESS], 1_000_000_000, Signal::SIGINT),
        ("pplat", &["-u", "0", "-B", "1", "-T", "1", "-t", ENDLESS], 1_000_000_000, Signal::SIGINT),
    ] {
        let output = interrupted(name, options, signal).with_status(130);
        output.reports(&["interrupted; these are the results so far"]);
        assert!(!output.stderr.contains("leak"), "{name}: {output:?}");
        let document = output.json();
        assert_eq!(document["interrupted"], true, "{name}");
        let first = &document["records"][0];
        assert!(first["p50_ns"].is_number(), "{name}: {first}");
        assert!(first["samples"].as_u64() < Some(samples), "{name}: {first}");
        if name.starts_with("copy") {
            assert!(first["iterations"].as_u64() < ENDLESS.parse().ok(), "{name}: {first}");
        }
    }
}

/// The tool shows its progress bar only on a terminal, so `script` gives it one. copybw makes two measurements, each of
/// which fills half of the bar. pplat makes one, which fills all of it.
#[test]
fn progress_begins_at_nothing_and_moves_within_a_part() {
    for (name, options) in [("copybw", "-s 64 -w 20000000"), ("pplat", "-u 0 -B 1 -T 1 -t 100000")] {
        let tool = gdrcopy(&[], &[name, &lib()]);
        let words: Vec<_> = tool.get_args().map(|word| word.display().to_string()).collect();
        let line = format!("{} {} {options}", tool.get_program().display(), words.join(" "));
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut seen = String::new();
        let mut buffer = [0; 1000];
        let percents = loop {
            let len = out.read(&mut buffer).unwrap();
            assert!(len > 0, "{name} ended: {seen}");
            seen += &String::from_utf8_lossy(&buffer[..len]);
            let words: Vec<_> = seen.split_whitespace().collect();
            let percents = words.windows(2).filter(|pair| pair[1] == "%").map(|pair| pair[0].parse::<u32>().unwrap());
            let percents: Vec<_> = percents.collect();
            if percents.last() > Some(&0) {
                break percents;
            }
        };
        assert!(percents[0] == 0 && percents.iter().all(|percent| *percent < 50), "{name}: {percents:?}");
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        child.wait().unwrap();
    }
}
