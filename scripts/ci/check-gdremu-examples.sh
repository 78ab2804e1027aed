#!/usr/bin/env bash
# Runs the examples of docs/gdremu.md, with an installed gdremu and libgdrapi. Each must pass, and must fail when gdremu
# refuses the first pin.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/ci/common.sh

page=$PWD/docs/gdremu.md

# commands HEADING: the lines of the page's block of shell commands below that heading.
commands() {
    awk -v heading="### $1" '/^##/ { here = $0 == heading } /^```/ { block = here && $0 == "```sh"; next } block' "$page"
}

export prefix=$work/prefix
make --no-print-directory --silent lib_install gdremu_install prefix="$prefix"
cp -r examples/gdremu "$work/examples"
sed -i "s|\.\./\.\./gdrcopy|$PWD/gdrcopy|" "$work/examples/Cargo.toml"
cp Cargo.lock "$work/examples"

export LD_LIBRARY_PATH=$prefix/lib PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# Not below this checkout's target directory, whose lock another cargo may hold; but kept, to be quick.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}/examples

# A gdremu that refuses the first pin.
mkdir "$work/faulty"
printf '#!/bin/sh\nexec "%s/bin/gdremu" --fault PIN_BUFFER_V2:ENOMEM "$@"\n' "$prefix" >"$work/faulty/gdremu"
chmod +x "$work/faulty/gdremu"

cd "$work/examples"
for example in C 'CMake and CTest' pytest cargo; do
    script=$(commands "$example")
    [ -n "$script" ] || die "docs/gdremu.md has no commands below '$example'"
    PATH=$prefix/bin:$PATH bash -euo pipefail -c "$script" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "$example fails"; }
    ! PATH=$work/faulty:$PATH bash -euo pipefail -c "$script" >"$work/log" 2>&1 || die "$example does not notice that its pin fails"
    grep -qiE 'pin_?buffer' "$work/log" || { cat "$work/log" >&2 && die "$example fails, but not by its pin"; }
done
echo "examples of docs/gdremu.md: C, CMake and CTest, pytest, cargo"
