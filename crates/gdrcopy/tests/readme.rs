//! README.md, which is the crate's front page, against the files that it repeats or names.

use std::fs;
use std::path::Path;

const README: &str = include_str!("../README.md");

#[test]
fn readme_shows_the_example_quick_start() {
    let shown = README.split("```").find_map(|block| block.strip_prefix("rust,no_run\n"));
    let example = include_str!("../examples/quick_start.rs");
    let (_, program) = example.split_once("\n\n").expect("comments, then code");
    assert_eq!(shown, Some(program));
}

/// On GitHub, links must be those of docs.rs, which rustdoc does not check.
#[test]
fn readme_links_to_items_that_there_are() {
    let mut count = 0;
    for line in README.lines() {
        let Some((name, page)) = line.split_once("]: https://docs.rs/gdrcopy/latest/gdrcopy/") else {
            continue;
        };
        let (module, file) = page.rsplit_once('/').unwrap_or(("lib", page));
        let mut parts = file.split('.');
        let kind = parts.next().expect("a kind");
        let item = parts.next().expect("a name");
        assert_eq!(name, format!("[`{item}`"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = [source.join(format!("{module}.rs")), source.join(module).join("mod.rs")];
        let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
        // Modules re-export their items, so that each has one page.
        let mut words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
        assert!(words.any(|word| word == item), "{module} has no {kind} {item}");
        count += 1;
    }
    assert_ne!(count, 0);
}
