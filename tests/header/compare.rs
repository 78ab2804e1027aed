//! Compares a header in `include/` with what a library exports. For the tests of each library.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The prototypes that cbindgen reads out of the package's `src/exports.rs`.
pub(crate) fn prototypes(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a valid config");
    let exports = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/exports.rs");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(exports)
        .generate()
        .expect("sources that cbindgen can read");
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("text")
}

/// Compiles the header with lines after it; an error is what the compiler prints.
pub(crate) fn compile_with(root: &Path, header: &str, name: &str, lines: &str) -> Result<(), String> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{header}.{name}"));
    fs::write(&source, format!("#include \"{header}\"\n{lines}")).expect("a writable directory");
    let output = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .args([root.join("include"), source])
        .output()
        .expect("a C compiler called cc");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Expects that the header has these prototypes, and that a difference would be found.
pub(crate) fn expect_agreement(root: &Path, header: &str, prototypes: &str) {
    compile_with(root, header, "agree.c", prototypes).unwrap_or_else(|errors| panic!("{errors}"));
    let changed = prototypes.replacen("size_t size", "unsigned int size", 1);
    assert_ne!(prototypes, changed);
    let errors = compile_with(root, header, "differ.c", &changed).expect_err("conflicting types");
    assert!(errors.contains("conflicting types"), "{errors}");
}
