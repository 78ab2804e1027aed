#!/usr/bin/env bash
# kernel.sh [6.1|6.12|debug]: fetches that Debian kernel and its headers, once, and prints the folder that they are in:
#
#   release   what `uname -r` says in it
#   vmlinuz   to boot
#   headers   to build modules against
#   lib       its modules
#
# Nothing is installed. `debug` is built here (debug-kernel.sh). Linux 6.12 comes from Debian 12's backports, which apt need not have among its sources.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
series=${1:-6.1}
folder=$root/build/gdrdrv-c/kernel/$series
architecture=$(dpkg --print-architecture)

if [ -e "$folder/complete" ]; then
    echo "$folder"
    exit 0
fi

die() {
    echo "kernel.sh: $*" >&2
    exit 1
}

# The newest package linux-image-SERIES… that apt knows, less its variants.
newest() {
    apt-cache pkgnames "linux-image-$series." | grep -E "^linux-image-[0-9.]+(-[0-9]+|\+deb[0-9+.a-z]*)?-$architecture\$" |
        sort -V | tail -n 1
}

# depends PACKAGE PATTERN: the packages of that kind that it depends on.
depends() {
    apt-cache depends "$1" | sed -n "s/ *Depends: \($2\)\$/\1/p"
}

# Sets `image` and `headers`, downloads them and what the headers consist of.
fetch() {
    image=$(newest)
    [ -n "$image" ] || return 1
    headers=${image/image/headers}
    # shellcheck disable=SC2046 # Words.
    apt-get download -qq "$image" "$headers" $(depends "$headers" 'linux-headers-.*-common') \
        $(depends "$headers" 'linux-kbuild-.*') 2>apt.log
}

rm -rf "$folder"
if [ "$series" = debug ]; then
    "$here/debug-kernel.sh" "$folder"
    echo "$folder"
    exit 0
fi
mkdir -p "$folder"
cd "$folder"

if [ "$series" != 6.1 ]; then
    # The mirror of the sources that there are, in an apt of its own.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' | head -n 1)
    [ -n "$mirror" ] || die "apt has no Debian 12 among its sources"
    mkdir -p apt/lists/partial apt/cache/archives/partial
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm-backports main" >apt/sources.list
    cat >apt/apt.conf <<END
Dir::Etc::SourceList "$folder/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$folder/apt/lists";
Dir::Cache "$folder/apt/cache";
END
    export APT_CONFIG=$folder/apt/apt.conf
fi

# Lists that are old, or not there yet, name packages that are gone.
fetch || {
    $([ "$(id -u)" -eq 0 ] || echo sudo) apt-get update -qq >&2
    fetch || die "apt has no Linux $series for $architecture: $(cat apt.log)"
}
for package in *.deb; do
    dpkg-deb --extract "$package" .
    rm "$package"
done

release=${image#linux-image-}
echo "$release" >release
ln -s "boot/vmlinuz-$release" vmlinuz
ln -s "usr/src/$headers" headers
# The headers name each other by the places that they are installed in.
sed -i "s|/usr/|$folder/usr/|" "usr/src/$headers/Makefile"
rm -rf apt
depmod --basedir "$folder" "$release"
touch complete
echo "$folder"
