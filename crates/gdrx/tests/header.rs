//! Tests that `include/gdrx.h` declares the exports of the library, and that the header's inline functions have the
//! same fences as gdrcopy-core.

#[path = "../../../tests/header/compare.rs"]
mod compare;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace")
}

fn header() -> String {
    fs::read_to_string(root().join("include/gdrx.h")).expect("the header")
}

#[test]
fn prototypes_agree_with_the_exports() {
    let prototypes = compare::prototypes(root());
    let types = "typedef struct gdrx_map gdrx_map;\ntypedef struct gdrx_copy gdrx_copy;\n";
    compare::expect_agreement(root(), "gdrx.h", &format!("{types}{prototypes}"));
}

/// Returns the bodies of functions by name. `source` is C or Rust without comments, and each function in it starts with
/// `keyword`, for example with `fn `. A body ends before its closing brace.
fn bodies<'a>(source: &'a str, keyword: &str) -> HashMap<&'a str, &'a str> {
    source.split(keyword).skip(1).filter_map(name_and_body).collect()
}

fn name_and_body(text: &str) -> Option<(&str, &str)> {
    let before_arguments = text.split('(').next()?;
    let name = before_arguments.rsplit([' ', '*']).next()?;
    let body = &text[text.find('{')?..];
    let mut depth = 0;
    let end = body.find(|c| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    })?;
    Some((name, &body[..end]))
}

/// Returns the steps of a function in order: the instructions of assembly, `compiler` for a fence without an
/// instruction, `store` and `load`. Steps of called functions are included.
fn steps(functions: &HashMap<&str, &str>, name: &str) -> Vec<String> {
    let Some(body) = functions.get(name) else {
        panic!("there is no function {name}");
    };
    let mut steps = Vec::new();
    // `body` is split at its quotation marks, so the parts with odd numbers are the contents of string literals.
    for (number, part) in body.split('"').enumerate() {
        if number % 2 == 1 {
            match part {
                "memory" => {}
                "" => steps.push("compiler".to_owned()),
                _ => steps.extend(part.split("\\n\\t").map(str::to_owned)),
            }
            continue;
        }
        for word in part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            match word {
                "compiler_fence" => steps.push("compiler".to_owned()),
                "__atomic_store_n" => steps.push("store".to_owned()),
                "__atomic_load_n" => steps.push("load".to_owned()),
                _ if functions.contains_key(word) => steps.extend(self::steps(functions, word)),
                _ => {}
            }
        }
    }
    steps
}

/// Returns the output of the C preprocessor for the header on this arch, without the headers that it includes.
fn preprocessed(arch: &str) -> String {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{arch}.c"));
    let code = header().replace("#include", "//");
    fs::write(&source, code).expect("a writable directory");
    let output = Command::new("cc")
        .args(["-E", "-P", "-undef", &format!("-D__{arch}__")])
        .arg(&source)
        .output()
        .expect("a C compiler called cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The inline functions of the C header, where `BITS` stands for 8, 16, 32 or 64. Each has a list of its accesses and
/// of functions of gdrcopy-core whose fences it must have. The load before a full fence reads the flag that requests
/// the fence.
const INLINE_FUNCTIONS: &[(&str, &[&str])] = &[
    ("gdrx_end_", &["load", "full"]),
    ("gdrx_begin", &["before_write"]),
    ("gdrx_fence", &["after_write", "load", "full"]),
    ("gdrx_store_uBITS_unfenced", &["store"]),
    ("gdrx_store_uBITS", &["before_write", "store", "after_write", "load", "full"]),
    ("gdrx_load_uBITS", &["before_read", "load", "after_read", "load", "full"]),
];

#[test]
fn inline_functions_have_the_fences_of_the_copies() {
    for arch in ["x86_64", "aarch64"] {
        let header = preprocessed(arch);
        let inline = bodies(&header, "static inline ");
        assert_eq!(header.matches("asm").count(), header.matches(r#"::: "memory""#).count());

        let path = format!("crates/gdrcopy-core/src/routines/arch/{arch}/fence.rs");
        let source = fs::read_to_string(root().join(path)).expect("fences");
        let mut code = String::new();
        for line in source.lines() {
            if !line.trim_start().starts_with("//") {
                code += line;
            }
        }
        let fences = bodies(&code, "fn ");

        for bits in ["8", "16", "32", "64"] {
            for (name, parts) in INLINE_FUNCTIONS {
                let mut expected = Vec::new();
                for part in *parts {
                    match *part {
                        "load" | "store" => expected.push((*part).to_owned()),
                        fence => expected.extend(steps(&fences, fence)),
                    }
                }
                let name = name.replace("BITS", bits);
                assert_eq!(steps(&inline, &name), expected, "{name} on {arch}");
            }
        }
    }
}
