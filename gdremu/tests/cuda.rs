//! Tests the stand-in libcuda end to end, with the programs tests/cuda_*.c under gdremu.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use common::{PLAIN, SANITIZED};

/// Declares tests. Each runs its list of programs, first built without sanitizers, and then built with them.
macro_rules! tests {
    ($($name:ident: $($run:literal),*;)*) => {$(
        #[test]
        fn $name() {
            for build in [PLAIN, SANITIZED] {
                $(build.assert_passes($run);)*
            }
        }
    )*};
}

tests! {
    initialization_devices_and_entry_points: "-- cuda_init";
    contexts: "-- cuda_contexts";
    buffers_copies_and_fills: "-- cuda_buffers", "--no-mempools -- cuda_buffers pools without";
    virtual_memory_management: "-- cuda_vmm";
    pointer_attributes: "-- cuda_pointers";
    streams_and_events: "-- cuda_streams";
    several_gpus: "--gpus 3 -- cuda_gpus three", "--gpus 2 -- cuda_gpus memory_of_another";
    forked_children: "-- cuda_calls forked_children";
    exported_descriptors: "--cuda-version 13.3 -- cuda_exports";
    received_descriptors: "--cuda-version 13.3 --leak-exit 3 -- cuda_received",
        "-- cuda_received can_be_mapped_where_its_exporter_can 524";
    cuda_functions_fail_as_injected: "--fault cuMemAlloc:2@2,cuMemFree:1@2+,cuDriverGetVersion:999 -- cuda_calls faults";
    nvml_agrees_with_libcuda_and_sysfs: "--gpus 2 --bar1-size 64M --pci-device 0x20b5 -- nvml",
        "--gpus 2 --bar1-size 64M --pci-device 0x20b5 --coherent -- nvml";
    memory_for_other_processes: "-- cuda_ipc";
}

#[test]
fn unknown_entry_points_are_printed_on_request_only() {
    for (run, printed) in [("-- cuda_init", false), ("--log-missing -- cuda_init", true)] {
        let stderr = PLAIN.assert_passes(run);
        assert_eq!(stderr.contains("cuMakeCoffee"), printed, "{stderr}");
        assert!(!stderr.contains("CUDA runtime"), "{stderr}");
    }
}

#[test]
fn cuda_runtime_inside_a_program_is_reported_once_it_asks_for_private_tables() {
    let stderr = PLAIN.assert_passes("-- cuda_init entry_points and_call");
    assert!(stderr.contains("link it dynamically (nvcc -cudart shared)"), "{stderr}");
}

#[test]
fn kernels_run_and_refused_ptx_and_illegal_accesses_are_logged_with_their_line() {
    for build in [PLAIN, SANITIZED] {
        let logged = build.assert_passes("--unsupported warn -- cuda_kernels communication");
        for line in [
            "gdremu: cuModuleLoadData: PTX line 1: '.version' is missing before 'sqrt.rn.f32'\n",
            "gdremu: GPU kernel root is not run: PTX line 37: sqrt.rn.f32 is not supported\n",
            "gdremu: GPU kernel poke, PTX line 30, thread 0 of block 0: it may not access 0x40\n",
        ] {
            assert!(logged.contains(line), "{logged}");
        }
    }
}

#[test]
fn programs_see_the_gpus_of_cuda_visible_devices() {
    for visible in ["2,0,7,1", "GPU-67647265-6d75-4000-8000-000000000002,0,GPU-1", ""] {
        let mut gdremu = PLAIN.command("--gpus 3 -- cuda_gpus visible");
        let output = gdremu.env("CUDA_VISIBLE_DEVICES", visible).output().unwrap();
        assert!(output.status.success(), "{visible}: {output:?}");
    }
}

#[test]
fn missing_functions_fail_and_say_so_once() {
    let output = PLAIN.command("-- cuda_calls missing_functions").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let names = ["cuMulticastCreate", "cudaMemcpy2D"];
    let lines = names.map(|name| format!("gdremu: {name} is not supported\n"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), lines.concat());
}

/// Runs a program that launches a GPU kernel which gdremu does not run. Returns its exit status, and how often gdremu
/// prints each of three messages: that the kernel is not run, that the process ends, and that a child launched it.
fn refused(line: &str) -> (Option<i32>, [usize; 3]) {
    let output = PLAIN.command(line).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = ["gdremu: GPU kernel root is not run: ", "with --unsupported warn it would go on", "(--unsupported)"];
    (output.status.code(), lines.map(|line| text.matches(line).count()))
}

#[test]
fn refused_kernel_ends_the_process_that_launches_it_unless_the_options_say_so() {
    assert_eq!(refused("-- cuda_kernels refused 0"), (Some(70), [1, 1, 0]));
    assert_eq!(refused("--unsupported exit:3 -- cuda_kernels refused 5"), (Some(3), [1, 1, 0]));
    assert_eq!(refused("-- cuda_kernels refused 0 child"), (Some(70), [1, 1, 1]));
    assert_eq!(refused("-- cuda_kernels refused 5 child"), (Some(5), [1, 1, 0]));
    assert_eq!(refused("--unsupported warn -- cuda_kernels refused 5"), (Some(5), [1, 0, 0]));
}

#[test]
fn gpu_kernels_that_run_long_are_reported_once() {
    let mut gdremu = PLAIN.command("-- cuda_kernels long_run");
    gdremu.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut gdremu = gdremu.spawn().unwrap();
    let mut stderr = BufReader::new(gdremu.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("gdremu: GPU kernels have run for 10 s") && line.contains("GPU kernel wait "), "{line}");
    drop(gdremu.stdin.take()); // The program ends the GPU kernel when its stdin ends.
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert!(gdremu.wait().unwrap().success());
}
