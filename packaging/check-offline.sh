#!/usr/bin/env bash
# check-offline.sh TARBALL: adds the crates to the release tarball, by the commands of docs/install.md, and builds the libraries,
# the tools, gdremu and the wheel from it, without network and without crates of this computer.
set -euo pipefail
tarball=$(realpath "$1")
cd "$(dirname "$0")/.."

die() {
    echo "check-offline: $*" >&2
    exit 1
}

work=$PWD/build/offline
rm -rf "$work"
mkdir -p "$work/cargo"
cp "$tarball" "$work"
name=$(basename "$tarball" .tar.gz)
# Takes the commands from the code block that follows this script's name in docs/install.md.
commands=$(awk '/^<!-- not run: packaging\/check-offline.sh/ { wanted = 1 } wanted && /^```$/ { exit } inside { print } wanted && /^```sh$/ { inside = 1 }' docs/install.md)
[ -n "$commands" ] || die "docs/install.md has no commands for a build without network"
(cd "$work" && bash -euo pipefail -c "${commands//gdrapi-VERSION/$name}") >"$work/vendor.log" 2>&1 ||
    { cat "$work/vendor.log" >&2 && die "the commands of docs/install.md fail"; }
rm -rf "${work:?}/$name"
tar -xf "$work/$name.tar.gz" -C "$work"
for target in lib tools emulator wheel; do
    unshare --net env CARGO_HOME="$work/cargo" CARGO_TARGET_DIR="$work/target" \
        make -C "$work/$name" $target tarball="$work/$name.tar.gz" ZIG= >"$work/$target.log" 2>&1 ||
        { tail -n 30 "$work/$target.log" >&2 && die "make $target fails without network, see $work/$target.log"; }
done
ls "$work/$name"/build/wheel/*.whl >/dev/null
rm -rf "$work/target" "${work:?}/$name"
echo "offline: libraries, tools, gdremu and wheel build from the tarball with its crates"
