//! `include/gdrapi.h` says what the library exports.

#[path = "header/compare.rs"]
mod compare;

use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn prototypes_agree_with_the_exports() {
    let prototypes = compare::prototypes(root());
    let functions = prototypes.lines().filter(|line| line.contains(" gdr_") && line.contains('('));
    assert_eq!(functions.count(), 16, "all but the old gdr_get_info:\n{prototypes}");
    compare::expect_agreement(root(), "gdrapi.h", &prototypes);
}
