#!/bin/sh
# Checks that include/gdrapi.h and Cargo.toml name the same version.
set -eu
cd "$(dirname "$0")/../.."

number() {
    sed -n "s/^#define $1 \([0-9]*\)$/\1/p" include/gdrapi.h
}

header=$(number GDR_API_MAJOR_VERSION).$(number GDR_API_MINOR_VERSION)
cargo=$(sed -n 's/^version = "\([0-9]*\.[0-9]*\)\..*/\1/p' Cargo.toml)

if [ "$header" != "$cargo" ]; then
    echo "include/gdrapi.h is version $header, Cargo.toml $cargo" >&2
    exit 1
fi
echo "version: $header in header and package"
