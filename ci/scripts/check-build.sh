#!/usr/bin/env bash
# Runs `make demo` in a directory with blanks in its path, first with a target triple in cargo's configuration, and then
# with one in the environment. Also checks that every target of `make help` refuses an ARCH that cannot be built for.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

targets=$(sed -n 's/^\([a-z_-]*\):.*## .*/\1/p' Makefile packaging/packages.mk ci/jobs.mk)
for arch in arm64 riscv64 x86_46 'x86_64 aarch64'; do
    for target in $targets; do
        ! make --dry-run "$target" ARCH="$arch" >"$work/log" 2>&1 || die "make $target takes ARCH=$arch"
        grep -q 'ARCH must be' "$work/log" || die "make $target does not say which ARCH there is: $(cat "$work/log")"
    done
done

tree="$work/a tree"
mkdir -p "$tree/.cargo"
git ls-files -z | tar --null --files-from=- --create | tar --extract --directory="$tree"
host=$(rustc --version --verbose | sed -n 's/^host: //p')
printf '[build]\ntarget = "%s"\n' "$host" >"$tree/.cargo/config.toml"

unset CARGO_TARGET_DIR
quietly make -C "$tree" demo
rm "$tree/.cargo/config.toml"
touch "$tree/src/lib.rs"
CARGO_BUILD_TARGET=$host quietly make -C "$tree" demo
[ ! -e "$tree/target/release/libgdrapi.so" ] || die "the library is not where cargo builds for a target"
echo "build: make demo, in a path with blanks, with a target"
