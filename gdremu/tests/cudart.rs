//! The stand-in CUDA runtime under gdremu, by tests/cudart.c, linked with NVIDIA's own libcudart.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use common::{GDREMU, compile, runtime};

/// NVIDIA's libcudart out of a Python wheel, fetched once; `None`, with a line that says why, if it
/// cannot be had.
fn libcudart(wheel: &str, name: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels").join(wheel);
    let unpacked = directory.join("unpacked");
    if !unpacked.exists() {
        fs::create_dir_all(&directory).unwrap();
        let mut fetch = Command::new("python3");
        fetch.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]);
        fetch.arg(wheel).arg("--dest").arg(&directory);
        let fetched = fetch.output();
        if !fetched.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: {wheel} cannot be fetched: {fetched:?}");
            return None;
        }
        let is_wheel = |path: &PathBuf| path.extension().is_some_and(|end| end == "whl");
        let mut files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        let file = files.find(is_wheel).unwrap();
        let unpacking = directory.join("unpacking");
        let mut unzip = Command::new("python3");
        unzip.args(["-m", "zipfile", "-e"]).arg(file).arg(&unpacking);
        assert!(unzip.status().unwrap().success());
        fs::rename(unpacking, &unpacked).unwrap();
    }
    Some(find(&unpacked, name).expect("the wheel has the library"))
}

fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut entries = entries.collect::<Vec<_>>().into_iter();
    entries.find_map(|path| match path.is_dir() {
        true => find(&path, name),
        false => (path.file_name().unwrap() == name).then_some(path),
    })
}

fn assert_all_pass(wheel: &str, name: &str) {
    let Some(libcudart) = libcudart(wheel, name) else {
        return;
    };
    // NVIDIA's headers, and ours in the place of one that the compiler brings.
    let include = libcudart.parent().unwrap().with_file_name("include");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cudart");
    let mut arguments = vec![libcudart.as_os_str(), runtime().as_os_str()];
    arguments.extend(["-isystem".as_ref(), include.as_os_str(), "-isystem".as_ref(), ours.as_os_str()]);
    let program = compile("cudart", name, arguments);
    let mut gdremu = Command::new(GDREMU);
    gdremu.args(["--gpus", "2", "--"]).arg(&program);
    // Without and with NVIDIA's library where the program would find it.
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
fn programs_linked_with_the_runtime_of_cuda_12() {
    assert_all_pass("nvidia-cuda-runtime-cu12==12.9.79", "libcudart.so.12");
}

#[test]
fn programs_linked_with_the_runtime_of_cuda_13() {
    assert_all_pass("nvidia-cuda-runtime==13.0.88", "libcudart.so.13");
}
