//! The emulated device end to end: tests/device.c under gdremu, which knows nothing of it.
//!
//! One test here is one run of the C program, with the options that it needs.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::{GDREMU, built, compile};

/// Compiler arguments of a build of the C program.
type Flavour = &'static [&'static str];

const PLAIN: Flavour = &["-O2"];
const SANITIZED: Flavour = &[
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];

/// The preload library, built beside the launcher.
fn runtime() -> &'static Path {
    static RUNTIME: OnceLock<PathBuf> = OnceLock::new();
    RUNTIME.get_or_init(|| built("gdremu-cuda"))
}

/// Builds the C program. Each test has its own copy, since tests run side by side.
fn program(name: &str, flavour: Flavour) -> PathBuf {
    let flavour = flavour.iter().map(OsStr::new);
    compile("device", name, flavour.chain([runtime().as_os_str()]))
}

/// Runs gdremu with these options on a program with these arguments.
fn gdremu(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(GDREMU);
    command.args(options).arg("--").arg(program).args(arguments);
    command.output().unwrap()
}

fn assert_passes(options: &[&str], test: &str) {
    let output = gdremu(options, &program(test, PLAIN), &[test]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("ok {test}\n")
    );
}

/// Tests of the C program that need no options, or these.
macro_rules! tests {
    ($($name:ident: [$($option:literal),*];)*) => {
        $(#[test]
        fn $name() {
            assert_passes(&[$($option),*], stringify!($name));
        })*

        /// The same tests in another build of the C program.
        fn all_pass(build: &str, flavour: Flavour, before: &[&str]) {
            let program = program(build, flavour);
            for (test, options) in [$((stringify!($name), &[$($option),*] as &[&str])),*] {
                let mut command = Command::new(GDREMU);
                command.args(options).arg("--").args(before).arg(&program).arg(test);
                let output = command.env("CHECK_SLOWNESS", "20").output().unwrap();
                assert!(output.status.success(), "{test}: {output:?}");
            }
        }
    };
}

tests! {
    files_exist: [];
    relative_paths: [];
    bound_to_nv_p2p_dummy: ["--nv-p2p-dummy"];
    files_absent: ["--no-gdrdrv"];
    files_of_the_machine: ["--gpus", "2", "--file", "/sys/module/no_such_module/version=/proc/sys/kernel/ostype"];
    open_is_refused: ["--gdrdrv-errno", "EACCES"];
    covered_mappings: [];
    late_cover: ["--module-defects"];
    call_names: [];
    many_threads: [];
    faults: ["--fault", "OPEN:EMFILE@1,PIN_BUFFER:ENOMEM@2,MMAP:EAGAIN@1,MUNMAP:EPERM@1,CLOSE:EIO@1"];
    wrong_answers: ["--fault", "GET_INFO_V2:MAPPING_TYPE=4@2,GET_INFO_V2:MAPPING_TYPE=0@3,GET_INFO:MAPPED=0@1,UNPIN_BUFFER:EINVAL@1"];
}

#[test]
fn all_pass_with_sanitizers() {
    all_pass("sanitized", SANITIZED, &[]);
}

#[test]
fn all_pass_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not installed");
        return;
    }
    let suppressions = format!(
        "--suppressions={}/../../c_tests/valgrind.supp",
        env!("CARGO_MANIFEST_DIR")
    );
    let valgrind = ["valgrind", "--quiet", "--error-exitcode=9", &suppressions];
    all_pass("valgrinded", PLAIN, &valgrind);
}

#[test]
fn leaks_are_reported_and_change_the_exit_status_on_demand() {
    let program = program("leaks", PLAIN);
    for how in ["ended", "killed"] {
        let output = gdremu(&["--leak-exit", "42"], &program, &["leaks", how]);
        assert_eq!(output.status.code(), Some(42), "{how}");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            printed.starts_with("gdremu: leak: leaks (")
                && printed.ends_with(") ended with 2 pinned\n"),
            "{printed}"
        );
    }
    let output = gdremu(&[], &program, &["leaks", "ended"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stderr.is_empty());
    let output = gdremu(&["--leak-exit", "42"], &program, &["files_exist"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn calls_are_traced_as_json_lines() {
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace.json");
    let _ = fs::remove_file(&trace);
    let options = ["--trace", trace.to_str().unwrap()];
    let output = gdremu(&options, &program("traced", PLAIN), &["call_names"]);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&trace).unwrap();
    let calls: Vec<_> = text
        .lines()
        .map(|line| line.split('"').nth(3).unwrap())
        .collect();
    let expected = "open GET_VERSION PIN_BUFFER mmap GET_INFO munmap UNPIN_BUFFER close";
    assert_eq!(calls.join(" "), expected);
    let version = text.lines().nth(1).unwrap();
    assert!(
        version.starts_with("{\"call\":\"GET_VERSION\",\"arguments\":{\"gdrdrv_version\":131078,")
    );
    assert!(
        version.contains("\"result\":0,\"errno\":null,\"duration_ns\":"),
        "{version}"
    );
    assert!(text.lines().all(|line| line.ends_with('}')));
}

#[test]
fn exit_status_and_signal_of_the_program_are_passed_on() {
    runtime();
    let shell = |script| gdremu(&[], Path::new("sh"), &["-c", script]).status;
    assert_eq!(shell("exit 7").code(), Some(7));
    assert_eq!(shell("kill -TERM $$").signal(), Some(15));
    assert_eq!(shell("kill -SEGV $$").signal(), Some(11));
    assert_eq!(
        gdremu(&[], Path::new("/no/such/program"), &[])
            .status
            .code(),
        Some(127)
    );
    assert_eq!(gdremu(&[], Path::new("/"), &[]).status.code(), Some(126));
}

#[test]
fn programs_that_ignore_ld_preload_cause_a_warning() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unreachable");
    fs::create_dir_all(&directory).unwrap();
    let source = directory.join("true.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let run = |options: &[&str]| {
        let program = directory.join("program");
        let mut cc = Command::new("cc");
        cc.args(options).arg(&source).arg("-o").arg(&program);
        assert!(cc.status().unwrap().success());
        // By its path, and by its name only.
        let by_path = gdremu(&[], &program, &[]);
        let mut by_name = Command::new(GDREMU);
        by_name.args(["--", "program"]).env("PATH", &directory);
        let by_name = by_name.output().unwrap();
        assert_eq!(by_path.stderr, by_name.stderr);
        assert_eq!(by_path.status.code(), Some(0));
        String::from_utf8(by_path.stderr).unwrap()
    };
    runtime();
    assert_eq!(run(&[]), "");
    for options in [&["-static"], &["-static-pie"]] {
        let stderr = run(options);
        assert!(stderr.contains("program is linked statically"), "{stderr}");
    }
}

#[test]
fn signals_reach_the_program() {
    runtime();
    // The program ends gdremu's wait only if the signal sent to gdremu gets through to it.
    let script = "trap 'exit 5' TERM; kill -TERM $PPID; while :; do sleep 0.01; done";
    let output = gdremu(&[], Path::new("sh"), &["-c", script]);
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn session_directory_is_removed() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("session");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    let mut command = Command::new(GDREMU);
    command
        .arg("--")
        .arg(program("left", PLAIN))
        .args(["leaks", "killed"]);
    command.env("TMPDIR", &directory).output().unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn installed_programs_find_the_runtime() {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
    let _ = fs::remove_dir_all(&prefix);
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(prefix.join("lib/gdremu")).unwrap();
    fs::copy(GDREMU, prefix.join("bin/gdremu")).unwrap();
    let installed = || {
        let mut command = Command::new(prefix.join("bin/gdremu"));
        command
            .args(["--", "test", "-e", "/dev/gdrdrv"])
            .output()
            .unwrap()
    };
    let output = installed();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("libgdremu_cuda.so"));
    fs::copy(runtime(), prefix.join("lib/gdremu/libgdremu_cuda.so")).unwrap();
    assert_eq!(installed().status.code(), Some(0));
}
