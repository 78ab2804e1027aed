#!/bin/sh
# build.sh DIR OUT [OPTION...]: builds the packages of gdrcopy.spec in DIR, the unpacked release tarball. OPTIONs are rpmbuild's.
set -eu
dir=$1 out=$2
shift 2
"$dir/scripts/ci/apt-install.sh" rpm
rm -rf "$out" "$dir.rpmbuild"
mkdir -p "$out"
CARGO_TARGET_DIR=$(dirname "$dir")/target rpmbuild -bb --build-in-place --nodeps "$@" \
    --define "_topdir $dir.rpmbuild" --define "_rpmdir $(cd "$out" && pwd)" --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
    "$dir/packaging/rpm/gdrcopy.spec"
