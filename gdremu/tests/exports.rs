//! The exports of the preload libraries. Every function begins with instructions that tools which hook
//! functions in place can move elsewhere. None is reached through an entry that they can write to.
#![cfg(target_arch = "x86_64")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::built;

/// UCX replaces this much at most.
const PATCH: usize = 13;

/// The output of a tool of binutils on a library.
fn ask(tool: &str, options: &[&str], library: &Path) -> String {
    let output = Command::new(tool).args(options).arg(library).output();
    let output = output.unwrap_or_else(|error| panic!("{tool}, of binutils: {error}"));
    assert!(output.status.success(), "{tool}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns whether UCX can move an instruction, by its bytes.
fn is_movable(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x50..=0x57] | [0x41, 0x50..=0x57] // push
            | [0x48, 0x81, 0xec, ..] // sub $imm32,%rsp
            | [0x48, 0x89, 0xe5] // mov %rsp,%rbp
            | [0xb8..=0xbf, _, _, _, _] // mov $imm32,%reg
    )
}

/// The instructions of each function, by its name, as bytes each.
fn disassembled(library: &Path) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut functions = BTreeMap::new();
    let mut current: Option<&mut Vec<Vec<u8>>> = None;
    let text = ask("objdump", &["-d", "--wide", "--insn-width=16"], library);
    for line in text.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <")) {
            current = Some(functions.entry(name.to_owned()).or_default());
        } else if let (Some(code), Some(bytes)) = (&mut current, line.split('\t').nth(1)) {
            let byte = |text| u8::from_str_radix(text, 16).unwrap();
            code.push(bytes.split_whitespace().map(byte).collect());
        }
    }
    functions
}

fn assert_hookable(package: &str, expected: &[&str]) {
    let library = built(package);
    let functions = disassembled(&library);
    let symbols = ask("nm", &["-D", "--defined-only"], &library);
    let exported: Vec<&str> = symbols.lines().filter_map(|line| line.split_once(" T ").map(|(_, name)| name)).collect();
    for name in expected {
        assert!(exported.contains(name), "{name} is not exported");
    }
    let relocations = ask("readelf", &["--relocs", "--wide"], &library);
    for name in exported {
        let mut movable = 0;
        for instruction in &functions[name] {
            if movable >= PATCH {
                break;
            }
            assert!(is_movable(instruction), "{name} of {package}: {instruction:02x?}");
            movable += instruction.len();
        }
        let own = format!(" {name} + ");
        assert!(!relocations.contains(&own), "{package} reaches {name} by a relocation");
    }
}

#[test]
fn functions_of_emulated_gpus_can_be_hooked() {
    assert_hookable("gdremu-cuda", &["cuMemFree_v2", "cuMemFreeHost", "cuModuleGetGlobal_v2", "munmap", "open"]);
}

#[test]
fn functions_of_the_nvidia_provider_can_be_hooked() {
    assert_hookable("gdremu-nvidia", &["cuMemFree_v2", "dlsym", "mmap"]);
}
