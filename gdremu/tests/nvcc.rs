//! Compiles tests/nvcc with NVIDIA's nvcc, and runs it under gdremu. `make nvcc-check` sets GDREMU_NVCC to nvcc's path.

mod common;

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{GDREMU, built, exports, kit};

const COMPUTE_80: &str = "arch=compute_80,code=compute_80";

/// Compiles `tests/nvcc/{source}.cu` with these options, and runs it under gdremu. Without nvcc, prints a message and
/// returns `None`.
fn run(source: &str, name: &str, options: &[&str]) -> Option<Output> {
    let Some(nvcc) = env::var_os("GDREMU_NVCC").map(PathBuf::from) else {
        eprintln!("skipped: GDREMU_NVCC is not set");
        return None;
    };
    built("gdremu-cuda");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvcc");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvcc-{source}-{name}"));
    let mut compile = Command::new(&nvcc);
    compile.args(["-std=c++17", "-cudart", "shared"]).args(options);
    compile.arg("-I").arg(tests.join("../../../c_tests"));
    compile.arg(tests.join(format!("{source}.cu"))).arg(kit()).arg("-o").arg(&program);
    assert!(compile.status().unwrap().success(), "{compile:?}");
    let libraries = nvcc.parent().unwrap().join("../lib");
    let mut gdremu = Command::new(GDREMU);
    gdremu.args(["--unsupported", "warn", "--"]).arg(program).env("LD_LIBRARY_PATH", libraries);
    Some(gdremu.output().unwrap())
}

fn assert_passes(source: &str, name: &str, options: &[&str]) {
    if let Some(output) = run(source, name, options) {
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n");
    }
}

#[test]
fn flags_in_host_and_gpu_memory_are_answered() {
    assert_passes("ping_pong", "default", &[]);
    let options = ["-gencode", COMPUTE_80, "--compress-mode=speed", "-Xlinker", "-z,now"];
    assert_passes("ping_pong", "lz4", &options);
}

/// Returns the functions of the CUDA runtime that a library exports.
fn functions(library: &Path) -> BTreeSet<String> {
    let mut functions = exports(library);
    functions.retain(|function| function.trim_start_matches('_').starts_with("cuda"));
    functions
}

#[test]
fn every_function_of_the_runtime_is_there() {
    let Some(nvcc) = env::var_os("GDREMU_NVCC").map(PathBuf::from) else {
        return;
    };
    let nvidias = functions(&nvcc.parent().unwrap().join("../lib/libcudart.so"));
    assert!(nvidias.contains("cudaMemcpy2D"), "{nvidias:?}");
    let ours = functions(&built("gdremu-cuda"));
    assert_eq!(nvidias.difference(&ours).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn integer_code_computes_what_the_cpu_computes() {
    assert_passes("integers", "default", &[]);
    assert_passes("integers", "plain", &["-gencode", COMPUTE_80, "--compress-mode=none", "-lineinfo"]);
}

#[test]
fn launches_have_attributes_and_grids_have_barriers() {
    let clusters = ("add(int*, int)", "launch attribute 4 is not supported");
    for target in [COMPUTE_80, "arch=compute_90,code=compute_90"] {
        let Some(output) = run("launches", &target[13..15], &["-gencode", target]) else {
            return;
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{output:?}");
        assert_refuses(&output, &[clusters]);
    }
}

/// Asserts that gdremu has printed one message for each of these GPU kernels: that the kernel is not run, and why.
fn assert_refuses(output: &Output, kernels: &[(&str, &str)]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    for (kernel, reason) in kernels {
        let begin = format!("gdremu: GPU kernel {kernel} is not run: ");
        let mut lines: Vec<_> = stderr.lines().collect();
        lines.retain(|line| line.starts_with(&begin) && line.ends_with(reason));
        assert_eq!(lines.len(), 1, "{kernel}: {output:?}");
    }
}

#[test]
fn kernels_that_cannot_run_are_refused_and_others_run() {
    let add = ("add(float const*, float const*, float*)", "add.f32 is not supported");
    let hello = ("hello(int)", "call of vprintf is not supported");
    for (name, options) in [("default", &[][..]), ("debug", &["-G", "-gencode", COMPUTE_80])] {
        let Some(output) = run("refused", name, options) else {
            return;
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{output:?}");
        assert_refuses(&output, &[add, hello]);
    }
}

#[test]
fn programs_without_ptx_for_the_gpu_are_refused() {
    for (name, target) in [("sass", "arch=compute_80,code=sm_80"), ("newer", "arch=compute_100,code=compute_100")] {
        let Some(output) = run("refused", name, &["-gencode", target]) else {
            return;
        };
        assert_ne!(String::from_utf8_lossy(&output.stdout), "ok\n", "{output:?}");
        let advice = "compile with -gencode arch=compute_XX,code=compute_XX\n";
        assert!(String::from_utf8_lossy(&output.stderr).contains(advice), "{output:?}");
        let reason = "its module cannot be loaded";
        assert_refuses(&output, &[("hello(int)", reason), ("copy(float const*, float*)", reason)]);
    }
}
