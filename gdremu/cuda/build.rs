//! Gives the shared object the name under which programs look for CUDA.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The library calls its own functions directly. Tools such as UCX write into the relocated entries of every loaded
    // object, and must not change the results of our dlsym and cuGetProcAddress.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
