//! Tests that a shared library that depends on this crate exports no symbol of the C library `libgdrapi`, is not linked
//! to that library, and can be unloaded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use libloading::Library;

const MANIFEST: &str = r#"
[workspace]

[package]
name = "dependent"
version = "0.1.0"
edition = "2024"

[lib]
crate-type = ["cdylib"]

[dependencies]
gdrcopy = { path = "GDRCOPY", features = ["testing"] }
"#;

const SOURCE: &str = r#"
#[unsafe(no_mangle)]
pub extern "C" fn dependent_open() -> i32 {
    gdrcopy::Gdr::open().map_or_else(|error| error.errno(), |_| 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn dependent_use_memory() -> u64 {
    use gdrcopy::Mapped;
    let gpu = gdrcopy::testing::Gpu::new();
    let buffer = gdrcopy::Pool::new(&gpu.open(), gpu.clone()).alloc(4096).unwrap();
    buffer.fill(7).unwrap();
    buffer.read_vec(0, 4096).unwrap().iter().map(|&byte| u64::from(byte)).sum()
}
"#;

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn build() -> PathBuf {
    let gdrcopy = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dependent");
    fs::create_dir_all(package.join("src")).expect("a writable directory");
    let manifest = MANIFEST.replace("GDRCOPY", gdrcopy.to_str().expect("a path in UTF-8"));
    fs::write(package.join("Cargo.toml"), manifest).expect("writable");
    fs::write(package.join("src/lib.rs"), SOURCE).expect("writable");
    fs::copy(gdrcopy.join("../../Cargo.lock"), package.join("Cargo.lock")).expect("readable");

    let target = package.join("target");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--offline", "--message-format", "json", "--target-dir"]);
    let messages = output(cargo.arg(&target).current_dir(&package));
    let archives = messages.matches(".a\"").count();
    assert_eq!(archives, 0, "static libraries were built on the way: {messages}");

    target.join("debug/libdependent.so")
}

#[test]
fn cdylib_of_a_dependent_has_no_c_api_and_is_unloaded_after_use() {
    let library = build();
    let symbols = output(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(&library));
    assert!(symbols.contains(" dependent_open"), "{symbols}");
    assert!(!symbols.contains(" gdr_"), "{symbols}");
    let dynamic = output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&library));
    assert!(dynamic.contains("(NEEDED)"), "{dynamic}");
    assert!(!dynamic.contains("libgdrapi"), "{dynamic}");
    // Programs may load and unload a plugin several times.
    for _ in 0..3 {
        // SAFETY: the library has only the initializers of Rust's standard library.
        let plugin = unsafe { Library::new(&library) }.expect("loads");
        // SAFETY: the function has this type.
        let use_memory = unsafe { plugin.get::<extern "C" fn() -> u64>(b"dependent_use_memory") };
        assert_eq!(use_memory.expect("exported")(), 7 * 4096);
        plugin.close().expect("closes");
        let maps = fs::read_to_string("/proc/self/maps").expect("readable");
        assert!(!maps.contains("libdependent"), "{maps}");
    }
}
