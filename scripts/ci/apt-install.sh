#!/bin/sh
# scripts/ci/apt-install.sh PACKAGE…: installs those of the packages that are missing. Says nothing where none is.
set -eu

missing=
for package; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Please run as root: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "Installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # The packages are words.
install() { $as_root apt-get install -qq -y --no-install-recommends $missing; }
# Lists that are old, or not there yet, name packages that are gone.
install >/dev/null 2>&1 || {
    $as_root apt-get update -qq
    install >/dev/null
}
