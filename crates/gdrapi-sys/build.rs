//! Does nothing. Cargo requires a build script in a package whose Cargo.toml contains `links`.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
