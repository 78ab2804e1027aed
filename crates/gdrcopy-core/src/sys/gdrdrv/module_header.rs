//! `gdrdrv-c/gdrdrv_uapi.h` declares the same interface in C, for the kernel module, and a C compiler
//! compares.
#![forbid(unsafe_code)]

use super::*;

use std::io::Write;
use std::path::Path;
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

#[test]
#[cfg_attr(miri, ignore = "Miri starts no compiler")]
fn module_header_matches_our_declarations() {
    // The repository has it, and the published crate does not.
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../gdrdrv-c");
    if !directory.join("gdrdrv_uapi.h").exists() {
        println!("skipped: there is no {}", directory.display());
        return;
    }
    let mut compiler = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
        .args(["-x", "c", "-", "-I"])
        .arg(directory)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a C compiler called cc");
    let of_commands: String = COMMANDS.iter().map(assertions).collect();
    let source = format!("#include <stddef.h>\n#include \"gdrdrv_uapi.h\"\n{of_commands}");
    let mut input = compiler.stdin.take().expect("a pipe");
    input.write_all(source.as_bytes()).expect("a compiler that reads");
    drop(input);
    assert!(compiler.wait().expect("a compiler that ends").success());
}
