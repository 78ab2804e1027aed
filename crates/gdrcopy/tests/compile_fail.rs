//! Tests that the compiler refuses the programs in compile_fail/, which misuse the crate. In these programs, `//~ CODE`
//! marks each line in which the compiler must report an error, with the error's code.
//!
//! The crate trybuild, which is made for such tests, is not used. It compares the compiler's texts, which change
//! between releases, and builds all dev-dependencies once more.

#[path = "../../../tests/built/mod.rs"]
mod built;

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the line and the code of a message `PATH:LINE:COLUMN: error[CODE]: …`, or `None` for other texts.
fn error(message: &str) -> Option<(usize, String)> {
    let (place, text) = message.split_once(": error[")?;
    let line = place.rsplit(':').nth(1)?.parse().ok()?;
    Some((line, text.split_once(']')?.0.to_owned()))
}

/// Compiles a program, and returns the line and the code of each error.
fn errors(program: &Path) -> Vec<(usize, String)> {
    let library = built::built("libgdrcopy.rlib");
    let dependencies = library.with_file_name("deps");
    let output = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()))
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata"])
        .args(["--error-format=short", "--cap-lints=allow"])
        .args(["--out-dir", env!("CARGO_TARGET_TMPDIR")])
        .arg(format!("--extern=gdrcopy={}", library.display()))
        .arg(format!("-Ldependency={}", dependencies.display()))
        .arg(program)
        .output()
        .expect("rustc starts");
    let text = String::from_utf8(output.stderr).expect("text");
    let errors: Vec<_> = text.lines().filter_map(error).collect();
    assert_eq!(output.status.success(), errors.is_empty(), "{text}");
    errors
}

#[test]
fn each_marked_line_and_no_other_is_refused() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    for program in fs::read_dir(programs).expect("a directory") {
        let program = program.expect("an entry").path();
        let source = fs::read_to_string(&program).expect("a program");
        let mut marked = Vec::new();
        for (index, line) in source.lines().enumerate() {
            if let Some((_, code)) = line.split_once("//~ ") {
                marked.push((index + 1, code.to_owned()));
            }
        }
        let mut errors = errors(&program);
        errors.sort();
        assert_eq!(errors, marked, "{}", program.display());
    }
}
