//! `gdrcopy trace`: programs behave as without it, and what they did is reported.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use common::{OTHER, Output, built, compile, gdrcopy, preloaded, run};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The kit of the C tests.
const KIT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/kit/plain/libkit.a");

/// Where programs find the library under its usual names, and where they are built.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        static KIT_MADE: Once = Once::new();
        KIT_MADE.call_once(|| {
            let out = concat!("out=", env!("CARGO_TARGET_TMPDIR"));
            let mut make = Command::new("make");
            make.args(["-C", ROOT, "-s", "-f", "c_tests/programs.mk", out, KIT]);
            assert!(make.status().expect("make starts").success(), "{make:?}");
        });
        preloaded("trace");
        let place = Place(tempfile::tempdir().unwrap());
        for name in ["libgdrapi.so", "libgdrapi.so.2"] {
            symlink(built("libgdrapi.so"), place.file(name)).unwrap();
        }
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a source of the project, or a text, to a file here.
    fn compile(&self, source: &str, name: &str, options: &[&str]) -> PathBuf {
        let mut file = Path::new(ROOT).join(source);
        if !source.ends_with(".c") {
            file = self.file("text.c");
            fs::write(&file, source).unwrap();
        }
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=c99", "-D_GNU_SOURCE", "-O2", "-fno-optimize-sibling-calls", "-pthread"]).arg(file);
        gcc.args(["include", "c_tests"].map(|directory| format!("-I{ROOT}/{directory}"))).args(options);
        gcc.current_dir(self.0.path()).args(["-o", name]);
        assert!(gcc.status().expect("gcc starts").success(), "{gcc:?}");
        self.file(name)
    }

    /// Builds a C program, linked with the library if it calls that.
    fn program(&self, source: &str) -> PathBuf {
        let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
        let cuda = built("libgdremu_cuda.so");
        self.compile(source, name, &[KIT, "-Wl,--as-needed", "libgdrapi.so.2", "-ldl", "-lc", cuda.to_str().unwrap()])
    }

    /// The program that uses the library step by step.
    fn uses(&self) -> PathBuf {
        self.program("tools/tests/uses.c")
    }

    /// The command `gdremu -- gdrcopy trace OPTIONS -- PROGRAM`.
    fn trace(&self, options: &[&str], program: impl AsRef<Path>) -> Command {
        let mut command = gdrcopy(&[], &["trace"]);
        command.args(options).arg("--").arg(program.as_ref()).env("LD_LIBRARY_PATH", self.0.path());
        command.current_dir(self.0.path());
        command
    }

    /// The same outside the emulator, in which gdr_open fails.
    fn bare_trace(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
        command.arg("trace").env("LD_LIBRARY_PATH", self.0.path());
        command
    }

    /// Traces a program, and returns what it output, and the JSON.
    fn traced(&self, options: &[&str], program: impl AsRef<Path>, steps: &str) -> (Output, Value) {
        let mut command = self.trace(&[&["--json", "trace.json"], options].concat(), program);
        let output = run(command.args(steps.split_whitespace()).env("GDRCOPY_ALLOW_UNALIGNED_MAP", "1"));
        let json = fs::read_to_string(self.file("trace.json")).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output, serde_json::from_str(&json).unwrap())
    }
}

/// Asserts values, each after its pointer, in lines; of texts, the beginning. `0` stands for `processes/0`.
#[track_caller]
fn assert_reported(report: &Value, expected: &str) {
    for line in expected.lines().filter(|line| !line.trim().is_empty()) {
        let (pointer, value) = line.trim().split_once(' ').unwrap();
        let prefix = if pointer.starts_with(|first: char| first.is_ascii_digit()) { "/processes/" } else { "/" };
        let got = report.pointer(&format!("{prefix}{pointer}")).unwrap_or(&Value::Null);
        let is_expected = match got {
            Value::String(text) => text.starts_with(value),
            Value::Array(rows) => rows.len().to_string() == value,
            other => serde_json::from_str::<Value>(value).is_ok_and(|value| *other == value),
        };
        assert!(is_expected, "{line}: {got}\n{report:#}");
    }
}

#[test]
fn c_tests_pass_and_their_calls_are_counted() {
    let place = Place::new();
    for name in ["abi_consumers", "fork", "threads", "cancel", "never_closed", "faults", "signals"] {
        let (output, report) = place.traced(&[], place.program(&format!("c_tests/{name}.c")), "");
        assert_eq!((output.status, &*output.stdout), (Some(0), &*format!("ok {name}\n")), "{output:?}");
        let statement = report["statement"].as_str().unwrap();
        assert!(statement.contains(" used libgdrapi ") && statement.contains("(this project's, 2.6)"), "{statement}");
        assert!(report["sum"]["pins"].as_u64() > Some(0), "{name}: {report}");
        if name == "never_closed" {
            assert_reported(&report, "sum/pins 300\nsum/left/pins 150\nsum/left/mappings 1");
        }
    }
}

/// Steps with all that is reported, in numbers that tests know.
fn everything() -> String {
    let pins = "pin unpin ".repeat(12);
    let copies = "write8 ".repeat(200) + &"read16384 ".repeat(9);
    format!("open {pins} pin write8 unmap map {copies} read1 write0 swap write8 write8 swap unpin write8 unpin pin map")
}

/// A copy past the end of a mapping, which faults.
const CRASH: &str = "open pin map write8 protect past";

#[test]
fn everything_is_reported_as_documented() {
    let place = Place::new();
    let uses = place.uses();
    let (output, report) = place.traced(&[], &uses, &everything());
    assert_eq!((output.status, &*output.stdout), (Some(0), ""), "{output:?}");
    let mut lines = output.stderr.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    for expected in [
        "(this project's, 2.6): 14 pins, 2 maps, 211 copies, 149057 bytes",
        " % inside libgdrapi",
        "gdr_open 1 0 ",
        "gdr_pin_buffer 14 0 ",
        "gdr_unpin_buffer 14 1 EINVAL ",
        "gdr_map 2 0 ",
        "gdr_unmap 1 1 EINVAL ",
        "write 0 B 1 0 B ",
        "write 8 B 200 1.6 KiB ",
        "read 1 B 1 1 B ",
        "read 16 KiB 9 144 KiB ",
        " (uses) 128 KiB 14 WC 201 1.6 KiB 10 144.0 KiB",
        "copies that failed: 4",
        "left at the end: 1 pin (128 KiB), 1 mapping (64 KiB)",
        "misuse: copy_here+0x",
        "write of 8 bytes through a pin that is not mapped",
        "gdr_unmap through a pin that is not mapped",
        "(uses), 2 times:",
        "write of 8 bytes through a handle of no pin of this process",
        "write of 8 bytes after the pin was unpinned or its connection closed",
        "gdr_unpin_buffer after the pin was unpinned or its connection closed",
    ] {
        assert!(lines.any(|line| line.contains(expected)), "{expected}\n{}", output.stderr);
    }
    assert!(output.stderr.lines().skip(1).all(|line| line.chars().count() <= 80), "{}", output.stderr);
    assert_reported(
        &report,
        "0/most_used 1\n 0/most_used/0/pinned_by pin_here+0x\n 0/most_used/0/pins 14\n 0/most_used/0/maps 2
         0/most_used/0/written_bytes 1600\n 0/most_used/0/read_bytes 147457\n 0/left/incomplete false
         0/inside 0\n 0/signal null\n sum/failed_copies 4",
    );
    // docs/trace.md has a line for each object, with its name, and then its fields.
    let document = fs::read_to_string(Path::new(ROOT).join("docs/trace.md")).unwrap();
    let (_, crashed) = place.traced(&[], &uses, CRASH);
    let mut process = report["processes"][0].clone();
    for field in report["sum"].as_object().unwrap().keys() {
        assert!(process.as_object_mut().unwrap().remove(field).is_some(), "{field}");
    }
    for (name, object) in [
        ("the document", &report),
        ("`processes`", &process),
        ("`sum`", &report["sum"]),
        ("`calls`", &report["sum"]["calls"][0]),
        ("`copies`", &report["sum"]["copies"][0]),
        ("`most_used`", &report["sum"]["most_used"][0]),
        ("`left`", &report["sum"]["left"]),
        ("`misuse`", &report["sum"]["misuse"][0]),
        ("`inside`", &crashed["processes"][0]["inside"][0]),
    ] {
        let line = document.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect(name);
        let documented: BTreeSet<_> = line.split('|').nth(2).unwrap().split('`').skip(1).step_by(2).collect();
        let fields: BTreeSet<_> = object.as_object().expect(name).keys().map(String::as_str).collect();
        assert_eq!(fields, documented, "{name}");
    }
}

/// Steps with this project's library, their exit status, and what is reported.
const USES: [(&str, i32, &str); 8] = [
    ("open pin map write8 _exit7", 7, "0/copies/0/count 1\n 0/left/mappings 1\n 0/inside 0"),
    ("open pin map write8 abort", 128 + 6, "0/copies/0/count 1\n 0/left/mappings 1\n 0/signal SIGABRT\n 0/inside 0"),
    ("open pin map write8 kill", 128 + 9, "0/copies/0/count 1\n 0/left/mappings 1\n 0/signal SIGKILL"),
    (
        CRASH,
        128 + 11,
        "0/copies/0/count 1\n 0/signal SIGSEGV\n 0/inside/0/function gdr_copy_to_mapping\n 0/inside/0/caller copy_here+0x
         0/misuse/0/caller copy_here+0x
         0/misuse/0/what write of 16 bytes at offset 65528: the mapping has 65536 bytes",
    ),
    ("open pin map exits protect past", 11, "0/signal null\n 0/inside/0/function gdr_copy_to_mapping"),
    // A mapping that begins inside a page of the GPU.
    ("open half map end98304", 0, "0/copies/0/count 1\n 0/misuse 0"),
    ("open pin map short", 0, "0/threads 51\n 0/copies/0/count 50\n 0/left/incomplete false"),
    (
        "open pin map write8 fork open write8 _exit0",
        0,
        "processes 2\n 0/failed_copies 0\n 1/failed_copies 1\n 1/copies 0\n sum/calls/0/count 2
         1/misuse/0/what write of 8 bytes through a handle of no pin of this process",
    ),
];

#[test]
fn uses_of_this_library_are_counted_however_they_end() {
    let place = Place::new();
    let uses = place.uses();
    for (steps, status, expected) in USES {
        let (output, report) = place.traced(&[], &uses, steps);
        assert_eq!(output.status, Some(status), "{steps}: {output:?}");
        assert_reported(&report, expected);
        assert_eq!(report["pid"], report["processes"][0]["pid"], "{steps}");
        if steps == CRASH {
            output.reports(&["), ended by SIGSEGV\nnot returned: gdr_copy_to_mapping, called by copy_here+0x"]);
        }
        if let Some(child) = report["processes"].get(1) {
            assert_eq!(child["parent"], report["pid"]);
            let (_, report) = place.traced(&["--children=false"], &uses, steps);
            assert_reported(&report, "processes 1");
        }
    }
    let (_, report) = place.traced(&[], &uses, &format!("open {}", "pin ".repeat(600)));
    assert_reported(&report, "0/pins 600\n 0/left/pins 512\n 0/left/incomplete true");
}

/// Steps with a library whose calls differ from those of this project's, and what is reported. Its calls of its own functions
/// do not count.
const OTHER_USES: [(&str, &str); 8] = [
    ("open map_v", "0/calls/1/function gdr_map_v2\n 0/calls/1/errno ENOSYS"),
    (
        "open threads",
        "0/calls 5\n 0/calls/1/count 12000\n 0/calls/2/count 12000\n 0/calls/3/count 12000\n 0/calls/4/count 12000
         0/copies/0/count 120000\n 0/misuse 0\n 0/left/pins 0",
    ),
    // The child's threads make its file.
    ("open fork threads", "1/calls 4\n 1/calls/0/count 12000\n 1/copies/0/count 120000\n 1/misuse 0\n 1/left/pins 0"),
    ("open pin turns", "0/copies/0/count 200\n 0/misuse 0"),
    ("open cancel", "0/pins 300"),
    // EINVAL and EACCES are of a wrong handle, EIO is not.
    ("gdr5 pin map close gdr22 range2 map close gdr13 range3 map close", "0/left/pins 2\n 0/left/mappings 2"),
    ("open misuses", "0/misuse 64\n 0/misuse/0/count 1\n 0/misuse_left_out 4"),
    ("open first second", "0/most_used/0/pinned_by pins_here+0x"),
];

#[test]
fn uses_of_another_library_are_counted() {
    let place = Place::new();
    let uses = place.uses();
    let other = compile(OTHER, place.file("other.so"));
    let other = other.to_str().unwrap();
    for plugin in ["first.so", "second.so"] {
        place.compile("tools/tests/uses.c", plugin, &["-shared", "-fPIC", "-DPLUGIN"]);
    }
    for (steps, expected) in OTHER_USES {
        let (output, report) = place.traced(&["--lib", other], &uses, steps);
        assert_eq!(output.status, Some(0), "{steps}: {output:?}");
        assert_reported(&report, expected);
        if let Some(pins) = report["processes"][0]["most_used"].as_array().filter(|_| steps.contains("second")) {
            let files: Vec<_> = pins.iter().map(|pin| pin["pinned_by"].as_str().unwrap().split(' ').nth(1)).collect();
            assert_eq!(files, [Some("(first.so)"), Some("(second.so)")]);
        }
    }
    let (output, report) = place.traced(&["--lib", other], &uses, "open pin unpin unpin");
    assert_eq!(output.status, Some(128 + 6), "{output:?}");
    assert_reported(
        &report,
        "0/signal SIGABRT\n 0/inside 1\n 0/inside/0/function gdr_unpin_buffer
         0/misuse/0/what gdr_unpin_buffer after the pin was unpinned or its connection closed",
    );
    let ranges: String = (1..=600).map(|range| format!("range{range} unpin ")).collect();
    let (_, report) = place.traced(&["--lib", other], &uses, &format!("open {ranges}"));
    assert_reported(&report, "0/pins 600\n 0/most_used 10\n 0/pins_left_out 88\n 0/left/pins 0");
}

#[test]
fn programs_that_do_not_use_it_are_recognized() {
    let place = Place::new();
    let uses = place.uses();
    let statement =
        |program: &Path, steps: &str| place.traced(&[], program, steps).1["statement"].as_str().unwrap().to_owned();
    for steps in ["", "no_fds version"] {
        let not_called = statement(&uses, steps);
        assert!(not_called.contains("called no function of libgdrapi, or its process could not write"), "{not_called}");
    }
    assert!(statement(&uses, "version").ends_with(", but never opened it"));
    let fixed = place.compile("int main(void) { return 3; }", "fixed", &["-static"]);
    assert!(statement(&fixed, "").contains("cannot be traced"));
    let open_fails = place.program("c_tests/open_fails.c");
    run(place.bare_trace().arg("--").arg(open_fails)).with_status(0).reports(&["but gdr_open failed: ENOENT"]);
    let none = place.compile("int other(void) { return 0; }", "none.so", &["-shared", "-fPIC"]);
    let output = run(&mut place.trace(&["--lib", none.to_str().unwrap()], uses));
    output.with_status(1).reports(&["none.so is no libgdrapi"]);
}

/// Without the emulator, which writes files itself. A longer file raises a signal.
#[test]
fn programs_that_may_write_no_files_run_and_are_counted() {
    let place = Place::new();
    let (output, _) = place.traced(&[], place.uses(), "open pin fork no_files version");
    output.with_status(0).reports(&["\nprocesses that could not be recorded: 1\n"]);
    let open_fails = place.program("c_tests/open_fails.c");
    let output = run(place.bare_trace().args(["--", "sh", "-c", "ulimit -f 8; exec \"$0\""]).arg(open_fails));
    assert_eq!((output.status, &*output.stdout), (Some(0), "ok open_fails\n"), "{output:?}");
    output.reports(&["sh could not be recorded"]);
}

#[test]
fn temporary_directory_may_have_any_name_that_fits() {
    let place = Place::new();
    let uses = place.uses();
    let stderr = |directory: &Path| {
        fs::create_dir_all(directory).unwrap();
        run(place.trace(&[], &uses).arg("open").env("TMPDIR", directory)).stderr
    };
    assert!(stderr(&place.file("a:b c")).contains(" used libgdrapi "));
    let long = place.file(&"x".repeat(200)).join("y".repeat(200));
    assert!(stderr(&long).contains("set TMPDIR to a shorter path"));
}

#[test]
fn signals_are_ignored_and_forwarded_as_without_it() {
    let place = Place::new();
    let traced = "trap '' HUP INT; exec \"$0\" trace -- sh -c 'kill -HUP $$; kill -INT $$; exit 3'";
    let mut command = Command::new("sh");
    command.args(["-c", traced, env!("CARGO_BIN_EXE_gdrcopy")]).env("LD_LIBRARY_PATH", place.0.path());
    run(&mut command).with_status(3);
    for signal in ["INT", "QUIT", "TERM"] {
        // Jobs in the background may ignore some. The program sends the signal to its parent only, and waits for it.
        let program = format!("trap 'exit 3' {signal}; kill -{signal} $PPID; for i in $(seq 100); do sleep 0.1; done");
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_gdrcopy"), "trace", "--lib"]).arg(built("libgdrapi.so"));
        run(command.args(["--", "sh", "-c", &program])).with_status(3);
    }
}

#[test]
fn file_that_cannot_be_written_is_refused_before_the_program_runs_or_fails() {
    let place = Place::new();
    for (file, error) in [("missing/file", "ENOENT"), (".", "EISDIR")] {
        let output = run(place.trace(&["--json", file], "touch").arg("ran"));
        output.with_status(1).reports(&[&format!("{file} cannot be written: {error}")]);
        assert!(!place.file("ran").exists());
    }
    for (program, status) in [("exit 7", 7), (":", 1)] {
        let mut command = place.trace(&["--json", "/dev/full"], "sh");
        command.args(["-c", program]).stderr(fs::File::create("/dev/full").unwrap());
        assert_eq!(command.status().unwrap().code(), Some(status));
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    fs::create_dir(place.file(host.trim_end())).unwrap();
    run(&mut place.trace(&["--json", "%h/%p"], "true")).with_status(0);
    assert_eq!(fs::read_dir(place.file(host.trim_end())).unwrap().count(), 1);
}

#[test]
fn preloaded_functions_are_called() {
    let place = Place::new();
    let source = "#include <dlfcn.h>\n#include <stdio.h>\n\
        void *gdr_open(void) { puts(\"wrapped\"); return ((void *(*)(void))dlsym(RTLD_NEXT, \"gdr_open\"))(); }\n";
    let wrapper = place.compile(source, "wrapper.so", &["-shared", "-fPIC"]);
    let program = place.program("c_tests/open_close.c");
    for (preloaded, is_wrapped) in [(wrapper, true), (place.file("libgdrapi.so.2"), false)] {
        let output = run(place.trace(&[], &program).env("LD_PRELOAD", preloaded));
        assert_eq!(output.stdout.contains("wrapped"), is_wrapped, "{output:?}");
        output.reports(&[" used libgdrapi "]);
    }
}

/// Without a barrier, the CPU reads its counter before earlier loads have returned. The memory of an emulated GPU is too
/// fast to show it.
#[test]
fn counter_is_read_after_the_loads_of_a_copy() {
    let place = Place::new();
    let object = place.compile("tools/trace/trace.c", "trace.so", &["-std=gnu11", "-shared", "-fPIC"]);
    let code = run(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(object)).stdout;
    let (barrier, counter) = if cfg!(target_arch = "x86_64") { ("lfence", "rdtsc") } else { ("isb", "cntvct_el0") };
    for copy in ["gdr_copy_to_mapping", "gdr_copy_from_mapping"] {
        let start = code.find(&format!("<{copy}>:")).expect(copy);
        let function: Vec<_> = code[start..].split("\n\n").next().unwrap().lines().collect();
        let reads = function.windows(2).filter(|lines| lines[1].contains(counter));
        let waiting: Vec<_> = reads.map(|lines| lines[0].contains(barrier)).collect();
        assert_eq!(waiting, [false, true], "{copy}");
    }
}
