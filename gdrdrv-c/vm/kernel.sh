#!/usr/bin/env bash
# kernel.sh [5.10|6.1|6.12|newest|debug|kcsan [arm64|ppc64el]]: fetches one of Debian's kernels and its headers, once, and prints
# the directory that holds them:
#
#   release   its `uname -r`
#   vmlinuz   the kernel to boot
#   headers   the headers to build modules against
#   lib       its modules
#
# For another architecture than this machine's, only headers are fetched, for cross-building. Nothing is installed. `debug`
# and `kcsan` are not fetched but built (debug-kernel.sh). `newest` is the newest of Debian 13's backports.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
series=${1:-6.1}
native=$(dpkg --print-architecture)
architecture=${2:-$native}
directory=$root/build/gdrdrv-c/kernel/$series
[ "$architecture" = "$native" ] || directory=$directory-$architecture

if [ -e "$directory/complete" ]; then
    echo "$directory"
    exit 0
fi

die() {
    echo "kernel.sh: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

case $series in
5.10) suites='bullseye-security bullseye' ;;
6.1) suites=$([ "$architecture" = "$native" ] && echo 'bookworm-security bookworm' || echo bookworm) ;; # bookworm-security has no ppc64el
6.12) suites='bookworm-backports bookworm' ;;
newest) suites='trixie-backports trixie' ;;
debug | kcsan)
    rm -rf "$directory"
    "$here/debug-kernel.sh" "$series" "$directory"
    echo "$directory"
    exit 0
    ;;
*) die "no such series: $series" ;;
esac
# Debian's packages of headers are named linux-headers-NUMBER-FLAVOR. The flavor is Debian's name for the architecture.
number=$([ "$series" = newest ] || echo "$series.")
flavor=${architecture/ppc64el/powerpc64le}

rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"

# apt gets its own configuration. It has only the suites in $suites, and includes packages for $architecture, which the
# host's configuration may lack.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' | head -n 1)
[ -n "$mirror" ] || die "apt has no Debian 12 among its sources"
mkdir -p apt/lists/partial apt/cache/archives/partial
for suite in $suites; do
    case $suite in
    *-security) from=${mirror%/}-security ;;
    *) from=$mirror ;;
    esac
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from $suite main"
done >apt/sources.list
cat >apt/apt.conf <<END
Dir::Etc::SourceList "$directory/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$directory/apt/lists";
Dir::Cache "$directory/apt/cache";
APT::Architectures { "$native"; "$architecture"; };
END
export APT_CONFIG=$directory/apt/apt.conf
as_root env APT_CONFIG="$APT_CONFIG" apt-get update -qq >&2

# depends PACKAGE PATTERN: prints the packages that match the pattern and that the package depends on.
depends() {
    apt-cache depends "$1" | sed -nE "s/^ *Depends: <?($2)(:[^>]*)?>?\$/\1/p"
}

# packages_of HEADERS: prints the packages to download for this package of headers.
packages_of() {
    local image=${1/headers/image}
    echo "$1:$architecture" "$(depends "$1:$architecture" 'linux-headers-.*-common')"
    echo "$(depends "$1:$architecture" 'linux-kbuild-[^:]*'):$native"
    [ "$architecture" != "$native" ] || echo "$image" "$(depends "$image" 'linux-(base|binary|modules)-[0-9].*')"
}

# are_in_archive PACKAGE…: succeeds if apt has a version of each.
are_in_archive() {
    local package
    for package; do
        [ -n "$(apt-cache show "$package" 2>/dev/null)" ] || return 1
    done
}

# Takes the newest linux-headers-SERIES… (no variant such as -rt) for which the archive has all packages. The newest one
# may lack its image, because a security update brings headers days before the signed image.
headers=
for candidate in $(apt-cache pkgnames "linux-headers-$number" |
    grep -E "^linux-headers-[0-9.]+(-[0-9]+|\+deb[0-9+.a-z]*)?-$flavor\$" | sort -rV); do
    packages=$(packages_of "$candidate")
    # shellcheck disable=SC2086 # These are several words.
    if are_in_archive $packages; then
        headers=$candidate
        break
    fi
    echo "kernel.sh: ${candidate#linux-headers-} is left out: the archive does not have its image or its headers" >&2
done
[ -n "$headers" ] || die "the archive has no Linux $series for $architecture with image and headers ($suites): try again later"
# shellcheck disable=SC2086 # $packages has several words.
apt-get download -qq $packages 2>apt.log || die "$(cat apt.log)"
for package in *.deb; do
    # To save space, leaves out most drivers, but not virtio and net. Drivers are half of a package of modules.
    dpkg-deb --fsys-tarfile "$package" | tar --extract --exclude='*/lib/modules/*/kernel/drivers/[!nv]*' \
        --exclude='*/lib/modules/*/kernel/drivers/net/ethernet' --exclude='*/lib/modules/*/kernel/sound'
    rm "$package"
done

echo "${headers#linux-headers-}" >release
ln -s "usr/src/$headers" headers
# The Makefiles refer to each other by installed paths, below /usr, but these headers are below $directory.
find "usr/src/$headers" -maxdepth 1 -name Makefile -exec sed -i "s|/usr/|$directory/usr/|" {} +
if [ "$architecture" = "$native" ]; then
    [ -e lib ] || ln -s usr/lib lib
    ln -s "$(ls boot/vmlinuz-* usr/lib/modules/*/vmlinuz 2>/dev/null)" vmlinuz
    depmod --basedir "$directory" "$(cat release)"
fi
if [ "$series" = newest ]; then
    # Two tools that come with these headers need a newer C library than the host's, so they get libraries of Debian 13.
    mkdir debian13
    apt-get download -qq libc6 libelf1t64 zlib1g libzstd1 2>apt.log || die "$(cat apt.log)"
    for package in *.deb; do
        dpkg-deb --extract "$package" debian13
        rm "$package"
    done
    libraries=$directory/debian13/usr/lib/x86_64-linux-gnu
    for tool in "$directory"/usr/lib/linux-kbuild-*/{scripts/mod/modpost.real-lsb-64,tools/objtool/objtool.real-x86}; do
        mv "$tool" "$tool.elf"
        printf '#!/bin/sh\nexec %s/ld-linux-x86-64.so.2 --library-path %s %s.elf "$@"\n' \
            "$libraries" "$libraries" "$tool" >"$tool"
        chmod 0755 "$tool"
    done
fi
unset APT_CONFIG
as_root rm -rf apt apt.log
touch complete
echo "$directory"
