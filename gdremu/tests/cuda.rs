//! The stand-in libcuda end to end: the programs tests/cuda_*.c under gdremu.

mod common;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::{GDREMU, built, compile};

/// The preload library, which is the stand-in libcuda too.
fn runtime() -> &'static OsStr {
    static RUNTIME: OnceLock<PathBuf> = OnceLock::new();
    RUNTIME.get_or_init(|| built("gdremu-cuda")).as_os_str()
}

/// Runs gdremu with these options on a program that tests/`source`.c becomes, with these arguments.
fn run(
    options: &[&str],
    source: &str,
    build: &str,
    flavour: &[&str],
    arguments: &[&str],
) -> Output {
    let flavour = flavour.iter().map(OsStr::new);
    let program = compile(source, build, flavour.chain([runtime()]));
    let mut gdremu = Command::new(GDREMU);
    gdremu
        .args(options)
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .unwrap()
}

fn assert_passes(options: &[&str], source: &str, arguments: &[&str]) {
    let builds: [(&str, &[&str]); 2] = [
        ("plain", &["-O2"]),
        (
            "sanitized",
            &[
                "-O1",
                "-fsanitize=address,undefined",
                "-fno-sanitize-recover=all",
            ],
        ),
    ];
    for (name, flavour) in builds {
        let build = [name]
            .iter()
            .chain(arguments)
            .copied()
            .collect::<Vec<_>>()
            .join("-");
        let output = run(options, source, &build, flavour, arguments);
        assert!(output.status.success(), "{build}: {output:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("ok {source}\n")
        );
    }
}

#[test]
fn initialization_devices_and_entry_points() {
    assert_passes(&[], "cuda_init", &[]);
}

#[test]
fn contexts() {
    assert_passes(&[], "cuda_contexts", &[]);
}

#[test]
fn what_crashes_on_a_gpu_ends_the_program() {
    assert_passes(&[], "cuda_gone", &[]);
}

#[test]
fn buffers_copies_and_fills() {
    assert_passes(&[], "cuda_buffers", &[]);
}

#[test]
fn virtual_memory_management() {
    assert_passes(&[], "cuda_vmm", &[]);
}

#[test]
fn pointer_attributes() {
    assert_passes(&[], "cuda_pointers", &[]);
}

#[test]
fn streams_and_events() {
    assert_passes(&[], "cuda_streams", &[]);
}

#[test]
fn memory_pools() {
    assert_passes(&[], "cuda_pools", &[]);
    assert_passes(&["--no-mempools"], "cuda_pools", &["none"]);
}

#[test]
fn programs_without_free_descriptors_get_errors() {
    assert_passes(&[], "descriptors", &["before"]);
    assert_passes(&[], "descriptors", &["after"]);
    assert_passes(&["--traditional"], "descriptors", &["after", "traditional"]);
}

#[test]
fn refcount_file_follows_the_pins_in_streams_too() {
    assert_passes(&[], "refcount", &[]);
}

#[test]
fn several_gpus() {
    assert_passes(&["--gpus", "3"], "cuda_gpus", &[]);
}

#[test]
fn many_threads() {
    assert_passes(&[], "cuda_threads", &[]);
}

#[test]
fn forked_children() {
    assert_passes(&[], "cuda_fork", &[]);
}

#[test]
fn exported_descriptors() {
    assert_passes(&["--cuda-version", "13.3"], "cuda_exports", &["mmap"]);
    assert_passes(&["--cuda-version", "13.0"], "cuda_exports", &["export"]);
    assert_passes(&["--dmabuf", "no"], "cuda_exports", &["no"]);
}

#[test]
fn cuda_functions_fail_as_injected() {
    assert_passes(
        &["--fault", "cuMemAlloc:2@2,cuDriverGetVersion:999"],
        "cuda_faults",
        &[],
    );
}

#[test]
fn unknown_entry_points_are_printed_on_request_only() {
    for (options, printed) in [(&[] as &[&str], false), (&["--log-missing"], true)] {
        let output = run(options, "cuda_init", "missing", &[], &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.contains("cuMakeCoffee"), printed, "{output:?}");
        let hint = "link it dynamically (nvcc -cudart shared)";
        assert!(stderr.contains(hint), "{output:?}");
    }
}

#[test]
fn nvml_agrees_with_libcuda_and_sysfs() {
    let options = [
        "--gpus",
        "2",
        "--bar1-size",
        "64M",
        "--pci-device",
        "0x20b5",
    ];
    assert_passes(&options, "nvml", &[]);
    let mut cat = Command::new(GDREMU);
    cat.args(options).args(["--", "cat"]);
    cat.arg("/sys/bus/pci/devices/0000:1b:00.0/device");
    assert_eq!(cat.output().unwrap().stdout, b"0x20b5\n");
    let coherent = ["--gpus", "2", "--bar1-size", "64M", "--coherent"];
    assert_passes(&coherent, "nvml", &["coherent"]);
}

#[test]
fn memory_for_other_processes() {
    assert_passes(&[], "cuda_ipc", &[]);
}

#[test]
fn kernels() {
    assert_passes(&["--unsupported", "ignore"], "cuda_kernels", &[]);
}

#[test]
fn unsupported_ptx_and_illegal_accesses_are_logged_with_their_line() {
    let output = run(&[], "cuda_kernels", "logged", &[], &[]);
    let logged = String::from_utf8_lossy(&output.stderr);
    for line in [
        "gdremu: cuModuleLoadData: PTX line 1: '.version' is missing before 'sqrt.rn.f32'\n",
        "gdremu: GPU kernel root is not run: PTX line 48: sqrt.rn.f32 is not supported\n",
        "gdremu: GPU kernel poke, PTX line 41, thread 0 of block 0: it may not access 0x40\n",
    ] {
        assert!(logged.contains(line), "{output:?}");
    }
}
