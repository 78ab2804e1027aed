//! Tests that README.md, the crate's front page, contains the code of the example quick_start exactly.
//! ci/scripts/public-api.py checks the links of README.md.

const README: &str = include_str!("../README.md");

#[test]
fn readme_shows_the_example_quick_start() {
    let shown = README.split("```").find_map(|block| block.strip_prefix("rust,no_run\n"));
    let example = include_str!("../examples/quick_start.rs");
    let (_, program) = example.split_once("\n\n").expect("comments, then code");
    assert_eq!(shown, Some(program));
}
