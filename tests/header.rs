//! `include/gdrapi.h` says what the library exports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// What cbindgen reads out of the Rust sources.
fn prototypes() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("a valid config");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root().join("src/exports.rs"))
        .generate()
        .expect("sources that cbindgen can read");
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("text")
}

/// Compiles the header and the prototypes in one unit; answers with the compiler's complaints.
fn compile_together(name: &str, prototypes: &str) -> Result<(), String> {
    let source = scratch(name);
    fs::write(&source, format!("#include \"gdrapi.h\"\n{prototypes}")).expect("a writable folder");
    let output = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .args([root().join("include"), source])
        .output()
        .expect("a C compiler called cc");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn prototypes_agree_with_the_exports() {
    let prototypes = prototypes();
    let functions = prototypes.lines().filter(|line| line.contains(" gdr_") && line.contains('('));
    assert_eq!(functions.count(), 16, "all but the old gdr_get_info:\n{prototypes}");
    compile_together("agree.c", &prototypes).unwrap_or_else(|complaints| panic!("{complaints}"));
}

#[test]
fn a_difference_would_be_found() {
    let prototypes = prototypes();
    let changed = prototypes.replacen("size_t size", "unsigned int size", 1);
    assert_ne!(prototypes, changed);
    let complaints = compile_together("differ.c", &changed).expect_err("conflicting types");
    assert!(complaints.contains("conflicting types"), "{complaints}");
}

#[test]
fn versions_agree() {
    let header = fs::read_to_string(root().join("include/gdrapi.h")).expect("the header");
    let value = |name: &str| {
        let line = header
            .lines()
            .find(|line| line.split_whitespace().take(2).eq(["#define", name]))
            .unwrap_or_else(|| panic!("no line `#define {name} …`"));
        line.split_whitespace().nth(2).expect("a value").parse::<u32>().expect("a number")
    };
    let api = gdrcopy_core::types::Version::API;
    assert_eq!(
        (value("GDR_API_MAJOR_VERSION"), value("GDR_API_MINOR_VERSION")),
        (api.major, api.minor)
    );
    let oldest = gdrcopy_core::types::Version::OLDEST_GDRDRV;
    assert_eq!(value("MINIMUM_GDRDRV_MAJOR_VERSION"), oldest.major);
    assert_eq!(value("MINIMUM_GDRDRV_MINOR_VERSION"), oldest.minor);
    let package = env!("CARGO_PKG_VERSION");
    assert_eq!(package, format!("{}.{}.0", api.major, api.minor));
}
