#!/bin/sh
# scripts/ci/apt-install.sh PACKAGE…: installs those of the packages that are missing. Says nothing where none is.
# scripts/ci/apt-install.sh --build-depends DIRECTORY: the same for what the Debian source package there needs. apt takes those
# names of a package that this release of the distribution has. The directory is a path with a slash.
set -eu

if [ "$1" = --build-depends ]; then
    ! (cd "$2" && dpkg-checkbuilddeps 2>/dev/null) || exit 0
    command="build-dep $2"
else
    missing=
    for package; do
        dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
    done
    [ -n "$missing" ] || exit 0
    command="install$missing"
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "Please run as root: apt-get $command" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "Installing by apt-get $command"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # The packages are words; the directory has no blanks, as make's.
install() { $as_root apt-get -qq -y --no-install-recommends $command; }
# Lists that are old, or not there yet, name packages that are gone.
install >/dev/null 2>&1 || {
    $as_root apt-get update -qq
    install >/dev/null
}
