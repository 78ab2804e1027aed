//! Gives the shared object the name libgdremu_nvidia.so.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Binds calls between the library's functions at link time. Tools such as UCX overwrite the function addresses that
    // the dynamic loader stores in each object, and must not change what our dlsym and cuGetProcAddress return.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgdremu_nvidia.so");
}
