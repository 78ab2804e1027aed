//! Gives the tracer the name of the library before which it stands.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgdrapi.so.2");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
}
