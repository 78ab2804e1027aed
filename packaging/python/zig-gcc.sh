#!/usr/bin/env bash
# `make wheel ZIG=… [ARCH=…]` links by it, as gcc does (cargo goes by the name of this file), but with the symbol
# versions of glibc 2.28, that of RHEL 8.
set -euo pipefail

arch=${ARCH:-$(uname -m)}
gcc=$arch-linux-gnu-gcc
[ "$arch" != "$(uname -m)" ] || gcc=gcc
arguments=()
for argument in "$@"; do
    # zig would link its own unwinder, which cannot unwind together with the process's, as thread cancellation does.
    [ "$argument" != -lgcc_s ] || argument=$($gcc -print-file-name=libgcc_s.so.1)
    arguments+=("$argument")
done
# This system's libgcc_s needs a newer glibc; where the wheel runs there is another one. ZIG is words of the shell.
declare -a zig
eval "zig=($ZIG)"
exec "${zig[@]}" cc -target "$arch-linux-gnu.2.28" -Wl,--allow-shlib-undefined "${arguments[@]}"
