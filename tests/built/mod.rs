//! Builds the files that tests run or load (gdremu, the library, examples), because `cargo test` does not build the
//! files of other packages.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Builds the packages that tests need, in cargo's profile of this test, and returns the path of one of their files.
pub(crate) fn built(file: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let packages = ["gdremu", "gdremu-cuda", "libgdrapi", "gdrx", "gdrcopy"].map(|package| ["--package", package]);
    let directory = DIRECTORY.get_or_init(|| build(packages.as_flattened()));
    let file = directory.join(file);
    assert!(file.exists(), "no {}", file.display());
    file
}

/// Builds the examples of the package that this test belongs to, and returns the path of one.
#[allow(dead_code, reason = "tests of packages without examples call the rest")]
pub(crate) fn example(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| build(&["--package", env!("CARGO_PKG_NAME"), "--examples"]));
    directory.join("examples").join(name)
}

fn build(targets: &[&str]) -> PathBuf {
    // The path of this program is TARGET/PROFILE/deps/TEST, or TARGET/TRIPLE/PROFILE/deps/TEST if an environment
    // variable or cargo's configuration names the triple to build for.
    let test = env::current_exe().expect("a path");
    let directory = test.ancestors().nth(2).expect("a profile's directory");
    // ci/scripts/as-other-user.sh sets this variable, because it runs the tests as a user that cannot build. Root has
    // built everything before.
    if env::var_os("GDRCOPY_TEST_BUILT").is_some() {
        return directory.to_owned();
    }
    let profile = match directory.file_name().expect("a name").to_str() {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--profile", profile]).args(targets);
    // The variable is read at run time, because this tree may be a copy of the one in which this program was built.
    cargo.current_dir(env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into()));
    assert!(cargo.status().expect("cargo starts").success(), "{cargo:?}");
    directory.to_owned()
}
