#!/usr/bin/env bash
# rehearse-release.sh [--sources]: makes the next patch release in a copy of the last commit, as docs/release.md says, and
# checks that all its parts name the new version. With --sources, it checks only the sources, which takes seconds.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh
. scripts/versions.sh

ci/scripts/apt-install.sh dpkg-dev
[ "${1-}" = --sources ] || ci/scripts/apt-install.sh binutils pkg-config rpm unzip

# The copy of the repository keeps its builds, so that cargo compiles only what a new version changes.
copy=$PWD/build/rehearsal
[ "${1-}" != --sources ] || copy=$work/copy
old=$(released libgdrapi)
version=${old%.*}.$((${old##*.} + 1))
date=2026-12-31

mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git archive HEAD | tar -x -C "$copy"
cd "$copy"
commit() {
    git -c user.name=none -c user.email=none@localhost -c commit.gpgsign=false commit --quiet --message "$1"
}
git init --quiet
git add --all
commit "the last commit"
# The changelog gets a section for unreleased changes if it has none.
grep -q '^## \[Unreleased\]' CHANGELOG.md || sed -i '0,/^## /s//## [Unreleased]\n\n- A rehearsal.\n\n## /' CHANGELOG.md
quietly scripts/set-version "$version" "$date"
git add --all
commit "Release libgdrapi $version"

faults=0
# says WHAT WANTED COMMAND…: checks that the command, which prints the version of WHAT, prints WANTED.
says() {
    local said
    said=$("${@:3}" 2>&1) || said="$said (status $?)"
    [ "$said" = "$2" ] && return
    echo "rehearse-release: $1 says '$said', not '$2'" >&2
    faults=$((faults + 1))
}
finish() {
    [ $faults = 0 ] || die "$faults faults; scripts/versions.sh lists the places that set-version writes"
    echo "release: a rehearsal of $version says so in $*"
}

# Only changelogs may still name the previous release.
mapfile -t left < <(git grep -n --fixed-strings "$old" -- ':!CHANGELOG.md' ':!*/CHANGELOG.md' ':!packaging/debian' | grep -v " - $old-1$" || true)
for line in "${left[@]}"; do
    echo "rehearse-release: still says $old: $line" >&2
    faults=$((faults + 1))
done
says "packaging/debian/changelog" "$version-1" dpkg-parsechangelog --file packaging/debian/changelog --show-field Version
quietly make dist
release=gdrapi-$version
says "the tarball" "$release/" sh -c "tar -tf build/dist/$release.tar.gz | head -n 1"
says "the source distribution" "Version: $version" \
    sh -c "packaging/python/build.py sdist build/dist/$release.tar.gz build/sdist >/dev/null && tar -xOf build/sdist/gdrcopy-$version.tar.gz gdrcopy-$version/PKG-INFO | grep ^Version:"
if [ "${1-}" = --sources ]; then
    finish "the sources"
    exit
fi

# An empty ZIG selects gcc to link the wheel. zig would link it for an older glibc, but this script only checks versions.
quietly make deb rpm wheel ZIG=
rm -rf build/tree
for deb in build/deb/*.deb; do
    dpkg-deb --extract "$deb" build/tree
    says "$deb" "$version-1" dpkg-deb --field "$deb" Version
done
for rpm in build/rpm/*.rpm; do
    says "$rpm" "$version-1" rpm --query --queryformat '%{VERSION}-%{RELEASE}' --package "$rpm"
done
usr=build/tree/usr
pc=$(dirname "$(find "$usr" -name gdrcopy.pc)")
libdir=${pc%/pkgconfig}
for package in gdrcopy gdrapi; do
    says "$package.pc" "$version" pkg-config --with-path="$pc" --modversion $package
done
says gdrx.pc "$(released libgdrx)" pkg-config --with-path="$pc" --modversion gdrx
says "CMake's gdrcopy" "set(PACKAGE_VERSION \"$version\")" grep '^set(PACKAGE_VERSION ' "$libdir/cmake/gdrcopy/gdrcopy-config-version.cmake"
says "CMake's gdrx" "set(PACKAGE_VERSION \"$(released libgdrx)\")" grep '^set(PACKAGE_VERSION ' "$libdir/cmake/gdrx/gdrx-config-version.cmake"
# gdr_open logs a line with the version, so the library contains the version as a text.
says libgdrapi "$version" sh -c "strings '$libdir/libgdrapi.so.${version%.*}' | grep -oF -e $old -e $version | sort -u"
says gdrcopy "gdrcopy $version" "$usr/bin/gdrcopy" --version
says gdremu "gdremu $(released gdremu)" "$usr/bin/gdremu" --version
says gdrdrv-dkms "gdrapi gdrdrv-c $version" sed -n 's/^#define GDR_IMPLEMENTATION "\(.*\)"$/\1/p' "$usr/src/gdrdrv-${version%.*}/gdrdrv.h"

# Each man page has the version in its title. The pages of libgdrx and gdremu have their own versions.
for page in "$usr"/share/man/man*/*.gz; do
    title=$(zcat "$page" | grep -m 1 '^\.TH ' || true)
    product="gdrcopy $version"
    [[ ${page##*/} != gdrx* ]] || product="gdrx $(released libgdrx)"
    [[ ${page##*/} != gdremu* ]] || product="gdremu $(released gdremu)"
    [ -z "$title" ] || says "$page" "$date \"$product\"" sed -n 's/^\.TH [^ ]* [^ ]* "\{0,1\}\([0-9-]*\)"\{0,1\} \("[^"]*"\).*/\1 \2/p' <<<"$title"
done

wheel=(build/wheel/*.whl)
says "the wheel's name" "gdrcopy-$version-cp39" sh -c "basename ${wheel[0]} | cut -d- -f1-3"
says "the wheel" "Version: $version" sh -c "unzip -p ${wheel[0]} '*/METADATA' | grep ^Version:"
says "the wheel's package" "__version__ = \"$version\"" sh -c "unzip -p ${wheel[0]} gdrcopy/__init__.py | grep ^__version__"

unpacked=build/packages/$release
crates=(gdrcopy-core gdrcopy gdrapi-sys)
rm -rf build/crates
quietly env CARGO_TARGET_DIR="$PWD/build/crates" cargo package --manifest-path "$unpacked/Cargo.toml" --no-verify --allow-dirty --locked \
    "${crates[@]/#/--package=}"
for crate in "${crates[@]}"; do
    name=$crate-$(field version "crates/$crate")
    says "$crate" "$name" sh -c "basename --suffix=.crate build/crates/package/$crate-[0-9]*.crate"
    says "$name.crate" "version = \"${name#"$crate"-}\"" sh -c "tar -xOf build/crates/package/$name.crate $name/Cargo.toml | grep -m 1 '^version = '"
done
says gdrapi-sys "+$version" sh -c "grep -o '+$version' crates/gdrapi-sys/Cargo.toml"
finish "tarball, library, packages, wheel, crates, man pages, pkg-config and CMake"
