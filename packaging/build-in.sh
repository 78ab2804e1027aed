#!/usr/bin/env bash
# build-in.sh RELEASE TARBALL DIR: runs `make deb` of the release tarball in a new root file system (tree) of that Debian
# release. The tree has only make, this computer's Rust toolchain and its crates. Puts the packages into DIR.
set -euo pipefail
release=$1 tarball=$(realpath "$2") out=$(realpath -m "$3")
cd "$(dirname "$0")/.."
. packaging/tree.sh

ci/scripts/apt-install.sh debootstrap
cargo fetch --quiet --locked
new_tree "build-$release" "$release" make
mkdir -p "$tree"/{rust,cargo/registry,tarball,source/build} "$work/build-$release-cache"
tar -xf "$tarball" -C "$tree/source" --strip-components=1
cp "$tarball" "$tree/tarball"
# No manuals are installed, because indexing them takes minutes.
echo 'path-exclude=/usr/share/man/*' >"$tree/etc/dpkg/dpkg.cfg.d/no-manuals"

# in_tree_quietly_with_rust COMMAND...: runs a command in the tree, with this computer's Rust toolchain mounted there.
# cargo's build directory is kept for the next run.
in_tree_quietly_with_rust() {
    unshare --mount sh -c '
        mount --bind "$1" "$0/rust" && mount --bind "$2" "$0/cargo/registry" && mount --bind "$3" "$0/source/build" || exit
        shift 3
        exec "$@"' "$tree" "$(rustc --print sysroot)" "${CARGO_HOME:-$HOME/.cargo}/registry" "$work/build-$release-cache" \
        unshare --mount --pid --fork sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$tree" \
        env -i PATH=/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 CARGO_HOME=/cargo CARGO_NET_OFFLINE=true "$@"
}
in_tree_quietly_with_rust make -C /source deb tarball="/tarball/${tarball##*/}" >"$work/build-$release.log" 2>&1 ||
    { tail -n 40 "$work/build-$release.log" >&2 && die "make deb fails on $release, see $work/build-$release.log"; }
rm -rf "$out"
cp -r "$work/build-$release-cache/deb" "$out"
rm -r "$tree"
echo "make deb: $(find "$out" -name '*.deb' | wc -l) packages on $release"
