//! Compares a header in `include/` with the functions that a library exports, for the tests of each library.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the prototypes that cbindgen reads out of the package's `src/exports.rs`.
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

/// Returns the sorted names of the functions that the text declares by prototypes of one line.
fn declared(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for line in text.lines() {
        if !line.starts_with(char::is_alphabetic) || !line.ends_with(");") {
            continue;
        }
        let Some((before, _)) = line.split_once('(') else { continue };
        names.push(before.rsplit(' ').next().expect("a name"));
    }
    names.sort_unstable();
    names
}

/// Compiles the header, followed by `lines`. The error is the text that the compiler prints.
pub(crate) fn compile_with(root: &Path, header: &str, name: &str, lines: &str) -> Result<(), String> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{header}.{name}"));
    fs::write(&source, format!("#include \"{header}\"\n{lines}")).expect("a writable directory");
    let output = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .args([root.join("include"), source])
        .output()
        .expect("a C compiler called cc");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Expects that the header has these prototypes and no others, and that the compiler would report a difference.
pub(crate) fn expect_agreement(root: &Path, header: &str, prototypes: &str) {
    let text = fs::read_to_string(root.join("include").join(header)).expect("the header");
    assert_eq!(declared(&prototypes.replace(",\n", ",")), declared(&text), "the exports, and what {header} declares");
    if let Err(errors) = compile_with(root, header, "agree.c", prototypes) {
        panic!("{errors}");
    }
    let changed = prototypes.replacen("size_t size", "unsigned int size", 1);
    assert_ne!(prototypes, changed);
    let errors = compile_with(root, header, "differ.c", &changed).expect_err("conflicting types");
    assert!(errors.contains("conflicting types"), "{errors}");
}
