//! What tests run besides their own package: gdremu and the library. `cargo test` builds neither for them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A file that cargo builds from these packages, in the profile of this test.
pub(crate) fn built(file: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let file = DIRECTORY.get_or_init(build).join(file);
    assert!(file.exists(), "no {}", file.display());
    file
}

fn build() -> PathBuf {
    // TARGET/PROFILE/deps/TEST
    let test = env::current_exe().expect("a path");
    let directory = test.ancestors().nth(2).expect("a profile's directory");
    let profile = directory.file_name().expect("a name").to_str();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "gdremu"]);
    cargo.args(["--package", "gdremu-runtime", "--package", "libgdrapi"]);
    cargo.arg("--target-dir").arg(directory.join(".."));
    cargo.args([
        "--profile",
        profile.filter(|&name| name != "debug").unwrap_or("dev"),
    ]);
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(cargo.status().expect("cargo starts").success(), "{cargo:?}");
    directory.to_owned()
}
