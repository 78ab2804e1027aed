#!/bin/sh
# install-cargo-tool.sh NAME VERSION: builds a program for cargo into target/NAME, unless it is there in this version.
# It is built without optimization, because building it takes longer than running it.
set -eu
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-$PWD/target}
installed=$target/$1
[ "$(cat "$installed/version" 2>/dev/null)" != "$2" ] || exit 0

CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$installed/build cargo install --quiet --locked --debug --root "$installed" "$1@$2"
rm -r "$installed/build"
echo "$2" >"$installed/version"
