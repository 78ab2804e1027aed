//! `gdrcopy trace`: programs behave as without it, and what they did is reported.

mod common;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Once, OnceLock};

use common::{Output, built, gdrcopy, run};
use serde_json::{Value, json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The kit of the C tests, compiled once.
fn kit() -> &'static str {
    const KIT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/kit/plain.a");
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        let out = concat!("out=", env!("CARGO_TARGET_TMPDIR"));
        let mut make = Command::new("make");
        make.args(["-C", ROOT, "-s", "-f", "c_tests/programs.mk", out, KIT]);
        assert!(make.status().expect("make starts").success(), "{make:?}");
    });
    KIT
}

/// Where programs find the library under its usual names, and where they are built.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        for name in ["libgdrapi.so", "libgdrapi.so.2"] {
            symlink(built("libgdrapi.so"), place.file(name)).unwrap();
        }
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Builds a C program, which links libraries of this place and CUDA's.
    fn program(&self, source: &str, libraries: &[&str]) -> PathBuf {
        let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
        let libraries = libraries.iter().map(|name| self.file(name));
        let before = [kit(), "-Wl,--as-needed"].map(PathBuf::from).into_iter();
        let after = ["-ldl".into(), "-lc".into(), built("libgdremu_cuda.so")];
        self.compile(source, name, before.chain(libraries).chain(after))
    }

    /// Compiles a source file to a file of this place.
    fn compile(&self, source: impl AsRef<Path>, name: &str, options: impl IntoIterator<Item: AsRef<OsStr>>) -> PathBuf {
        let output = self.file(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=c99", "-D_GNU_SOURCE", "-O2", "-pthread"]).arg(Path::new(ROOT).join(source));
        gcc.args(["include", "c_tests"].map(|directory| format!("-I{ROOT}/{directory}")));
        gcc.args(options).arg("-o").arg(&output);
        assert!(gcc.status().expect("gcc starts").success(), "{gcc:?}");
        output
    }

    /// The command `gdremu -- gdrcopy trace OPTIONS -- PROGRAM ARGUMENT`.
    fn trace(&self, options: &[&str], program: &Path, argument: &str) -> Command {
        tracer();
        let mut command = gdrcopy(&[], &["trace"]);
        command.args(options).arg("--").arg(program);
        command.args(Some(argument).filter(|argument| !argument.is_empty()));
        command.env("LD_LIBRARY_PATH", self.0.path());
        command
    }

    /// Traces a program, and returns what it output, and the JSON.
    fn traced(&self, options: &[&str], program: &Path, argument: &str) -> (Output, Value) {
        let json = self.file("trace.json");
        let options = [&["--json", json.to_str().unwrap()], options].concat();
        let output = run(&mut self.trace(&options, program, argument));
        let json = fs::read_to_string(json).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output, serde_json::from_str(&json).unwrap())
    }
}

/// Makes the object that `make tools` puts beside the tracer.
fn tracer() {
    static MADE: OnceLock<()> = OnceLock::new();
    MADE.get_or_init(|| {
        let tracer = built("libgdrcopy_trace.so");
        let alias = tracer.with_file_name("libgdrcopy_trace_alias.so");
        let mine = tracer.with_file_name(format!("alias-{}", std::process::id()));
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none"]);
        gcc.args(["-Wl,-soname,libgdrapi.so", "-Wl,--no-as-needed"]);
        assert!(gcc.arg(tracer).arg("-o").arg(&mine).status().expect("gcc starts").success());
        fs::rename(mine, alias).unwrap();
    });
}

const USES: &str = "tools/tests/trace/uses.c";

#[test]
fn c_tests_pass_and_their_calls_are_counted() {
    let place = Place::new();
    for (name, linked, pins) in [
        ("abi_nccl", false, 4),
        ("abi_nvshmem", false, 1),
        ("abi_ucx", true, 2),
        ("fork", true, 1),
        ("threads", true, 1),
        ("cancel", true, 1),
        ("never_closed", true, 300),
        ("faults", true, 1),
        ("signals", true, 1),
    ] {
        let libraries: &[&str] = if linked { &["libgdrapi.so.2"] } else { &[] };
        let program = place.program(&format!("c_tests/{name}.c"), libraries);
        let (output, report) = place.traced(&[], &program, "");
        assert_eq!((output.status, &*output.stdout), (Some(0), &*format!("ok {name}\n")), "{output:?}");
        let statement = report["statement"].as_str().unwrap();
        assert!(statement.contains(" used libgdrapi "), "{name}: {statement}");
        assert!(statement.contains("(this project's, 2.6)"), "{name}: {statement}");
        let total = if report["sum"].is_null() { &report["processes"][0] } else { &report["sum"] };
        assert!(total["pins"].as_u64() >= Some(pins), "{name}: {total}");
        if name == "never_closed" {
            let left = &total["left"];
            assert_eq!((left["pins"].as_u64(), left["mappings"].as_u64()), (Some(150), Some(1)), "{left}");
        }
    }
}

/// A report without times, addresses, paths and process numbers, which differ between runs; blanks are one each.
fn normalized(text: &str, place: &Path) -> String {
    const UNITS: [&str; 6] = ["ns", "µs", "ms", "s", "s,", "%"];
    let library = built("libgdrapi.so");
    let text = text.replace(library.to_str().unwrap(), "LIBRARY").replace(place.to_str().unwrap(), "PLACE");
    let line = |line: &str| {
        let mut words: Vec<String> = Vec::new();
        for word in line.split_whitespace() {
            let is_number = |word: &String| word.parse::<f64>().is_ok();
            if (UNITS.contains(&word) || word.ends_with("B/s")) && words.last().is_some_and(is_number) {
                words.pop();
                words.push("N".into());
            }
            let after_process = words.last().is_some_and(|last| last == "process");
            match word.split_once("0x") {
                Some((before, _)) => words.push(format!("{before}0xN")),
                None if after_process => words.push("PID".into()),
                None if word.ends_with("B/s") => words.push("B/s".into()),
                None if UNITS[..4].contains(&word) => words.push("s".into()),
                None => words.push(word.into()),
            }
        }
        words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

#[test]
fn report_is_the_stored_one() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    let (output, report) = place.traced(&[], &program, "everything");
    assert_eq!((output.status, &*output.stdout), (Some(0), ""), "{output:?}");
    let stored = Path::new(ROOT).join("tools/tests/trace/everything.txt");
    let got = normalized(&output.stderr.replace("gdremu: leak", "\0"), place.0.path());
    let got: String = got.lines().filter(|line| !line.starts_with('\0')).map(|line| line.to_owned() + "\n").collect();
    if std::env::var_os("GDRCOPY_TEST_STORE").is_some() {
        fs::write(&stored, &got).unwrap();
    }
    assert_eq!(got, fs::read_to_string(stored).unwrap(), "{}", output.stderr);

    let process = &report["processes"][0];
    let copies = process["copies"].as_array().unwrap();
    let copies: Vec<_> = copies
        .iter()
        .map(|it| {
            (it["direction"].as_str().unwrap(), it["size_bytes"].as_u64().unwrap(), it["count"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(copies, [("write", 8, 200), ("read", 1, 1), ("read", 16384, 9)]);
    assert!(process["copies"][0]["p50_ns"].as_f64() <= process["copies"][0]["p99_ns"].as_f64());
    let pin = &process["most_used"][0];
    for (field, expected) in [("pins", 14), ("maps", 2), ("writes", 200), ("written_bytes", 1600), ("reads", 10)] {
        assert_eq!(pin[field], expected, "{field}: {pin}");
    }
    assert!(pin["pinned_by"].as_str().unwrap().starts_with("pin_here+0x"), "{pin}");
}

#[test]
fn empty_copies_are_counted() {
    let place = Place::new();
    let (_, report) = place.traced(&[], &place.program(USES, &[]), "empty");
    let process = &report["processes"][0];
    let copies = &process["copies"][0];
    assert_eq!((&copies["count"], &copies["bytes"]), (&1.into(), &0.into()), "{process}");
    assert!(process["seconds_inside"].is_f64(), "{process}");
}

#[test]
fn file_in_a_missing_directory_is_refused_before_the_program_runs() {
    let place = Place::new();
    let ran = place.file("ran");
    for option in ["--json", "--chrome", "--plot"] {
        let missing = place.file("missing/file");
        let mut command = place.trace(&[option, missing.to_str().unwrap()], Path::new("touch"), "");
        run(command.arg(&ran)).with_status(1).reports(&["missing/file cannot be written: ENOENT"]);
        assert!(!ran.exists());
    }
}

#[test]
fn abrupt_ends_lose_nothing() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    for (end, status) in [("_exit", 7), ("abort", 128 + 6), ("kill", 128 + 9), ("fault", 128 + 11)] {
        let (output, report) = place.traced(&[], &program, end);
        assert_eq!(output.status, Some(status), "{end}: {output:?}");
        let process = &report["processes"][0];
        assert_eq!(process["copies"][0]["count"], 1, "{end}: {process}");
        assert_eq!(process["left"]["mappings"], 1, "{end}: {process}");
    }
}

#[test]
fn share_of_a_child_is_reported_if_its_end_is_known() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    for (end, is_known) in [("everything", true), ("_exit", false)] {
        let json = place.file("trace.json");
        let mut command = place.trace(&["--json", json.to_str().unwrap()], Path::new("sh"), "-c");
        let output = run(command.arg(format!("{} {end}; :", program.display())));
        let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
        assert_eq!(report["processes"][0]["until_last_call"], !is_known, "{end}: {report}");
        assert_eq!(output.stderr.contains(" % of it inside libgdrapi\n"), is_known, "{output:?}");
        assert_eq!(output.stderr.contains(" s until the last call, "), !is_known, "{output:?}");
    }
    let (_, report) = place.traced(&[], &program, "_exit");
    assert_eq!(report["processes"][0]["until_last_call"], false, "{report}");
}

#[test]
fn misuse_is_recorded_before_the_copy() {
    let place = Place::new();
    let (_, report) = place.traced(&[], &place.program(USES, &[]), "outside");
    let misuse = &report["processes"][0]["misuse"][0];
    assert!(misuse["caller"].as_str().unwrap().starts_with("copy_here+0x"), "{misuse}");
    let expected = "write of 1048576 bytes at offset 65528: the mapping has 65536 bytes";
    assert_eq!(misuse["what"], expected);
}

#[test]
fn forked_child_has_a_table_of_its_own() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    let (output, report) = place.traced(&[], &program, "fork");
    assert_eq!(output.status, Some(0), "{output:?}");
    let [parent, child] = &report["processes"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    assert_eq!((&child["parent"], &parent["pid"]), (&parent["pid"], &report["pid"]));
    assert_eq!((&child["failed_copies"], &parent["failed_copies"]), (&1.into(), &0.into()));
    let what = child["misuse"][0]["what"].as_str().unwrap();
    assert_eq!(what, "write of 8 bytes through a handle of no pin of this process");
    assert_eq!(report["sum"]["calls"][0]["count"], 2, "{report}");

    let (_, report) = place.traced(&["--children=false"], &program, "fork");
    assert_eq!(report["processes"].as_array().unwrap().len(), 1, "{report}");
}

#[test]
fn programs_that_do_not_use_it_are_recognized() {
    let place = Place::new();
    let statement = |program: &Path, argument: &str| {
        place.traced(&[], program, argument).1["statement"].as_str().unwrap().to_owned()
    };
    let not_loaded = statement(Path::new("true"), "");
    assert!(not_loaded.contains("true did not load libgdrapi"));
    let uses = place.program(USES, &[]);
    // Without a free descriptor, the process looks the functions up, but has no file.
    assert_eq!(statement(&uses, "full").replace(uses.to_str().unwrap(), "true"), not_loaded);
    assert!(not_loaded.ends_with(", or its process could not write to the temporary directory"));
    assert!(statement(&uses, "nothing").ends_with(", but never opened it"));
    fs::write(place.file("fixed.c"), "int main(void) { return 3; }").unwrap();
    let fixed = place.compile(place.file("fixed.c"), "fixed", ["-static"]);
    assert!(statement(&fixed, "").contains("cannot be traced"));
    // gdr_open fails outside gdremu.
    let output = run(Command::new(env!("CARGO_BIN_EXE_gdrcopy"))
        .env("LD_LIBRARY_PATH", place.0.path())
        .args(["trace", "--"])
        .arg(place.program("c_tests/open_fails.c", &["libgdrapi.so.2"])))
    .with_status(0);
    output.reports(&["but gdr_open failed: ENOENT"]);
}

#[test]
fn functions_that_the_library_lacks_are_not_found() {
    let place = Place::new();
    fs::write(place.file("old.c"), "int gdr_open(void) { return 0; }").unwrap();
    let old = place.compile(place.file("old.c"), "old.so", ["-shared", "-fPIC"]);
    let asks = "#include <dlfcn.h>\n\
        int main(void) {\n\
            void *library = dlopen(\"libgdrapi.so.2\", RTLD_NOW);\n\
            return (dlsym(library, \"gdr_open\") != 0) + 2 * (dlsym(library, \"gdr_map_v2\") != 0);\n\
        }\n";
    fs::write(place.file("asks.c"), asks).unwrap();
    let asks = place.program(place.file("asks.c").to_str().unwrap(), &[]);
    assert_eq!(run(&mut place.trace(&["--lib", old.to_str().unwrap()], &asks, "")).status, Some(1));
    assert_eq!(run(&mut place.trace(&[], &asks, "")).status, Some(3));

    fs::write(place.file("none.c"), "int other(void) { return 0; }").unwrap();
    let none = place.compile(place.file("none.c"), "none.so", ["-shared", "-fPIC"]);
    let output = run(&mut place.trace(&["--lib", none.to_str().unwrap()], &asks, ""));
    output.with_status(1).reports(&["none.so is no libgdrapi"]);
}

/// Without the emulator, which writes files itself.
#[test]
fn programs_that_may_write_no_files_do_not_end() {
    let place = Place::new();
    let soname = "-Wl,-soname,libgdrapi.so.2";
    let other = place.compile("tools/tests/trace/other.c", "other.so", ["-shared", "-fPIC", soname]);
    let pins = "#include \"gdrapi.h\"\n#include <sys/resource.h>\n\
        int main(void) {\n\
            struct rlimit none = {0, 0};\n\
            gdr_mh_t handle;\n\
            gdr_t g = gdr_open();\n\
            setrlimit(RLIMIT_FSIZE, &none);\n\
            return gdr_pin_buffer(g, 65536, 65536, 0, 0, &handle);\n\
        }\n";
    fs::write(place.file("pins.c"), pins).unwrap();
    let other = other.to_str().unwrap();
    let pins = place.compile(place.file("pins.c"), "pins", [other]);
    tracer();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    run(command.args(["trace", "--lib", other, "--"]).arg(&pins)).with_status(0).reports(&[": 1 pin, "]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    command.args(["trace", "--lib", other, "--", "sh", "-c", "ulimit -f 8; exec \"$0\""]).arg(pins);
    let output = run(&mut command);
    assert!(!output.stderr.contains(" more could not be recorded"), "{output:?}");
    output.with_status(0).reports(&["sh could not be recorded"]);
}

/// Traces a use of a library whose calls differ from those of this project's.
fn traced_with_other_library(place: &Place, how: &str) -> Value {
    const SOURCE: &str = "tools/tests/trace/other_uses.c";
    let other = ["-shared", "-fPIC", "-pthread", "-Wl,-soname,libgdrapi.so.2", "-DCALLS_IN_INFO"];
    let other = place.compile("tools/tests/trace/other.c", "other.so", &other[..if how == "map" { 5 } else { 4 }]);
    let other = other.to_str().unwrap();
    let plugin = place.compile(SOURCE, "first.so", ["-shared", "-fPIC", "-DPLUGIN", other]);
    fs::copy(plugin, place.file("second.so")).unwrap();
    let program = place.compile(SOURCE, "other_uses", [kit(), other, "-ldl"]);
    let chrome = place.file("chrome.json");
    let (output, report) = place.traced(&["--lib", other, "--chrome", chrome.to_str().unwrap()], &program, how);
    assert_eq!(output.status, Some(0), "{output:?}");
    report
}

/// The events of such a use.
fn events_with_other_library(how: &str) -> Vec<Value> {
    let place = Place::new();
    traced_with_other_library(&place, how);
    let document: Value = serde_json::from_str(&fs::read_to_string(place.file("chrome.json")).unwrap()).unwrap();
    document["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn handles_that_are_given_again_at_once_are_no_misuse() {
    // The child's threads make its tables.
    for how in ["threads", "forked"] {
        let report = traced_with_other_library(&Place::new(), how);
        let process = report["processes"].as_array().unwrap().last().unwrap();
        let count = |name: &str| {
            let calls = process["calls"].as_array().unwrap();
            calls.iter().find(|calls| calls["function"] == name).map(|calls| calls["count"].clone())
        };
        for name in ["gdr_pin_buffer", "gdr_map", "gdr_unmap", "gdr_unpin_buffer"] {
            assert_eq!(count(name), Some(12000.into()), "{how} {name}: {process}");
        }
        // The library's own calls.
        assert_eq!(count("gdr_pin_buffer_v2"), None);
        assert_eq!(process["copies"][0]["count"], 120_000, "{process}");
        assert_eq!((&process["misuse"], &process["left"]["pins"]), (&json!([]), &0.into()));
    }
}

#[test]
fn pin_that_another_thread_maps_at_once_is_mapped() {
    let process = &traced_with_other_library(&Place::new(), "turns")["processes"][0];
    assert_eq!((&process["copies"][0]["count"], &process["misuse"]), (&200.into(), &json!([])));
}

#[test]
fn thread_canceled_during_a_copy_ends_by_itself() {
    let process = &traced_with_other_library(&Place::new(), "cancel")["processes"][0];
    assert_eq!(process["pins"], 300, "{process}");
}

#[test]
fn failed_close_ends_pins_unless_the_handle_is_wrong() {
    let left = &traced_with_other_library(&Place::new(), "closes")["processes"][0]["left"];
    assert_eq!((&left["pins"], &left["mappings"]), (&2.into(), &2.into()), "{left}");
}

#[test]
fn misuse_of_too_many_places_is_counted() {
    let process = &traced_with_other_library(&Place::new(), "misuses")["processes"][0];
    assert_eq!((process["misuse"].as_array().unwrap().len(), &process["misuse_left_out"]), (64, &20.into()));
}

#[test]
fn unloaded_code_keeps_its_name() {
    let process = &traced_with_other_library(&Place::new(), "plugins")["processes"][0];
    let pins = process["most_used"].as_array().unwrap();
    let callers = pins.iter().map(|pin| pin["pinned_by"].as_str().unwrap());
    let files: Vec<_> = callers.map(|caller| caller.split(' ').next_back().unwrap()).collect();
    assert_eq!(files, ["(first.so)", "(second.so)"]);
}

#[test]
fn events_follow_pins_to_their_end() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    let chrome = place.file("%p.json");
    let events = |options: &[&str]| -> (Value, String) {
        let options = [&["--chrome", chrome.to_str().unwrap()], options].concat();
        let (output, report) = place.traced(&options, &program, "many");
        let file = place.file(&format!("{}.json", report["pid"]));
        (serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap(), output.stderr)
    };
    let (document, stderr) = events(&[]);
    let all = document["traceEvents"].as_array().unwrap();
    let with = |field: &str, value: &str| all.iter().filter(|event| event[field] == value).count();
    assert_eq!(with("name", "gdr_copy_to_mapping"), 65536);
    assert_eq!(["s", "f", "t"].map(|phase| with("ph", phase)), [1, 1, 65537]);
    assert_eq!(document["otherData"]["earlier calls left out"], 100_001 - 65536);
    assert!(stderr.contains("65540 calls are events; 34465 earlier ones were left out"), "{stderr}");
    let ids: Vec<_> = all.iter().filter(|event| event["name"] == "pin").map(|event| &event["id"]).collect();
    assert!(ids.iter().all(|id| id == &ids[0]), "{ids:?}");

    let (document, _) = events(&["--min-time", "1000000000000"]);
    assert!(!document.to_string().contains("gdr_copy_to_mapping"));
    assert!(document.to_string().contains("gdr_pin_buffer"));
}

#[test]
fn each_pin_has_arrows_of_its_own() {
    let events = events_with_other_library("ranges");
    for phase in ["s", "f"] {
        let ids: HashSet<_> = events.iter().filter(|it| it["ph"] == phase).map(|it| it["id"].as_str()).collect();
        assert_eq!(ids.len(), 600, "{phase}");
    }
}

#[test]
fn work_of_the_tracer_is_in_no_time_of_a_call() {
    let events = events_with_other_library("map");
    let time = |name: &str| {
        let event = events.iter().find(|event| event["name"] == name).unwrap();
        let start = event["ts"].as_f64().unwrap();
        (start, start + event["dur"].as_f64().unwrap())
    };
    // The tracer asks for the info of the mapping, and so causes the other call.
    let (map, other) = (time("gdr_map"), time("gdr_close"));
    assert!(map.1 <= other.0, "{map:?}, {other:?}");
}

#[test]
fn chart_shows_number_and_time() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    let chart = place.file("chart.svg");
    run(&mut place.trace(&["--plot", chart.to_str().unwrap()], &program, "everything"));
    let chart = fs::read_to_string(chart).unwrap();
    for title in ["Number of copies", "Time of a copy", "writes", "reads"] {
        assert!(chart.contains(title), "{title}: {chart}");
    }
}

#[test]
fn live_view_appears_while_the_program_runs() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    let mut command = place.trace(&["--live"], &program, "wait");
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // The program ends when its input does.
    let seen = lines.find(|line| line.starts_with("write from 8 B")).unwrap();
    assert!(seen.contains(" 1 "), "{seen}");
    drop(child.stdin.take());
    assert!(lines.any(|line| line.contains("left at the end: 1 pin")));
    assert!(child.wait().unwrap().success());
}

#[test]
fn programs_run_where_nothing_can_be_recorded() {
    tracer();
    let place = Place::new();
    let program = place.program("c_tests/open_fails.c", &["libgdrapi.so.2"]);
    // Its files are shorter than the tables.
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
    command.args(["trace", "--", "sh", "-c", "ulimit -f 8; exec \"$0\""]).arg(program);
    let output = run(command.env("LD_LIBRARY_PATH", place.0.path()));
    assert_eq!((output.status, &*output.stdout), (Some(0), "ok open_fails\n"), "{output:?}");
    output.reports(&["sh could not be recorded"]);
}

#[test]
fn temporary_directory_may_have_any_name_that_fits() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    let statement = |directory: &Path| {
        fs::create_dir_all(directory).unwrap();
        run(place.trace(&[], &program, "everything").env("TMPDIR", directory)).stderr
    };
    let stderr = statement(&place.file("a:b c"));
    assert!(stderr.contains(" used libgdrapi "), "{stderr}");
    let stderr = statement(&place.file(&"x".repeat(200)).join("y".repeat(200)));
    assert!(stderr.contains("set TMPDIR to a shorter path"), "{stderr}");
}

#[test]
fn process_without_fallocate_is_recorded() {
    let place = Place::new();
    let denied = place.file("denied");
    let source = format!("{ROOT}/c_tests/denied/denied.c");
    let gcc = Command::new("gcc").arg("-D_GNU_SOURCE").arg(source).arg("-o").arg(&denied).status();
    assert!(gcc.unwrap().success());
    let mut command = place.trace(&[], &denied, "fallocate");
    let output = run(command.arg("ENOSYS").arg(place.program(USES, &[])).arg("everything"));
    assert!(output.stderr.contains(" 14 pins, 2 maps, 210 copies, "), "{output:?}");
}

#[test]
fn processes_that_cannot_be_recorded_are_counted() {
    let place = Place::new();
    let (output, report) = place.traced(&[], &place.program(USES, &[]), "limited");
    assert_eq!((output.status, &report["not_recorded"]), (Some(0), &1.into()), "{output:?}");
    assert!(output.stderr.contains("\n1 process more could not be recorded"), "{output:?}");
}

#[test]
fn signals_that_are_ignored_stay_ignored() {
    let place = Place::new();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT; exec \"$0\" trace -- sh -c 'kill -HUP $$; kill -INT $$; exit 3'"]);
    tracer();
    command.arg(env!("CARGO_BIN_EXE_gdrcopy")).env("LD_LIBRARY_PATH", place.0.path());
    let output = run(&mut command);
    assert_eq!(output.status, Some(3), "{output:?}");
}

#[test]
fn signals_that_processes_send_are_forwarded() {
    tracer();
    for signal in ["INT", "QUIT", "TERM"] {
        // Jobs in the background may ignore some.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_gdrcopy")]);
        // It sends the signal to its parent only, and waits for it.
        let program = format!("trap 'exit 3' {signal}; kill -{signal} $PPID; for i in $(seq 100); do sleep 0.1; done");
        command.args(["trace", "--lib"]).arg(built("libgdrapi.so")).args(["--", "sh", "-c", &program]);
        run(&mut command).with_status(3);
    }
}

#[test]
fn outputs_that_fail_do_not_end_the_others() {
    let place = Place::new();
    tracer();
    let (json, chrome) = (place.file("trace.json"), place.file("chrome.json"));
    let status = |options: [&str; 4], program: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gdrcopy"));
        command.arg("trace").args(options).args(["--", "sh", "-c", program]).env("LD_LIBRARY_PATH", place.0.path());
        command.stderr(fs::File::create("/dev/full").unwrap()).status().unwrap().code()
    };
    let [json, chrome] = [&json, &chrome].map(|file| file.to_str().unwrap());
    assert_eq!(status(["--json", json, "--chrome", "/dev/full"], "exit 7"), Some(7));
    assert_eq!(status(["--json", "/dev/full", "--chrome", chrome], ":"), Some(1));
    assert!([json, chrome].iter().all(|file| Path::new(file).exists()));
    let directory = place.0.path().to_str().unwrap();
    let mut command = place.trace(&["--json", directory], Path::new("touch"), "");
    assert!(run(&mut command).stderr.contains(" cannot be written: EISDIR"));
}

#[test]
fn host_may_be_the_name_of_a_directory() {
    let place = Place::new();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    fs::create_dir(place.file(host.trim_end())).unwrap();
    let output = run(&mut place.trace(&["--json", place.file("%h/%p").to_str().unwrap()], Path::new("true"), ""));
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!(fs::read_dir(place.file(host.trim_end())).unwrap().count(), 1);
}

#[test]
fn preloaded_functions_are_called() {
    let place = Place::new();
    let wrapper = place.file("wrapper.so");
    let source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n\
        void *gdr_open(void) { puts(\"wrapped\"); return ((void *(*)(void))dlsym(RTLD_NEXT, \"gdr_open\"))(); }\n";
    fs::write(place.file("wrapper.c"), source).unwrap();
    let gcc =
        Command::new("gcc").args(["-shared", "-fPIC"]).arg(place.file("wrapper.c")).arg("-o").arg(&wrapper).status();
    assert!(gcc.unwrap().success());
    let program = place.program("c_tests/open_close.c", &["libgdrapi.so.2"]);
    for (preloaded, is_wrapped) in [(wrapper, true), (place.file("libgdrapi.so.2"), false)] {
        let output = run(place.trace(&[], &program, "").env("LD_PRELOAD", preloaded));
        assert_eq!(output.stdout.contains("wrapped"), is_wrapped, "{output:?}");
        assert!(output.stderr.contains(" used libgdrapi "), "{output:?}");
    }
}

#[test]
fn unaligned_mappings_reach_to_their_end() {
    let place = Place::new();
    let mut command = place.trace(&[], &place.program(USES, &[]), "unaligned");
    let output = run(command.env("GDRCOPY_ALLOW_UNALIGNED_MAP", "1"));
    assert_eq!(output.status, Some(0), "{output:?}");
    assert!(!output.stderr.contains("misuse"), "{output:?}");
}

#[test]
fn all_threads_and_pins_are_accounted_for() {
    let place = Place::new();
    let program = place.program(USES, &[]);
    let process = |how: &str| place.traced(&[], &program, how).1["processes"][0].clone();
    let threads = process("threads");
    assert_eq!((&threads["threads"], &threads["copies"][0]["count"]), (&51.into(), &50.into()), "{threads}");
    assert_eq!(threads["left"]["incomplete"], false);
    let pins = process("pins");
    assert_eq!((&pins["pins"], &pins["left"]["pins"]), (&600.into(), &512.into()), "{pins}");
    assert_eq!(pins["left"]["incomplete"], true);
}

/// Without a barrier, the CPU reads its counter before earlier loads have returned. The memory of an emulated GPU is too
/// fast to show it.
#[test]
fn counter_is_read_after_the_loads_of_a_copy() {
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "--no-show-raw-insn"]).arg(built("libgdrcopy_trace.so"));
    let code = run(&mut objdump).stdout;
    let (barrier, counter) = if cfg!(target_arch = "x86_64") { ("lfence", "rdtsc") } else { ("isb", "cntvct_el0") };
    let mut waiting = Vec::new();
    let (mut function, mut before) = ("", "");
    for line in code.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|it| it.split_once('<')) {
            function = name;
        } else if line.contains(counter) && before.contains(barrier) {
            waiting.push(function);
        }
        before = line;
    }
    for copy in ["copy_to_mapping", "copy_from_mapping"] {
        assert_eq!(waiting.iter().filter(|name| name.contains(copy)).count(), 1, "{copy}: {waiting:?}");
    }
}
