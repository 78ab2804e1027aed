#!/bin/sh
# Builds cargo-c into target/cargo-c, unless it is there. Without optimization, because building it takes longer than
# using it.
set -eu
cd "$(dirname "$0")/../.."

version=0.10.24+cargo-0.98.0 # The last one that Rust 1.95 builds.
target=${CARGO_TARGET_DIR:-$PWD/target}
installed=$target/cargo-c
[ "$(cat "$installed/version" 2>/dev/null)" != "$version" ] || exit 0

scripts/ci/apt-install.sh libssl-dev pkg-config
CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$installed/build cargo install --quiet --locked --debug --root "$installed" "cargo-c@$version"
rm -r "$installed/build"
echo "$version" >"$installed/version"
