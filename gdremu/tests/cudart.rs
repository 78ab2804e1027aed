//! Tests the stand-in CUDA runtime under gdremu with tests/cudart.c, which is linked with NVIDIA's own libcudart.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use common::{GDREMU, compile, runtime};

/// Installs the Python wheel with NVIDIA's libcudart if it is not installed yet, and returns the library's path. If
/// that fails, prints why and returns `None`.
fn libcudart(wheel: &str, path: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels").join(wheel).join("installed");
    if !directory.exists() {
        let part = directory.with_extension("part");
        let mut fetch = Command::new("python3");
        fetch.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", wheel, "--target"]);
        let fetched = fetch.arg(&part).output().unwrap();
        if !fetched.status.success() {
            eprintln!("skipped: {wheel} cannot be fetched: {fetched:?}");
            return None;
        }
        fs::rename(part, &directory).unwrap();
    }
    Some(directory.join("nvidia").join(path))
}

fn assert_all_pass(wheel: &str, path: &str) {
    let Some(libcudart) = libcudart(wheel, path) else {
        return;
    };
    // The program includes NVIDIA's headers. They include a header of NVIDIA's compiler, which may be absent, so
    // tests/cudart has a replacement for it.
    let include = libcudart.parent().unwrap().with_file_name("include");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cudart");
    let mut arguments = vec![libcudart.as_os_str(), runtime().as_os_str()];
    arguments.extend(["-isystem".as_ref(), include.as_os_str(), "-isystem".as_ref(), ours.as_os_str()]);
    let name = libcudart.file_name().unwrap().to_str().unwrap();
    let program = compile("cudart", name, arguments);
    let mut gdremu = Command::new(GDREMU);
    gdremu.args(["--gpus", "2", "--"]).arg(&program);
    // First the program does not find NVIDIA's library, then it does. It must pass in both cases.
    for found in [None, libcudart.parent()] {
        if let Some(directory) = found {
            gdremu.env("LD_LIBRARY_PATH", directory);
        }
        let output = gdremu.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(output.stderr.is_empty(), "{name}: {output:?}");
    }
}

#[test]
fn programs_linked_with_the_runtimes_of_cuda_12_and_13() {
    assert_all_pass("nvidia-cuda-runtime-cu12==12.9.79", "cuda_runtime/lib/libcudart.so.12");
    assert_all_pass("nvidia-cuda-runtime==13.0.88", "cu13/lib/libcudart.so.13");
}
