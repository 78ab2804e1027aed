//! Tests the emulated device end to end, with tests/device.c under gdremu.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use common::{GDREMU, PLAIN, SANITIZED, built, compile, gdremu, runtime};

/// The tests of C programs, each with the options of gdremu that it needs: `OPTIONS -- PROGRAM [TEST ARGUMENTS]`.
const RUNS: &[&str] = &[
    "-- device paths",
    "--gpus 2 --file /sys/module/no_such_module/version=/proc/sys/kernel/ostype -- device files_of_the_machine",
    "--gdrdrv-errno EACCES -- device open_is_refused",
    "-- device mapping_at_a_fixed_address",
    "-- device rest_of_an_old_mapping_is_none_of_the_pin",
    "-- device many_threads",
    "-- device pins_of_vmm_memory",
    "-- device no_descriptor_is_left_at_first",
    "-- device no_descriptor_is_left_beside_a_mapping",
    "--traditional -- device no_descriptor_is_left_beside_a_mapping",
    "--coherent -- device forced_pins 1 1 0",
    "-- device forced_pins 1 1 524",
    "--coherent --force-pcie no -- device forced_pins 1 1 524",
    "--coherent --traditional -- device forced_pins 0 0 22",
    "--coherent --nv-p2p-dummy -- device forced_pins 1 1 22",
    "--driver-version 2.4.1 --cuda-version 12.4 -- device sizes 0x1000 0x10010",
    "--driver-version 2.4.1 --cuda-version 12.5 -- device sizes 0 0",
    "--driver-version 2.4.2 -- device sizes 0x10000 0x20000",
    // ci/gpu/check.sh runs the same program on real GPUs.
    "--leak-exit 42 -- gpu_memory",
    "--leak-exit 42 --traditional -- gpu_memory",
];

#[test]
fn all_pass_with_and_without_sanitizers() {
    for build in [PLAIN, SANITIZED] {
        for run in RUNS {
            build.assert_passes(run);
        }
    }
}

#[test]
fn leaks_are_reported_and_change_the_exit_status_on_demand() {
    let program = PLAIN.program("device");
    for arguments in [&["leaks"] as &[&str], &["leaks", "killed"]] {
        let output = gdremu(&["--leak-exit", "42"], &program, arguments);
        assert_eq!(output.status.code(), Some(42), "{arguments:?}");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            printed.starts_with("gdremu: leak: plain (") && printed.ends_with(") ended with 2 pinned\n"),
            "{printed}"
        );
    }
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" --leak-exit 42 -- \"$1\" leaks 2>/dev/full", GDREMU]).arg(&program);
    assert_eq!(command.status().unwrap().code(), Some(42));
    let output = gdremu(&[], &program, &["leaks"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(!output.stderr.is_empty());
    let output = gdremu(&["--leak-exit", "42"], &program, &["paths"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn calls_are_traced_as_json_lines() {
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trace.json");
    let _ = fs::remove_file(&trace);
    let options = ["--trace", trace.to_str().unwrap()];
    let output = gdremu(&options, PLAIN.program("device"), &["call_names"]);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&trace).unwrap();
    let calls: Vec<_> = text.lines().map(|line| line.split('"').nth(3).unwrap()).collect();
    let expected = "open PIN_BUFFER mmap GET_INFO munmap UNPIN_BUFFER GET_VERSION close";
    assert_eq!(calls.join(" "), expected);
    let version = text.lines().nth(6).unwrap();
    assert!(version.starts_with("{\"call\":\"GET_VERSION\",\"arguments\":{\"gdrdrv_version\":131078,"));
    assert!(version.contains("\"result\":0,\"errno\":null,\"duration_ns\":"), "{version}");
    assert!(text.lines().all(|line| line.ends_with('}')));
}

#[test]
fn exit_status_and_signal_of_the_program_are_passed_on() {
    runtime();
    for (script, code, signal) in
        [("exit 7", Some(7), None), ("kill -TERM $$", None, Some(15)), ("kill -SEGV $$", None, Some(11))]
    {
        let status = gdremu(&[], "sh", &["-c", script]).status;
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
    }
    for (program, status) in [("/no/such/program", 127), ("/", 126)] {
        assert_eq!(gdremu(&[], program, &[]).status.code(), Some(status));
    }
}

/// Compiles C code to a static program, and runs it under gdremu. Returns its status and what stderr contains.
fn run_static(source: &str) -> (Option<i32>, String) {
    runtime();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
    let script = "printf %s \"$1\" | cc -static -w -x c - -o \"$0\" -ldl 2>/dev/null";
    assert!(Command::new("bash").args(["-c", script]).arg(&program).arg(source).status().unwrap().success());
    let output = gdremu(&[], &program, &[]);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn static_programs_are_reported_and_end_where_they_load_libcuda() {
    let (status, stderr) = run_static("int main(void) { return 0; }");
    assert_eq!(status, Some(0));
    assert!(stderr.contains("static did not load gdremu's library"), "{stderr}");
    let loads = "#include <dlfcn.h>\nint main(void) { return dlopen(\"libcuda.so.1\", RTLD_NOW) == 0; }";
    let (status, stderr) = run_static(loads);
    assert_eq!(status, Some(125));
    assert!(stderr.contains("link it without -static"), "{stderr}");
    assert!(gdremu(&[], "true", &[]).stderr.is_empty());
}

/// While a malloc library starts, it calls functions that gdremu hooks, such as mmap. The hooks must not call malloc,
/// which would then run before it is ready.
#[test]
fn allocators_start_under_gdremu() {
    for allocator in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"] {
        if !Command::new("cc")
            .args(["-shared", "-o", "/dev/null", &format!("-l:{allocator}")])
            .status()
            .unwrap()
            .success()
        {
            eprintln!("SKIPPED: {allocator} is not installed");
            continue;
        }
        let mut preloaded = PLAIN.command("--cuda-version 13.3 -- cuda_exports");
        let mut linked = Command::new(GDREMU);
        let arguments =
            ["-Wl,--no-as-needed".into(), format!("-l:{allocator}"), runtime().to_str().unwrap().to_owned()];
        let program = compile("cuda_exports", allocator, arguments);
        linked.args(["--cuda-version", "13.3", "--"]).arg(program);
        for command in [preloaded.env("LD_PRELOAD", allocator), &mut linked] {
            let output = command.output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{allocator}: {output:?}");
        }
    }
}

#[test]
fn missing_nvidia_driver_is_reported() {
    if Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let output = gdremu(&["--provider", "nvidia"], "true", &[]);
    assert_eq!(output.status.code(), Some(125));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("/dev/nvidiactl"), "{stderr}");
}

#[test]
fn library_for_real_gpus_has_no_emulated_memory_from_the_start_on() {
    let mut command = Command::new(GDREMU);
    command.arg("--").arg(compile("real_gpus", "plain", [] as [&str; 0]));
    let output = command.env("GDREMU_RUNTIME", built("gdremu-nvidia")).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("nvidia provider: no libcuda.so.1"), "{stderr}");
}

#[test]
fn signals_reach_the_program() {
    runtime();
    // The program, and with it gdremu, ends only if gdremu forwards the signal to the program.
    let script = "trap 'exit 5' TERM; kill -TERM $PPID; while :; do sleep 0.01; done";
    let output = gdremu(&[], "sh", &["-c", script]);
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn session_directory_is_removed() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("session");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    let mut command = PLAIN.command("-- device leaks killed");
    command.env("TMPDIR", &directory).output().unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn installed_programs_find_the_runtime() {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("a prefix:1");
    let _ = fs::remove_dir_all(&prefix);
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(prefix.join("lib/gdremu")).unwrap();
    fs::copy(GDREMU, prefix.join("bin/gdremu")).unwrap();
    let mut installed = Command::new(prefix.join("bin/gdremu"));
    installed.args(["--", "test", "-e", "/dev/gdrdrv"]);
    let output = installed.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("libgdremu_cuda.so"));
    fs::copy(runtime(), prefix.join("lib/gdremu/libgdremu_cuda.so")).unwrap();
    assert_eq!(installed.status().unwrap().code(), Some(0));
}
