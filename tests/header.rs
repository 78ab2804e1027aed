//! Checks that `include/gdrapi.h` declares what the library exports.

#[path = "header/compare.rs"]
mod compare;

use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn prototypes_agree_with_the_exports() {
    let prototypes = compare::prototypes(root());
    compare::expect_agreement(root(), "gdrapi.h", &prototypes);
}
