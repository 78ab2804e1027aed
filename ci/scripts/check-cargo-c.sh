#!/usr/bin/env bash
# Builds the C library with cargo-c, and installs it into a scratch directory. Then builds a program of tests/install,
# which finds the library by pkg-config, and runs it under gdremu.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh
. scripts/versions.sh

target=${CARGO_TARGET_DIR:-$PWD/target}
prefix=$work/prefix
[ -e "$target/cargo-c" ] || ci/scripts/apt-install.sh libssl-dev pkg-config
ci/scripts/install-cargo-tool.sh cargo-c 0.10.24+cargo-0.98.0 # Rust 1.95 cannot build later versions.
PATH=$target/cargo-c/bin:$PATH
CARGO_TERM_QUIET=true quietly cargo cinstall --locked --release --package libgdrapi --prefix "$prefix" --libdir "$prefix/lib"

version=$(released libgdrapi)
found=$(cd "$prefix" && find . -type f -printf '%p\n' -o -type l -printf '%p -> %l\n' | LC_ALL=C sort)
wanted="./include/gdrapi.h
./include/gdrconfig.h
./lib/libgdrapi.a
./lib/libgdrapi.so -> libgdrapi.so.$version
./lib/libgdrapi.so.2 -> libgdrapi.so.$version
./lib/libgdrapi.so.$version
./lib/pkgconfig/gdrcopy.pc"
[ "$found" = "$wanted" ] || die "installed files differ:"$'\n'"$(diff <(echo "$wanted") <(echo "$found"))"
for header in gdrapi.h gdrconfig.h; do
    cmp "include/$header" "$prefix/include/$header"
done
# check-symbols.sh would also check the static library beside the shared one. That would fail, because cargo-c leaves
# the functions of Rust's libraries global there. So only the shared library is copied.
mkdir "$work/shared"
cp "$prefix/lib/libgdrapi.so.$version" "$work/shared"
ci/scripts/check-symbols.sh "$work/shared/libgdrapi.so.$version"

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
[ "$(pkg-config --modversion gdrcopy)" = "$version" ] || die "gdrcopy.pc has another version"
make --no-print-directory --silent -C "$prefix" -f "$PWD/tests/install/make/Makefile" with_gdrcopy with_gdrcopy_archive
for program in with_gdrcopy with_gdrcopy_archive; do
    "$target/release/gdremu" -- "$prefix/$program" || die "$program does not work"
done
echo "cargo-c: files, symbols, pkg-config; a program linked with the shared library, and one with the static one"
