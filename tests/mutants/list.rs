//! Reads the deliberate defects of `mutants.toml`.

use std::path::Path;

use toml::{Table, Value};

pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) with: String,
    pub(crate) caught_by: Vec<String>,
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn mutants() -> Vec<Mutant> {
    let table: Table = include_str!("../mutants.toml").parse().expect("valid TOML");
    let mut mutants = Vec::new();
    for (name, mutant) in table {
        let _promise = text_of(&name, &mutant, "breaks");
        mutants.push(Mutant {
            file: text_of(&name, &mutant, "file"),
            text: text_of(&name, &mutant, "text"),
            with: text_of(&name, &mutant, "with"),
            caught_by: tests_of(&name, &mutant),
            name,
        });
    }
    mutants
}

fn text_of(name: &str, mutant: &Value, key: &str) -> String {
    match mutant.get(key) {
        Some(Value::String(text)) => text.clone(),
        _ => panic!("{name}: no {key}"),
    }
}

fn tests_of(name: &str, mutant: &Value) -> Vec<String> {
    let Some(Value::Array(values)) = mutant.get("caught_by") else {
        panic!("{name}: no caught_by");
    };
    let mut tests = Vec::new();
    for value in values {
        tests.push(value.as_str().expect("a test").to_owned());
    }
    tests
}
