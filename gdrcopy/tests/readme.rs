//! README.md, which is the crate's front page, against the files that it repeats or names.

const README: &str = include_str!("../README.md");

#[test]
fn readme_shows_the_example_quick_start() {
    let (_, rest) = README.split_once("```rust,no_run\n").expect("an example");
    let (shown, _) = rest.split_once("```").expect("an end");
    let example = include_str!("../examples/quick_start.rs");
    let (_, program) = example.split_once("\n\n").expect("comments, then code");
    assert_eq!(shown, program);
}

/// On GitHub, links must be those of docs.rs, which rustdoc does not check.
#[test]
fn readme_links_to_items_that_there_are() {
    let listing = include_str!("../public-api.txt");
    let links = README.lines().filter_map(|line| line.split_once("]: https://docs.rs/gdrcopy/latest/"));
    let mut count = 0;
    for (name, page) in links {
        let (module, file) = page.rsplit_once('/').expect("a page of a module");
        let (kind, rest) = file.split_once('.').expect("KIND.NAME.html");
        let item = rest.strip_suffix(".html").expect("KIND.NAME.html");
        assert_eq!(name, format!("[`{item}`"));
        let start = format!("{kind} {}::{item}", module.replace('/', "::"));
        let is_this = |line: &str| {
            let at = line.find(&start).map(|at| &line[at + start.len()..]);
            at.is_some_and(|after| !after.starts_with(|c: char| c == '_' || c.is_alphanumeric()))
        };
        assert!(listing.lines().any(is_this), "public-api.txt has no `{start}`");
        count += 1;
    }
    assert_ne!(count, 0);
}
