#!/bin/sh
# ci/scripts/install-cross.sh CPU: installs the cross compilers and Rust's standard library for builds for
# CPU-unknown-linux-gnu, if this machine lacks them. Prints nothing if nothing is missing.
set -eu

command -v "$1-linux-gnu-g++" >/dev/null || "$(dirname "$0")/apt-install.sh" "gcc-$1-linux-gnu" "g++-$1-linux-gnu"

target=$1-unknown-linux-gnu
ls "$(rustc --print target-libdir --target "$target")"/libstd-*.rlib >/dev/null 2>&1 && exit
if ! command -v rustup >/dev/null; then
    echo "Please install Rust's standard library for $target; with rustup: rustup target add $target" >&2
    exit 1
fi
rustup target add "$target"
