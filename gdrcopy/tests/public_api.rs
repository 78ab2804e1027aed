//! The crate's public interface, with all features, against the listing in `public-api.txt`, so that no change to it goes
//! unseen. Items of gdrcopy-core that the crate exports are listed as items of the crate.
//!
//! `UPDATE_PUBLIC_API=1 cargo test -p gdrcopy --test public_api` writes the listing. It is made from rustdoc's JSON,
//! whose format changes with the toolchain, so with another than Rust 1.95's nothing is compared.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use public_api::{Builder, MINIMUM_NIGHTLY_RUST_VERSION};
use serde_json::Value;

const LISTING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/public-api.txt");

/// Makes rustdoc's JSON of a package.
fn rustdoc(package: &str, options: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-api");
    let status = Command::new(env!("CARGO"))
        .args(["rustdoc", "--quiet", "--lib", "--package", package])
        .args(options)
        .arg("--target-dir")
        .arg(&directory)
        .args(["--", "--cap-lints=allow", "-Z", "unstable-options"])
        .args(["--output-format", "json"])
        // JSON is not stable yet.
        .env("RUSTC_BOOTSTRAP", "1")
        .status()
        .expect("cargo starts");
    assert!(status.success(), "rustdoc: {status}");
    directory.join(format!("doc/{}.json", package.replace('-', "_")))
}

/// The public items of a crate, one per line; `None` for JSON of another format.
fn public_items(json: &Path) -> Option<String> {
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    Some(api.ok()?.to_string())
}

/// A `pub use`.
struct Export {
    /// The item's number in the JSON.
    item: u64,
    /// The path in the source code.
    from: String,
    /// The path that it makes.
    to: String,
}

/// Appends the exports of a module and of those in it.
fn add_exports(json: &Value, module: &Value, path: &str, exports: &mut Vec<Export>) {
    let index = &json["index"];
    let items = index[module.to_string()]["inner"]["module"]["items"].as_array();
    for id in items.into_iter().flatten() {
        let item = &index[id.to_string()];
        if let Some(name) = item["name"].as_str() {
            add_exports(json, id, &format!("{path}::{name}"), exports);
        }
        let export = &item["inner"]["use"];
        let text = |field: &str| export[field].as_str().unwrap_or_default();
        if let Some(item) = export["id"].as_u64() {
            let (from, to) = (text("source").to_owned(), format!("{path}::{}", text("name")));
            exports.push(Export { item, from, to });
        }
    }
}

/// Paths in gdrcopy-core of what gdrcopy exports, each with the shortest path in gdrcopy.
fn names(json: &Value) -> Vec<(String, String)> {
    let mut exports = Vec::new();
    add_exports(json, &json["root"], "gdrcopy", &mut exports);
    let mut names = Vec::new();
    for export in exports.iter().filter(|export| export.from.starts_with("gdrcopy_core::")) {
        let same = exports.iter().filter(|other| other.item == export.item);
        let shortest = same.map(|other| &other.to).min_by_key(|path| path.len());
        let shortest = shortest.expect("this one at least");
        // Where it is defined can be another place than where gdrcopy-core exports it.
        let defined = &json["paths"][export.item.to_string()]["path"];
        let defined = defined.as_array().into_iter().flatten();
        let defined: Vec<_> = defined.filter_map(Value::as_str).collect();
        for path in [export.from.clone(), defined.join("::")] {
            names.push((path, shortest.clone()));
        }
    }
    names
}

/// Returns whether `text` starts with the whole path.
fn starts_with_path(text: &str, path: &str) -> bool {
    let rest = text.strip_prefix(path);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()))
}

/// `line` with the names of gdrcopy.
fn renamed(line: &str, names: &[(String, String)]) -> String {
    let mut found = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("gdrcopy_core::") {
        found.push_str(&rest[..at]);
        rest = &rest[at..];
        let name = names.iter().find(|(path, _)| starts_with_path(rest, path));
        let (path, to) =
            name.unwrap_or_else(|| panic!("programs cannot name a type of gdrcopy-core, and see it in `{line}`"));
        found.push_str(to);
        rest = &rest[path.len()..];
    }
    found + rest
}

/// The public items of gdrcopy and of what it exports of gdrcopy-core; `None` for JSON of another format.
fn listing() -> Option<Vec<String>> {
    let json = rustdoc("gdrcopy", &["--all-features"]);
    let own = public_items(&json)?;
    let core = public_items(&rustdoc("gdrcopy-core", &[]))?;
    let json = fs::read_to_string(json).expect("rustdoc's output");
    let names = names(&serde_json::from_str(&json).expect("JSON"));
    let is_exported = |line: &&str| {
        let item = line.find("gdrcopy_core::").map(|at| &line[at..]);
        item.is_some_and(|item| names.iter().any(|(path, _)| starts_with_path(item, path)))
    };
    let lines = own.lines().chain(core.lines().filter(is_exported));
    let mut seen = BTreeSet::new();
    // Each path by which an item can be named has its methods below it.
    let is_new = |line: &String| seen.insert(line.clone());
    Some(lines.map(|line| renamed(line, &names)).filter(is_new).collect())
}

#[test]
fn public_interface_is_the_listed_one() {
    let Some(found) = listing() else {
        eprintln!("not compared: needs the JSON of {MINIMUM_NIGHTLY_RUST_VERSION}");
        return;
    };
    if env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(LISTING, found.join("\n") + "\n").expect("a writable listing");
    }
    let listed = fs::read_to_string(LISTING).expect("the listing");
    let listed: Vec<_> = listed.lines().map(str::to_owned).collect();
    let added = found.iter().filter(|line| !listed.contains(line)).map(|line| format!("+ {line}"));
    let removed = listed.iter().filter(|line| !found.contains(line)).map(|line| format!("- {line}"));
    let changes: Vec<_> = added.chain(removed).collect();
    assert!(
        changes.is_empty(),
        "the public interface has changed:\n{}\nif that is meant, run this test with UPDATE_PUBLIC_API=1",
        changes.join("\n")
    );
}
