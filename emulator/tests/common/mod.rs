//! What every end-to-end test needs: the launcher, the runtime beside it, and a C compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

/// The launcher.
pub(crate) const GDREMU: &str = env!("CARGO_BIN_EXE_gdremu");

/// The preload library, built beside the launcher.
pub(crate) fn runtime() -> &'static Path {
    static RUNTIME: OnceLock<PathBuf> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let folder = Path::new(GDREMU).parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "--package",
            "gdremu-runtime",
            "--target-dir",
        ]);
        build.arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
        folder.join("libgdremu_runtime.so")
    })
}

/// Compiles `tests/{source}.c`, with more compiler arguments, into a program linked against the
/// stand-in libcuda.
/// `name` tells builds of one source apart: tests run side by side.
pub(crate) fn compile(source: &str, name: &str, flavour: &[&str]) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(source);
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    let mut compile = Command::new(env::var_os("CC").unwrap_or("cc".into()));
    compile
        .args([
            "-std=gnu11",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ])
        .args(flavour);
    compile.arg("-I").arg(crate_folder.join("../c_tests"));
    compile.arg(crate_folder.join(format!("tests/{source}.c")));
    compile.arg(runtime()).arg("-o").arg(&program);
    assert!(compile.status().unwrap().success(), "{compile:?}");
    program
}
