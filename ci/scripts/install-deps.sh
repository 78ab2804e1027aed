#!/bin/sh
# Installs what `make check` needs and this machine lacks. Prints nothing if nothing is missing.
set -eu

# Each word is a command and, after the colon, the Debian package that has it.
needed="gcc:gcc g++:g++ nm:binutils pkg-config:pkg-config valgrind:valgrind cmake:cmake meson:meson clang:clang automake:automake autoconf:autoconf pytest:python3-pytest shellcheck:shellcheck mandoc:mandoc"

packages=
for pair in $needed; do
    command -v "${pair%%:*}" >/dev/null || packages="$packages ${pair#*:}"
done
python3 -c 'import ensurepip' 2>/dev/null || packages="$packages python3-venv"
# Tests of gdremu preload these allocators.
for library in libjemalloc.so.2:libjemalloc2 libtcmalloc_minimal.so.4:libtcmalloc-minimal4 libmimalloc.so.2:libmimalloc2.0; do
    /sbin/ldconfig -p | grep -q "${library%%:*}" || packages="$packages ${library#*:}"
done
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "Please install with your package manager:$packages" >&2
    exit 1
fi
# shellcheck disable=SC2086 # Each word is a package.
exec "$(dirname "$0")/apt-install.sh" $packages
