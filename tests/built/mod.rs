//! What tests run besides their own package: gdremu and the library. `cargo test` builds neither for them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A file that cargo builds from these packages, in the profile of this test.
pub(crate) fn built(file: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let file = FOLDER.get_or_init(build).join(file);
    assert!(file.exists(), "no {}", file.display());
    file
}

fn build() -> PathBuf {
    // TARGET/PROFILE/deps/TEST
    let test = env::current_exe().expect("a path");
    let folder = test.ancestors().nth(2).expect("a profile's folder");
    let profile = folder.file_name().expect("a name").to_str();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "gdremu"]);
    cargo.args(["--package", "gdremu-runtime", "--package", "libgdrapi"]);
    cargo.arg("--target-dir").arg(folder.join(".."));
    cargo.args([
        "--profile",
        profile.filter(|&name| name != "debug").unwrap_or("dev"),
    ]);
    // Its own manifest is that of a member; packages of the workspace are known there, too.
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(cargo.status().expect("cargo starts").success(), "{cargo:?}");
    folder.to_owned()
}
