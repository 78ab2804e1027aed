//! Gives the shared object the name under which programs look for CUDA.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Its own functions are reached directly: what tools such as UCX write into the relocated entries
    // of every loaded object must not change what our dlsym and cuGetProcAddress find.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
