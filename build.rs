//! Gives the shared library the SONAME that programs linked against libgdrapi expect.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgdrapi.so.2");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    // Copies may still run in other threads after dlclose, so the library is never unmapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
