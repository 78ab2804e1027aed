//! `include/gdrapi.h` says what the library exports.

#[path = "header/compare.rs"]
mod compare;

use std::fs;
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

#[test]
fn versions_agree() {
    let header = fs::read_to_string(root().join("include/gdrapi.h")).expect("the header");
    let value = |name: &str| {
        let line = header
            .lines()
            .find(|line| line.split_whitespace().take(2).eq(["#define", name]))
            .unwrap_or_else(|| panic!("no line `#define {name} …`"));
        line.split_whitespace().nth(2).expect("a value").parse::<u32>().expect("a number")
    };
    let api = gdrcopy_core::types::Version::API;
    assert_eq!((value("GDR_API_MAJOR_VERSION"), value("GDR_API_MINOR_VERSION")), (api.major, api.minor));
    let oldest = gdrcopy_core::types::Version::OLDEST_GDRDRV;
    assert_eq!(value("MINIMUM_GDRDRV_MAJOR_VERSION"), oldest.major);
    assert_eq!(value("MINIMUM_GDRDRV_MINOR_VERSION"), oldest.minor);
    let package = env!("CARGO_PKG_VERSION");
    assert_eq!(package, format!("{}.{}.0", api.major, api.minor));
}
