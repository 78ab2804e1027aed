//! Each deliberate defect in `mutants.toml` replaces a text of a source file. Checks that each of these texts is still
//! in its file, exactly once. `make mutants` checks that the tests catch the defects.

#[path = "mutants/list.rs"]
mod list;

use std::fs;

use list::{mutants, root};

#[test]
fn every_mutant_applies_once_and_names_a_test() {
    let mut rotted = mutants();
    rotted.retain(|mutant| {
        let source = fs::read_to_string(root().join(&mutant.file)).expect("a source file");
        source.matches(&mutant.text).count() != 1 || mutant.text == mutant.with || mutant.caught_by.is_empty()
    });
    let rotted: Vec<_> = rotted.into_iter().map(|mutant| mutant.name).collect();
    assert!(rotted.is_empty(), "{rotted:?}");
}
