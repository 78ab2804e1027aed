//! Tests `gdrcopy trace`. Programs behave under it as they do without it, and it reports their calls.

mod common;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use common::{OTHER, Output, ROOT, built, compile, gcc, gdrcopy, preloaded, run};
use serde_json::Value;

/// The library of functions that the C tests share.
const KIT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/kit/plain/libkit.a");

/// A directory in which programs are built, and in which they find libgdrapi under its usual names.
struct Workdir(tempfile::TempDir);

impl Workdir {
    fn new() -> Workdir {
        static KIT_MADE: Once = Once::new();
        KIT_MADE.call_once(|| {
            // If this variable is set, another user has built this test and KIT, and this user may be unable to build.
            if env::var_os("GDRCOPY_TEST_BUILT").is_some() {
                return;
            }
            let out = concat!("out=", env!("CARGO_TARGET_TMPDIR"));
            let mut make = Command::new("make");
            make.args(["-C", ROOT, "-s", "-f", "c_tests/programs.mk", out, KIT]);
            assert!(make.status().expect("make starts").success(), "{make:?}");
        });
        preloaded();
        let workdir = Workdir(tempfile::tempdir().unwrap());
        for name in ["libgdrapi.so", "libgdrapi.so.2"] {
            symlink(built("libgdrapi.so"), workdir.file(name)).unwrap();
        }
        workdir
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a C source of the project, or a text in C, to a file with this name in the working directory.
    fn compile(&self, source: &str, name: &str, options: &[&str]) -> PathBuf {
        let mut file = PathBuf::from(source);
        if !source.ends_with(".c") {
            file = self.file("text.c");
            fs::write(&file, source).unwrap();
        }
        gcc(file, &[&["-fno-optimize-sibling-calls"], options].concat(), &self.file(name));
        self.file(name)
    }

    /// Builds a C program. It is linked with the library if it calls the library.
    fn program(&self, source: &str) -> PathBuf {
        let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
        let [library, cuda] = ["libgdrapi.so", "libgdremu_cuda.so"].map(|file| built(file).display().to_string());
        self.compile(source, name, &[KIT, "-Wl,--as-needed", &library, "-ldl", "-lc", &cuda])
    }

    /// Builds the program uses.c, which uses the library in steps that its arguments name, such as `open` and `pin`.
    fn uses(&self) -> PathBuf {
        self.program("tools/tests/uses.c")
    }

    /// Returns the command `gdremu -- gdrcopy trace OPTIONS -- PROGRAM`.
    fn trace(&self, options: &[&str], program: impl AsRef<Path>) -> Command {
        let mut command = gdrcopy(&[], &["trace"]);
        command.args(options).arg("--").arg(program.as_ref()).env("LD_LIBRARY_PATH", self.0.path());
        command.current_dir(self.0.path());
        command
    }

    /// Traces a program, with these steps as its arguments.
    fn traced(&self, options: &[&str], program: impl AsRef<Path>, steps: &str) -> Output {
        let mut command = self.trace(&[&["--json", "trace.json"], options].concat(), program);
        let output = run(command.args(steps.split_whitespace()).env("GDRCOPY_ALLOW_UNALIGNED_MAP", "1"));
        assert!(self.file("trace.json").exists(), "{output:?}");
        output
    }

    /// Returns the JSON report of the last program that was traced.
    fn report(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.file("trace.json")).unwrap()).unwrap()
    }
}

/// Checks values of a report. Each line of `expected` has a JSON pointer and the expected value: for a string, only its
/// beginning, and for an array, its length. A pointer that begins with a number starts at `processes`.
#[track_caller]
fn assert_reported(report: &Value, expected: &str) {
    for line in expected.lines() {
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
    let workdir = Workdir::new();
    for name in ["abi_consumers", "fork", "threads", "cancel", "never_closed", "faults", "signals"] {
        let output = workdir.traced(&[], workdir.program(&format!("c_tests/{name}.c")), "");
        let report = workdir.report();
        assert_eq!((output.status, &*output.stdout), (Some(0), &*format!("ok {name}\n")), "{output:?}");
        let statement = report["statement"].as_str().unwrap();
        assert!(statement.contains(" used libgdrapi ") && statement.contains("(this project's, 2.6)"), "{statement}");
        assert!(report["sum"]["pins"].as_u64() > Some(0), "{name}: {report}");
        if name == "never_closed" {
            assert_reported(&report, "sum/pins 300\nsum/left/pins 150\nsum/left/mappings 1");
        }
    }
}

/// Returns steps for uses.c that cause everything that trace reports, each a known number of times.
fn everything() -> String {
    let pins = "pin unpin ".repeat(12);
    let copies = "write8 ".repeat(200) + &"read16384 ".repeat(9);
    format!("open {pins} pin write8 unmap map {copies} read1 write0 swap write8 write8 swap unpin write8 unpin pin map")
}

/// Steps for uses.c. `protect` makes a mapping's last page inaccessible, so `past`, a copy past its end, gets SIGSEGV.
const CRASH: &str = "open pin map write8 protect past";

#[test]
fn everything_is_reported_as_documented() {
    let workdir = Workdir::new();
    let uses = workdir.uses();
    let output = workdir.traced(&[], &uses, &everything());
    let report = workdir.report();
    assert_eq!((output.status, &*output.stdout), (Some(0), ""), "{output:?}");
    let mut lines = output.stderr.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    for expected in [
        "(this project's, 2.6): 14 pins, 2 maps, 211 copies, 149057 bytes",
        "the GPU is emulated: its memory is host memory; these numbers are meaningless",
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
        " (uses) 14 WC 1 128 KiB",
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
        "0/pinned 1\n 0/pinned/0/pinned_by pin_here+0x\n 0/left/incomplete false\n 0/inside 0\n 0/signal null
         sum/failed_copies 4",
    );
    // docs/trace.md has a line for each object of the JSON report, with its name and then its fields.
    let document = fs::read_to_string(Path::new(ROOT).join("docs/trace.md")).unwrap();
    workdir.traced(&[], &uses, CRASH);
    let crashed = workdir.report();
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
        ("`pinned`", &report["sum"]["pinned"][0]),
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

/// Each case has the steps of the program uses.c, its exit status, and what trace must report. The program loads this
/// project's library.
const USES: &[(&str, i32, &str)] = &[
    ("open pin map write8 unmap write8 map _exit7", 7, "0/copies/0/count 1\n 0/misuse 1\n 0/left/mappings 1\n 0/inside 0"),
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
    // `half` pins 65536 bytes from the middle of a GPU page. The mapping begins at the page's start, so it has 98304.
    ("open half map end98304", 0, "0/copies/0/count 1\n 0/misuse 0"),
    ("open pin map serial10 parallel40", 0, "0/threads 51\n 0/copies/0/count 50\n 0/left/incomplete false"),
    ("open pins600", 0, "0/pins 600\n 0/left/pins 512\n 0/left/incomplete true\n 0/pinned/0/left_pins 512"),
    (
        "open pin map write8 fork open write8 _exit0",
        0,
        "processes 2\n 0/failed_copies 0\n 1/failed_copies 1\n 1/copies 0\n sum/calls/0/count 2
         1/misuse/0/what write of 8 bytes through a handle of no pin of this process",
    ),
];

/// Cases like those of `USES`, but with the library of `other.c`. It calls its own functions by their symbols, so these
/// calls, too, go through the object that trace preloads. trace must not count them.
const OTHER_USES: &[(&str, i32, &str)] = &[
    ("open map_v", 0, "0/calls/1/function gdr_map_v2\n 0/calls/1/errno ENOSYS"),
    (
        "open threads",
        0,
        "0/calls 5\n 0/calls/1/count 12000\n 0/calls/2/count 12000\n 0/calls/3/count 12000\n 0/calls/4/count 12000
         0/copies/0/count 120000\n 0/pinned 1\n 0/pinned/0/pins 12000\n 0/misuse 0\n 0/left/pins 0",
    ),
    // The child's threads make their first calls at the same time, and must create only one file for its counts.
    (
        "open fork threads",
        0,
        "1/calls 4\n 1/calls/0/count 12000\n 1/copies/0/count 120000\n 1/misuse 0\n 1/left/pins 0",
    ),
    ("open pin turns", 0, "0/copies/0/count 200\n 0/misuse 0"),
    ("open cancel", 0, "0/pins 300"),
    // If gdr_t is a small number, this library's gdr_close fails with that number as the error. After EINVAL (22)
    // and EACCES (13), trace must treat the connection as open, and after EIO (5) as closed.
    ("gdr5 pin map close gdr22 range2 map close gdr13 range3 map close", 0, "0/left/pins 2\n 0/left/mappings 2"),
    ("open misuses", 0, "0/misuse 64\n 0/misuse/0/count 1\n 0/misuse_left_out 4"),
    ("open plugin", 0, "0/pinned/0/pinned_by pins_here+0x"),
    ("open ranges600", 0, "0/pins 600\n 0/pinned/0/pins 600\n 0/pinned/0/left_pins 0\n 0/left/pins 0"),
    (
        "open pin unpin unpin",
        128 + 6,
        "0/signal SIGABRT\n 0/inside 1\n 0/inside/0/function gdr_unpin_buffer
         0/misuse/0/what gdr_unpin_buffer after the pin was unpinned or its connection closed",
    ),
];

#[test]
fn uses_are_counted_however_they_end() {
    let workdir = Workdir::new();
    let uses = workdir.uses();
    let other_library = format!("--lib={}", compile(OTHER, workdir.file("other.so")).display());
    let plugin = "#include \"gdrapi.h\"\nint pins_here(gdr_t g, gdr_mh_t *handle)\n\
        { return gdr_pin_buffer(g, 65536, 65536, 0, 0, handle); }\n";
    workdir.compile(plugin, "plugin.so", &["-shared", "-fPIC"]);
    for (options, table) in [(&[] as &[_], USES), (&[&*other_library], OTHER_USES)] {
        for (steps, status, expected) in table {
            let output = workdir.traced(options, &uses, steps);
            let report = workdir.report();
            assert_eq!(output.status, Some(*status), "{steps}: {output:?}");
            assert_reported(&report, expected);
            assert_eq!(report["pid"], report["processes"][0]["pid"], "{steps}");
            if steps == &CRASH {
                output.reports(&["), ended by SIGSEGV\nnot returned: gdr_copy_to_mapping, called by copy_here+0x"]);
            }
            if let Some(child) = report["processes"].get(1) {
                assert_eq!(child["parent"], report["pid"]);
                workdir.traced(&[options, &["--children=false"]].concat(), &uses, steps);
                assert_reported(&workdir.report(), "processes 1");
            }
        }
    }
}

#[test]
fn programs_that_do_not_use_it_are_recognized() {
    let workdir = Workdir::new();
    let uses = workdir.uses();
    let fixed = workdir.compile("int main(void) { return 3; }", "fixed", &["-static"]);
    let source = "#include <dlfcn.h>\n\
                  int main(int count, char **words) {\n\
                      void (*get)(int *, int *); int version;\n\
                      *(void **)&get = dlsym(dlopen(words[count - 1], RTLD_NOW), \"gdr_runtime_get_version\");\n\
                      get(&version, &version); }";
    let opens = workdir.compile(source, "opens_a_full_path", &["-ldl"]);
    let library = built("libgdrapi.so").display().to_string();
    for (program, steps, expected) in [
        (&uses, "", "called no function of libgdrapi that can be traced: it needs none, "),
        (&uses, "no_fds version", "or could not write to the temporary directory\n"),
        (&opens, &library, ": it needs none, opened one by its full path, or "),
        (&uses, "version", ", but never opened it\n"),
        (&fixed, "", "cannot be traced"),
    ] {
        workdir.traced(&[], program, steps).reports(&[expected]);
    }
    let mut without_driver = gdrcopy(&["--no-gdrdrv"], &["trace", "--"]);
    without_driver.arg(workdir.program("c_tests/open_fails.c")).env("LD_LIBRARY_PATH", workdir.0.path());
    run(&mut without_driver).with_status(0).reports(&["but gdr_open failed: ENO"]);
    let none = workdir.compile("int other(void) { return 0; }", "none.so", &["-shared", "-fPIC"]);
    let output = run(&mut workdir.trace(&["--lib", none.to_str().unwrap()], uses));
    output.with_status(1).reports(&["none.so is no libgdrapi"]);
}

/// Two programs limit the size of files to less than trace's files need. A longer write would raise SIGXFSZ, so trace
/// must do without these files. The second program runs without gdremu, whose files would exceed the limit.
#[test]
fn programs_run_with_any_directory_for_the_files_and_without_files() {
    let workdir = Workdir::new();
    let output = workdir.traced(&[], workdir.uses(), "open pin fork no_files version");
    output.with_status(0).reports(&["\nprocesses that could not be recorded: 1\n"]);
    let mut bare = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    bare.args(["trace", "--", "sh", "-c", "ulimit -f 8; exec \"$0\""]).arg(workdir.program("c_tests/open_fails.c"));
    let output = run(bare.env("LD_LIBRARY_PATH", workdir.0.path()));
    assert_eq!((output.status, &*output.stdout), (Some(0), "ok open_fails\n"), "{output:?}");
    output.reports(&["sh could not be recorded"]);
    // The directory for trace's files may have any name, unless its path is too long.
    let uses = workdir.uses();
    let long = "x".repeat(200) + "/" + &"y".repeat(200);
    for (name, expected) in [("a:b c", " used libgdrapi "), (&long, "set TMPDIR to a shorter path")] {
        fs::create_dir_all(workdir.file(name)).unwrap();
        run(workdir.trace(&[], &uses).arg("open").env("TMPDIR", workdir.file(name))).reports(&[expected]);
    }
}

/// One program is linked with the library (with -z now, so its functions are looked up at the start). Another one calls
/// dlopen.
#[test]
fn functions_of_a_newer_library_work_and_are_reported_as_not_seen() {
    let workdir = Workdir::new();
    for name in ["libgdrapi.so", "libgdrapi.so.2"] {
        fs::remove_file(workdir.file(name)).unwrap();
    }
    let newer = format!(
        "#include \"{ROOT}/{OTHER}\"\n\
         int gdr_extra(void); int gdr_extra(void) {{ return 42; }}\n"
    );
    workdir.compile(&newer, "libgdrapi.so.2", &["-shared", "-fPIC", "-Wl,-soname,libgdrapi.so.2"]);
    symlink("libgdrapi.so.2", workdir.file("libgdrapi.so")).unwrap();
    let linked = "#include <stdio.h>\n\
        void *gdr_open(void); int gdr_extra(void);\n\
        int main(void) { printf(\"%d\", gdr_open() ? gdr_extra() : 0); }";
    let library = workdir.file("libgdrapi.so").display().to_string();
    let linked = workdir.compile(linked, "linked", &["-Wl,-z,now", &library]);
    let opens = "#include <dlfcn.h>\n#include <stdio.h>\n\
        int main(int argc, char **argv) {\n\
            void *library = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL), *(*open)(void); int (*extra)(void);\n\
            *(void **)&open = dlsym(library, \"gdr_open\"); *(void **)&extra = dlsym(library, \"gdr_extra\");\n\
            printf(\"%d\", open() ? extra() : 0); }";
    let opens = workdir.compile(opens, "opens", &["-ldl"]);
    for (program, name) in [(&linked, ""), (&opens, "libgdrapi.so"), (&opens, "libgdrapi.so.2")] {
        let output = workdir.traced(&[], program, name);
        assert_eq!((output.status, &*output.stdout), (Some(0), "42"), "{output:?}");
        output.reports(&["\nnot seen: calls of gdr_extra, which this libgdrapi also has\n"]);
        let expected = "not_traced 1\n sum/calls 1\n sum/calls/0/function gdr_open\n sum/calls/0/count 1";
        assert_reported(&workdir.report(), expected);
    }
    fs::create_dir(workdir.file("a b")).unwrap();
    let output = run(workdir.trace(&[], &linked).env("TMPDIR", workdir.file("a b")));
    output.with_status(1).reports(&["LD_PRELOAD cannot name a path with a blank", "set TMPDIR"]);
}

#[test]
fn failed_open_without_errno_counts_as_failed() {
    let workdir = Workdir::new();
    let library = workdir.compile(
        "#include <errno.h>\nvoid *gdr_open(void); void *gdr_open(void) { errno = 0; return 0; }",
        "none.so",
        &["-shared", "-fPIC"],
    );
    let program = workdir.compile(
        "void *gdr_open(void); int main(void) { return gdr_open() != 0; }",
        "opens",
        &[library.to_str().unwrap(), "-Wl,-rpath,$ORIGIN"],
    );
    let output = workdir.traced(&["--lib", library.to_str().unwrap()], program, "");
    output.reports(&["but gdr_open failed: no errno\n"]);
    assert_reported(&workdir.report(), "sum/calls/0/failed 1\n sum/calls/0/errno no errno");
}

#[test]
fn programs_that_do_not_exist_or_cannot_run_end_as_in_a_shell() {
    let workdir = Workdir::new();
    fs::write(workdir.file("text"), "").unwrap();
    for (program, status, error) in
        [("./none", 127, "./none: No such file"), ("./text", 126, "./text: Permission denied")]
    {
        let output = run(&mut workdir.trace(&[], program));
        output.with_status(status).reports(&[&format!("gdrcopy trace: {error}")]);
    }
}

#[test]
fn signals_are_ignored_and_forwarded_as_without_it() {
    let workdir = Workdir::new();
    let traced = "trap '' HUP INT; exec \"$0\" trace -- sh -c 'kill -HUP $$; kill -INT $$; exit 3'";
    let mut command = Command::new("sh");
    command.args(["-c", traced, env!("CARGO_BIN_EXE_gdrcopy")]).env("LD_LIBRARY_PATH", workdir.0.path());
    run(&mut command).with_status(3);
    for signal in ["INT", "QUIT", "TERM"] {
        // If the test runs in the background, it may ignore some signals, so `env` resets them. The program sends the
        // signal only to its parent, `gdrcopy trace`, which must forward it to the program.
        let program = format!("trap 'exit 3' {signal}; kill -{signal} $PPID; for i in $(seq 100); do sleep 0.1; done");
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_gdrcopy"), "trace", "--lib"]).arg(built("libgdrapi.so"));
        run(command.args(["--", "sh", "-c", &program])).with_status(3);
    }
}

#[test]
fn file_that_cannot_be_written_is_refused_before_the_program_runs_or_fails() {
    let workdir = Workdir::new();
    for (file, error) in [("no/file", "no/file cannot be written: ENOENT"), (".", ". cannot be written: EISDIR")] {
        run(workdir.trace(&["--json", file], "touch").arg("ran")).with_status(1).reports(&[error]);
        assert!(!workdir.file("ran").exists());
    }
    for (program, status) in [("exit 7", 7), (":", 1)] {
        let mut command = workdir.trace(&["--json", "/dev/full"], "sh");
        command.args(["-c", program]).stderr(fs::File::create("/dev/full").unwrap());
        assert_eq!(command.status().unwrap().code(), Some(status));
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    fs::create_dir(workdir.file(host.trim_end())).unwrap();
    run(&mut workdir.trace(&["--json", "%h/%p"], "true")).with_status(0);
    assert_eq!(fs::read_dir(workdir.file(host.trim_end())).unwrap().count(), 1);
}

#[test]
fn preloaded_functions_are_called() {
    let workdir = Workdir::new();
    let source = "#include <dlfcn.h>\n#include <stdio.h>\n\
        void *gdr_open(void) { puts(\"wrapped\"); return ((void *(*)(void))dlsym(RTLD_NEXT, \"gdr_open\"))(); }\n";
    let wrapper = workdir.compile(source, "wrapper.so", &["-shared", "-fPIC"]);
    let program = workdir.program("c_tests/open_close.c");
    for (preloaded, is_wrapped) in [(wrapper, true), (workdir.file("libgdrapi.so.2"), false)] {
        let output = run(workdir.trace(&[], &program).env("LD_PRELOAD", preloaded));
        assert_eq!(output.stdout.contains("wrapped"), is_wrapped, "{output:?}");
        output.reports(&[" used libgdrapi "]);
    }
}

/// Without a barrier, the CPU reads its counter before the loads of a copy have returned. The memory of an emulated GPU
/// is too fast to show that, so the test looks for the barrier in the machine code.
#[test]
fn counter_is_read_after_the_loads_of_a_copy() {
    let workdir = Workdir::new();
    let next = format!("{ROOT}/tools/trace/next.c");
    let object = workdir.compile("tools/trace/trace.c", "trace.so", &[&next, "-std=gnu11", "-shared", "-fPIC"]);
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
