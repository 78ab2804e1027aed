#!/bin/sh
# ci/scripts/apt-install.sh PACKAGE…: installs the packages that are missing. Prints nothing if none is missing.
# ci/scripts/apt-install.sh --build-depends DIRECTORY: does the same for what the Debian source package in DIRECTORY
# needs to build. If it needs one of several packages, apt takes one that this release of the distribution has.
set -eu

if [ "$1" = --build-depends ]; then
    ! (cd "$2" && dpkg-checkbuilddeps 2>/dev/null) || exit 0
    missing=$(sed -n 's/^Build-Depends: //p' "$2/debian/control")
    set -- satisfy "$missing"
else
    missing=
    for package; do
        dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
    done
    [ -n "$missing" ] || exit 0
    # shellcheck disable=SC2086 # Each word is a package.
    set -- install $missing
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        if [ "$1" = satisfy ]; then missing="'$missing'"; fi
        echo "Please run as root: apt-get $1 ${missing# }" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "Installing ${missing# }"
export DEBIAN_FRONTEND=noninteractive
install() { $as_root apt-get -qq -y --no-install-recommends "$@"; }
# If apt's lists are missing, or so old that they name packages that are gone, the first attempt fails.
install "$@" >/dev/null 2>&1 || {
    $as_root apt-get update -qq
    install "$@" >/dev/null
}
