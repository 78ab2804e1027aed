//! Tests the exports of the preload libraries. Tools that hook functions overwrite the first instructions of a function
//! and run these elsewhere, so they must know the instructions. Other tools overwrite the function addresses that the
//! dynamic loader has stored in a library, so the libraries must not call their own functions by these addresses.
#![cfg(target_arch = "x86_64")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use common::{built, exports};

/// The code with which every exported function begins, `mov eax, 0` three times. UCX replaces at most the first 13
/// bytes of a function, and can move these instructions elsewhere.
const MOVABLE: [&str; 3] = ["b8 00 00 00 00"; 3];

/// Runs a tool of binutils on a library, and returns what the tool prints.
fn ask(tool: &str, options: &[&str], library: &Path) -> String {
    let output = Command::new(tool).args(options).arg(library).output();
    let output = output.expect("binutils are installed");
    assert!(output.status.success(), "{tool}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn assert_hookable(package: &str, expected: &[&str]) {
    let library = built(package);
    let code = ask("objdump", &["-d", "--wide"], &library);
    let exported = exports(&library);
    for name in expected {
        assert!(exported.contains(*name), "{name} is not exported");
    }
    let relocations = ask("readelf", &["--relocs", "--wide"], &library);
    let relocated: BTreeSet<&str> = relocations.lines().filter_map(|line| line.split_whitespace().nth(4)).collect();
    let mut begins = BTreeMap::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if let Some((_, name)) = line.split_once(" <")
            && let Some(name) = name.strip_suffix(">:")
        {
            let begin: Vec<&str> = lines.by_ref().take(MOVABLE.len()).collect();
            begins.insert(name, begin);
        }
    }
    for name in exported {
        for (index, line) in begins[&name[..]].iter().enumerate() {
            assert!(line.contains(MOVABLE[index]), "{name} of {package}: {line}");
        }
        assert!(!relocated.contains(&name[..]), "{package} reaches {name} by a relocation");
    }
}

#[test]
fn functions_of_emulated_gpus_can_be_hooked() {
    assert_hookable("gdremu-cuda", &["cuMemFree_v2", "cuMemFreeHost", "cuModuleGetGlobal_v2", "munmap", "open"]);
}

/// UCX writes the address of its own dlopen into every loaded library that links with dlopen. gdremu-nvidia loads
/// libcuda while it holds a lock, under which UCX's code must not run. So gdremu-nvidia must call libc's own dlopen.
#[test]
fn functions_of_the_nvidia_provider_can_be_hooked_and_none_uses_dlopen() {
    assert_hookable("gdremu-nvidia", &["cuMemFree_v2", "dlsym", "mmap"]);
    let relocations = ask("readelf", &["--relocs", "--wide"], &built("gdremu-nvidia"));
    assert!(relocations.contains(" dlvsym@") && !relocations.contains(" dlopen@"), "{relocations}");
}
