//! What every end-to-end test needs: the launcher, the libraries that it preloads, and a C compiler.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The launcher.
pub(crate) const GDREMU: &str = env!("CARGO_BIN_EXE_gdremu");

/// The preload library that a package makes, built beside the launcher.
pub(crate) fn built(package: &str) -> PathBuf {
    let directory = Path::new(GDREMU).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", package, "--target-dir"]);
    build.arg(directory.parent().unwrap());
    if directory.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    directory.join(format!("lib{}.so", package.replace('-', "_")))
}

#[allow(dead_code, reason = "not every test has a program of its own")]
/// Compiles `tests/{source}.c`, with more compiler arguments, and returns what it became. `name`
/// distinguishes builds of one source: tests run in parallel.
pub(crate) fn compile<A: AsRef<OsStr>>(
    source: &str,
    name: &str,
    arguments: impl IntoIterator<Item = A>,
) -> PathBuf {
    let gdremu = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(source)
        .join(name);
    fs::create_dir_all(output.parent().unwrap()).unwrap();
    let mut compile = Command::new(env::var_os("CC").unwrap_or("cc".into()));
    compile.args([
        "-std=gnu11",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
    ]);
    compile.arg("-I").arg(gdremu.join("../c_tests"));
    compile.arg(gdremu.join(format!("tests/{source}.c")));
    compile.args(arguments).arg("-o").arg(&output);
    assert!(compile.status().unwrap().success(), "{compile:?}");
    output
}
