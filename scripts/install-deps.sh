#!/bin/sh
# Installs what `make check` needs and this machine lacks, by apt-get. Says nothing where nothing is missing.
set -eu

# command:package
needed="gcc:gcc g++:g++ nm:binutils pkg-config:pkg-config valgrind:valgrind cmake:cmake"

packages=
for pair in $needed; do
    command -v "${pair%%:*}" >/dev/null || packages="$packages ${pair#*:}"
done
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "Please install with your package manager:$packages" >&2
    exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Please run as root: apt-get install$packages" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "Installing$packages"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # The packages are words.
$as_root apt-get install -qq -y --no-install-recommends $packages >/dev/null 2>&1 || {
    $as_root apt-get update -qq
    $as_root apt-get install -qq -y --no-install-recommends $packages >/dev/null
}
