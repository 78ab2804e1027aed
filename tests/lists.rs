//! Compares lists of the same things in different files, such as gdrdrv's commands, which no compiler compares.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn text(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file)
}

/// Returns the lines of a file that begin with `before`, without that beginning. Blanks at the start of a line are
/// ignored.
fn lines_after(file: &str, before: &str) -> Vec<String> {
    let text = text(file);
    text.lines().filter_map(|line| line.trim_start().strip_prefix(before)).map(str::to_owned).collect()
}

const HEADER: &str = "gdrdrv-c/gdrdrv_uapi.h";

/// Returns each command of gdrdrv that the C header defines, and its number.
fn commands() -> BTreeMap<String, u32> {
    let mut asserted = BTreeMap::new();
    for line in lines_after(HEADER, "_Static_assert(GDRDRV_IOC_") {
        let (name, rest) = line.split_once(" == 0x").expect("a number");
        let number = rest.split_once(',').expect("a message").0;
        asserted.insert(name.to_owned(), u32::from_str_radix(number, 16).expect("a number"));
    }
    let mut defined = lines_after(HEADER, "#define GDRDRV_IOC_");
    defined.retain(|line| line.contains("_IOWR("));
    let defined: Vec<&str> = defined.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(asserted.len(), defined.len(), "{HEADER} must assert the number of each command: {defined:?}");
    for name in defined {
        assert!(asserted.contains_key(name), "{HEADER} must assert the number of {name}");
    }
    asserted
}

#[test]
fn all_lists_have_all_commands_of_gdrdrv() {
    for (name, number) in commands() {
        let in_rust = format!("0x{:04X}_{:04X}", number >> 16, number & 0xffff);
        let core = lines_after("crates/gdrcopy-core/src/sys/gdrdrv.rs", &format!("{name} "));
        assert!(core.iter().any(|line| line.contains(&in_rust)), "gdrcopy-core's {name} is not {in_rust}");

        for (file, entry) in [
            ("gdrdrv-c/commands.c", format!("({name}, {})", name.to_lowercase())),
            ("gdrdrv-c/contract/commands.c", format!("{{GDRDRV_IOC_{name}, ")),
            ("gdrdrv-c/tests/fuzz.c", format!("GDRDRV_IOC_{name},")),
            ("gdremu/core/src/abi.rs", format!("\"{name}\" = read_write({},", number & 0xff)),
            ("docs/kernel-interface.md", format!("| `{name}` | `0x{number:X}` |")),
        ] {
            assert!(text(file).contains(&entry), "{file} lacks {entry}");
        }
    }
}

#[test]
fn usage_names_all_copy_routines() {
    let usage = text("docs/usage.md");
    let sources = ["portable.rs", "arch/powerpc64.rs", "arch/aarch64/mod.rs", "arch/x86_64/mod.rs"];
    for source in sources {
        let source = text(&format!("crates/gdrcopy-core/src/routines/{source}"));
        let names: Vec<&str> =
            source.split("Routine { name: ").skip(1).filter_map(|rest| rest.split('"').nth(1)).collect();
        assert_ne!(names, [""; 0]);
        for name in names {
            assert!(usage.contains(&format!("`{name}`")), "docs/usage.md lacks {name}");
        }
    }
}
