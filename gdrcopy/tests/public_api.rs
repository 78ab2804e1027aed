//! The crate's public interface against the listing in `public-api.txt`, so that no change to it goes unseen.
//!
//! `UPDATE_PUBLIC_API=1 cargo test -p gdrcopy --test public_api` writes the listing. Rustdoc's JSON, which it is made
//! from, changes its format with the toolchain: with another than Rust 1.95's nothing is compared.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use public_api::{Builder, MINIMUM_NIGHTLY_RUST_VERSION};

const LISTING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/public-api.txt");

#[test]
fn public_interface_is_the_listed_one() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-api");
    let status = Command::new(env!("CARGO"))
        .args([
            "rustdoc",
            "--quiet",
            "--lib",
            "--package",
            "gdrcopy",
            "--target-dir",
        ])
        .arg(&directory)
        .args([
            "--",
            "--cap-lints=allow",
            "-Z",
            "unstable-options",
            "--output-format",
            "json",
        ])
        // JSON is not stable yet.
        .env("RUSTC_BOOTSTRAP", "1")
        .status()
        .expect("cargo starts");
    assert!(status.success(), "rustdoc: {status}");
    let api = Builder::from_rustdoc_json(directory.join("doc/gdrcopy.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    let Ok(api) = api else {
        eprintln!("not compared: needs the JSON of {MINIMUM_NIGHTLY_RUST_VERSION}");
        return;
    };
    let found = format!("{api}");
    if env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(LISTING, &found).expect("a writable listing");
    }
    let listed = fs::read_to_string(LISTING).expect("the listing");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (found, listed) = (lines(&found), lines(&listed));
    let added = found
        .iter()
        .filter(|line| !listed.contains(line))
        .map(|line| format!("+ {line}"));
    let removed = listed
        .iter()
        .filter(|line| !found.contains(line))
        .map(|line| format!("- {line}"));
    let changes: Vec<_> = added.chain(removed).collect();
    assert!(
        changes.is_empty(),
        "the public interface has changed:\n{}\nif that is meant, run this test with UPDATE_PUBLIC_API=1",
        changes.join("\n")
    );
}
