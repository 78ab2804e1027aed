//! Files that tests run besides themselves (gdremu, the library, examples). `cargo test` builds none of them for a
//! test.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// A file that cargo builds from these packages, in the profile of this test.
pub(crate) fn built(file: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let packages = ["gdremu", "gdremu-cuda", "libgdrapi", "gdrx", "gdrcopy"].map(|package| ["--package", package]);
    let directory = DIRECTORY.get_or_init(|| build(packages.as_flattened()));
    let file = directory.join(file);
    assert!(file.exists(), "no {}", file.display());
    file
}

/// An example of the package whose test this is.
#[allow(dead_code, reason = "tests of packages without examples call the rest")]
pub(crate) fn example(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| build(&["--package", env!("CARGO_PKG_NAME"), "--examples"]));
    directory.join("examples").join(name)
}

fn build(targets: &[&str]) -> PathBuf {
    // TARGET/PROFILE/deps/TEST; with a target for cargo, of its configuration too, TARGET/TRIPLE/PROFILE/deps/TEST.
    let test = env::current_exe().expect("a path");
    let directory = test.ancestors().nth(2).expect("a profile's directory");
    // An earlier run of the test has built it, for another user.
    if env::var_os("GDRCOPY_TEST_BUILT").is_some() {
        return directory.to_owned();
    }
    let profile = match directory.file_name().expect("a name").to_str() {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--profile", profile]).args(targets);
    // Read at run time, because a copied tree has a program that was built elsewhere.
    cargo.current_dir(env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into()));
    assert!(cargo.status().expect("cargo starts").success(), "{cargo:?}");
    directory.to_owned()
}
