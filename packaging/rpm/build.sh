#!/bin/sh
# build.sh DIR OUT [OPTION...]: builds the packages of gdrcopy.spec in DIR, the unpacked release tarball, with options of
# rpmbuild.
set -eu
dir=$(realpath "$1")
rm -rf "$2" "$dir.rpmbuild"
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
cd "$dir"
command -v rpmbuild >/dev/null || ci/scripts/apt-install.sh rpm
CARGO_TARGET_DIR=$(dirname "$dir")/target rpmbuild -bb --build-in-place --nodeps "$@" --define "_topdir $dir.rpmbuild" \
    --define "_rpmdir $out" --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' packaging/rpm/gdrcopy.spec
# Packages for an older system must be built on that system.
glibc=$(objdump -T build/lib/libgdrapi.so.2 | sed -n 's/.*(*GLIBC_\(2\.[0-9]*\)).*/\1/p' | sort -Vu | tail -n 1)
echo "$out: these packages need glibc ${glibc:-of this system} or later: build on the oldest system that they are for"
