#!/bin/sh
# ci/scripts/apt-install.sh PACKAGE…: installs those of the packages that are missing. Says nothing where none is.
# ci/scripts/apt-install.sh --build-depends DIRECTORY: the same for what the Debian source package there needs. apt takes that
# one of several names that this release of the distribution has.
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
    # shellcheck disable=SC2086 # The packages are words.
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
# Lists that are old, or not there yet, name packages that are gone.
install "$@" >/dev/null 2>&1 || {
    $as_root apt-get update -qq
    install "$@" >/dev/null
}
