//! The nvidia provider as far as it goes without a GPU. Its functions stand in for those of a
//! libcuda that only counts (tests/nvidia_libcuda.c). Includes the launcher's refusals.

mod common;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use common::{PLAIN, built, compile};
use gdremu::options::Options;
use gdremu_core::session::Session;

/// Runs tests/nvidia_functions.c, linked with a libcuda of its own, as gdremu would where there is a GPU.
fn run(lookup: &str, faults: &str) -> Output {
    let mut arguments = vec!["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    // Like NVIDIA's, it calls its own functions even if other objects export the same names.
    arguments.extend(["-Wl,-Bsymbolic", "-Wno-unused-parameter"]);
    let libcuda = compile("nvidia_libcuda", "libcuda.so.1", arguments);
    let rpath = format!("-Wl,-rpath,{}", libcuda.parent().unwrap().display());
    let mut program = Command::new(compile("nvidia_functions", "linked", [libcuda.as_os_str(), rpath.as_ref()]));
    let session = Session { directory: "/nonexistent".into() };
    let options = ["gdremu", "--provider", "nvidia", "--fault", faults, "--", "program"].map(OsString::from);
    let config = Options::read(options).unwrap().checked_config(session).unwrap();
    program.env("LD_PRELOAD", built("gdremu-nvidia")).env("GDREMU_CONFIG", config.to_variable().unwrap());
    program.arg(lookup).output().unwrap()
}

#[test]
fn programs_find_our_functions_by_every_lookup() {
    for lookup in ["linked", "dlsym", "next", "cuGetProcAddress", "cuGetProcAddress_v2"] {
        let output = run(lookup, "");
        assert!(output.status.success(), "{lookup}: {output:?}");
    }
}

#[test]
fn replaced_functions_fail_as_injected() {
    let output = run("linked", "cuMemFree:700@2");
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
