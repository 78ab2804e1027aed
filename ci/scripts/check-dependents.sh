#!/usr/bin/env bash
# Compiles programs that use the crates. Some use gdrcopy's feature for cudarc, each with another CUDA version, because
# a program can have only one of cudarc's features for CUDA versions. Last, compiles the crates with the oldest versions
# of dependencies that they allow. Downloads these versions.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

root=$PWD
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/dependents

# program NAME DEPENDENCIES: makes a program with these dependencies in a directory NAME, and changes into this
# directory.
program() {
    mkdir -p "$work/$1/src"
    cd "$work/$1"
    printf '[package]\nname = "program"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n[dependencies]\n%s\n' "$2" >Cargo.toml
    cp "$root/Cargo.lock" .
    echo 'fn main() { println!("{}", gdrcopy::Gdr::open().is_ok()); }' >src/main.rs
}

for version in cuda-11080 cuda-12000 cuda-12080 cuda-13040 cuda-version-from-build-system\",\ \"fallback-latest; do
    program "${version%%\"*}" "gdrcopy = { path = \"$root/crates/gdrcopy\", features = [\"cudarc-0-19\"] }
cudarc = { version = \"0.19\", default-features = false, features = [\"std\", \"driver\", \"$version\"] }"
    echo 'fn main() { println!("{} {}", gdrcopy::Gdr::open().is_ok(), cudarc::driver::CudaContext::new(0).is_ok()); }' >src/main.rs
    quietly cargo check
    echo "dependents: compiles with cudarc's ${version%%\"*}"
done

# Compiles a program beside a clone of this repository, with the lines that the crates' READMEs give for its Cargo.toml.
ln -s "$root" "$work/gdrapi"
program readme "$(grep -h '= { path = "../gdrapi/' "$root"/crates/*/README.md)"
echo 'use {gdrapi_sys as _, gdrcopy as _}; fn main() {}' >src/main.rs
quietly cargo check
echo "dependents: compiles with the lines of the READMEs"

# Makes a workspace of the published crates only. Other crates could need newer versions of the same dependencies.
mkdir "$work/oldest"
cd "$work/oldest"
cp -r "$root"/{src,include,build.rs,cbindgen.toml} .
mkdir crates
cp -r "$root"/crates/{gdrcopy,gdrcopy-core,gdrapi-sys} crates
sed '/^members = /s|= .*|= ["crates/*"]|; /^\[package\]/,/^\[profile/{/^\[profile/!d}; /^\[profile/,$d' "$root/Cargo.toml" >Cargo.toml
sed -i '/^\[dev-dependencies\]/,/^\[lints\]/{/^\[lints\]/!d}' crates/*/Cargo.toml
RUSTC_BOOTSTRAP=1 quietly cargo -Z direct-minimal-versions generate-lockfile
quietly cargo check --package gdrcopy-core --package gdrcopy --package gdrapi-sys --features testing,cudarc-0-19,cudarc/cuda-12000
echo "dependents: compiles with the oldest versions of dependencies"
