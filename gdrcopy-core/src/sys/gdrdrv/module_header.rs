//! `gdrdrv-c/gdrdrv_uapi.h` declares the same interface in C, for the kernel module, and a C compiler
//! compares.
#![forbid(unsafe_code)]

use super::*;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command and its argument.
pub(super) struct Interface {
    pub(super) name: &'static str,
    pub(super) number: Number,
    pub(super) size: usize,
    /// Name, offset and size of each field.
    pub(super) fields: &'static [(&'static str, usize, usize)],
}

pub(super) const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// C assertions about a command and its argument.
fn assertions(Interface { name, number, size, fields }: &Interface) -> String {
    let argument = format!("struct gdrdrv_{name}");
    let mut facts =
        vec![format!("GDRDRV_IOC_{} == {number:#x}", name.to_uppercase()), format!("sizeof({argument}) == {size}")];
    for (field, offset, size) in *fields {
        facts.push(format!("offsetof({argument}, {field}) == {offset}"));
        facts.push(format!("sizeof((({argument} *)0)->{field}) == {size}"));
    }
    facts.iter().map(|fact| format!("_Static_assert({fact}, \"{fact}\");\n")).collect()
}

fn all_assertions() -> String {
    let of_commands: String = COMMANDS.iter().map(assertions).collect();
    format!("#include <stddef.h>\n#include \"gdrdrv_uapi.h\"\n{of_commands}")
}

/// The directory of the module's header, which is in the repository, and not in the published crate.
fn header() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gdrdrv-c");
    if !directory.join("gdrdrv_uapi.h").exists() {
        println!("skipped: there is no {}", directory.display());
        return None;
    }
    Some(directory)
}

/// Compiles C source that includes the module's header; an error is the compiler's output.
fn compile(include: &Path, source: &str) -> std::result::Result<(), String> {
    let mut compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
        .args(["-x", "c", "-", "-I"])
        .arg(include)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a C compiler called cc");
    let mut input = compiler.stdin.take().expect("a pipe");
    input.write_all(source.as_bytes()).expect("a compiler that reads");
    drop(input);
    let output = compiler.wait_with_output().expect("a compiler that ends");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
#[cfg_attr(miri, ignore = "Miri starts no compiler")]
fn module_header_matches_our_declarations() {
    let Some(include) = header() else { return };
    assert_eq!(compile(&include, &all_assertions()), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "Miri starts no compiler")]
fn altered_declaration_does_not_compile() {
    let Some(include) = header() else { return };
    let right = all_assertions();
    for fact in [
        "sizeof(((struct gdrdrv_get_cb_flag *)0)->flag) == 4",
        "offsetof(struct gdrdrv_pin_buffer, handle) == 32",
        "GDRDRV_IOC_GET_INFO == 0xc008da04",
    ] {
        let wrong = right.replace(fact, &format!("{fact}2"));
        assert_ne!(wrong, right, "{fact}");
        let complaints = compile(&include, &wrong).expect_err("a static assertion that fails");
        assert!(complaints.contains(fact), "{complaints}");
    }
}
