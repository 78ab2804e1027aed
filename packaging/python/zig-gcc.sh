#!/usr/bin/env bash
# zig-gcc.sh ARGUMENT...: links as gcc does, but with the symbol versions of glibc 2.28, the glibc of RHEL 8. `make wheel
# ZIG=… [ARCH=…]` uses it. cargo takes this file for gcc because of its name.
set -euo pipefail

arch=${ARCH:-$(uname -m)}
gcc=$arch-linux-gnu-gcc
[ "$arch" != "$(uname -m)" ] || gcc=gcc
arguments=()
for argument in "$@"; do
    # zig would link its own unwinder. Thread cancellation needs one unwinder for the whole process.
    [ "$argument" != -lgcc_s ] || argument=$($gcc -print-file-name=libgcc_s.so.1)
    arguments+=("$argument")
done
# Undefined symbols in shared libraries are allowed, because this system's libgcc_s needs a newer glibc. The system that the
# wheel runs on has a libgcc_s of its own. ZIG has words that are quoted for the shell.
declare -a zig
eval "zig=($ZIG)"
exec "${zig[@]}" cc -target "$arch-linux-gnu.2.28" -Wl,--allow-shlib-undefined "${arguments[@]}"
