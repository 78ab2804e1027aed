#!/usr/bin/env bash
# copy-default-build.sh DIR: copies tests/default_build to DIR, with the workspace's Cargo.lock. Callers build the copy,
# because cargo writes a Cargo.lock beside Cargo.toml, and the repository must not change.
set -euo pipefail
cd "$(dirname "$0")/../.."

mkdir -p "$1"
cp -r tests/default_build/Cargo.toml tests/default_build/src Cargo.lock "$1"
sed -i "s|\.\./\.\./crates|$PWD/crates|" "$1/Cargo.toml"
