//! The nvidia provider as far as it goes without a GPU. Its functions stand in for those of a
//! libcuda that only counts (tests/nvidia_libcuda.c). Includes the launcher's refusals.

mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{PLAIN, built, compile};
use gdremu::options::Options;

/// Builds a program, linked with a libcuda of its own.
fn program(source: &str, name: &str) -> PathBuf {
    let mut arguments = vec!["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    // Like NVIDIA's, it calls its own functions even if other objects export the same names.
    arguments.extend(["-Wl,-Bsymbolic", "-Wno-unused-parameter"]);
    let directory = format!("{name}.lib/libcuda.so.1");
    let libcuda = compile("nvidia_libcuda", &directory, arguments);
    let rpath = format!("-Wl,-rpath,{}", libcuda.parent().unwrap().display());
    compile(source, name, [libcuda.as_os_str(), rpath.as_ref()])
}

/// Runs a program as gdremu would where there is a GPU.
fn run(source: &str, lookup: &str, faults: &str) -> Output {
    let test = format!("{lookup}-{}", faults.len());
    let mut program = Command::new(program(source, &test));
    program.arg(lookup);
    program.env("LD_PRELOAD", built("gdremu-nvidia"));
    let options = ["gdremu", "--provider", "nvidia", "--fault", faults, "--", "program"].map(OsString::from);
    let config = Options::read(options).unwrap().checked_config("/nonexistent".into()).unwrap();
    program.env("GDREMU_CONFIG", config.to_variable().unwrap()).output().unwrap()
}

fn assert_passes(lookup: &str) {
    let output = run("nvidia_functions", lookup, "");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn linked_programs_get_our_functions() {
    assert_passes("linked");
}

#[test]
fn dlsym_finds_our_functions() {
    assert_passes("dlsym");
    assert_passes("next");
}

#[test]
fn cu_get_proc_address_finds_our_functions() {
    assert_passes("cuGetProcAddress");
    assert_passes("cuGetProcAddress_v2");
}

/// UCX writes its dlopen into the entries of every loaded object, and it would run under our lock.
#[test]
fn libcuda_is_loaded_by_no_dlopen_that_can_be_hooked() {
    let relocations =
        Command::new("readelf").args(["--relocs", "--wide"]).arg(built("gdremu-nvidia")).output().unwrap();
    let relocations = String::from_utf8(relocations.stdout).unwrap();
    assert!(relocations.contains(" dlvsym@"), "{relocations}");
    assert!(!relocations.contains(" dlopen@"), "{relocations}");
}

#[test]
fn replaced_functions_fail_as_injected() {
    let output = run("nvidia_functions", "linked", "cuMemFree:700@2");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("is 700 (unknown)"), "{stderr}");
}

/// Emulated GPUs do the same as real ones do for scripts/gpu/check.sh.
#[test]
fn real_and_emulated_gpus_are_used_alike() {
    PLAIN.assert_passes("--leak-exit 42 -- gpu_memory");
    PLAIN.assert_passes("--leak-exit 42 --traditional -- gpu_memory");
}

#[test]
fn missing_nvidia_driver_is_reported() {
    if Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let output = common::gdremu(&["--provider", "nvidia"], "true", &[]);
    assert_eq!(output.status.code(), Some(125));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("/dev/nvidiactl"), "{stderr}");
}
