//! Makes libraries that have the names of the CUDA runtime, libcudart.so.12 and .13, but no code. A program that needs
//! the runtime finds one of them. Each depends on libcuda.so.1, which is the name of the library that gdremu preloads.
//! That library has the functions of the runtime.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    link(&out, "libcuda.so.1", &[]);
    for name in ["libcudart.so.12", "libcudart.so.13"] {
        // Programs request the runtime's symbols with the library's name as version: `cudaMalloc@libcudart.so.12`.
        // The dynamic loader expects the library to define this version.
        let versions = out.join(format!("{name}.map"));
        fs::write(&versions, format!("{name} {{ }};\n")).expect("OUT_DIR can be written");
        let script = format!("-Wl,--version-script={}", versions.display());
        link(&out, name, &[&script, "-Wl,--no-as-needed", "-l:libcuda.so.1"]);
    }
}

fn link(out: &Path, name: &str, arguments: &[&str]) {
    let mut cc = Command::new(env::var_os("CC").unwrap_or("cc".into()));
    cc.args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none"]);
    cc.arg(format!("-Wl,-soname,{name},--build-id=none"));
    cc.arg("-L").arg(out).args(arguments);
    cc.arg("-s").arg("-o").arg(out.join(name));
    let status = cc.status();
    assert!(status.is_ok_and(|status| status.success()), "{cc:?}");
}
