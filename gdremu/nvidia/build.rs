//! Gives the shared object the name libgdremu_nvidia.so.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Binds references between the library's functions at link time. Otherwise the dynamic loader would store their
    // addresses in a table of this library. Tools such as UCX overwrite such addresses in all libraries. Then
    // our dlsym and cuGetProcAddress would return the functions of those tools.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgdremu_nvidia.so");
}
