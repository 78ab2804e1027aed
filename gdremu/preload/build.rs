//! Gives the shared object for real GPUs its name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Its own functions are reached directly. Tools such as UCX write into the relocated entries of
    // every loaded object, and must not change the results of our dlsym and cuGetProcAddress. Cargo knows
    // no link argument that is only for an example which is a library.
    println!("cargo::rustc-link-arg=-Wl,-Bsymbolic-functions,-soname,libgdremu_nvidia.so");
}
