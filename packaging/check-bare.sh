#!/usr/bin/env bash
# check-bare.sh TARBALL [TARGET RELEASE...]: runs `make demo` and `make TARGET` (default: test) of the release tarball
# in a new root file system (tree) of each Debian RELEASE (default: 12 and 13). A tree has gcc, make and this computer's
# Rust toolchain, which is all that README.md requires. The commands do not run as root. They have no /sys, and no network
# except the loopback interface.
set -euo pipefail
tarball=$(realpath "$1")
test=${2:-test} releases=("${@:3}")
[ ${#releases[@]} -gt 0 ] || releases=(bookworm trixie)
cd "$(dirname "$0")/.."
. packaging/tree.sh

ci/scripts/apt-install.sh debootstrap iproute2
# In the new root file systems, cargo has no network, so the crates are fetched before.
cargo fetch --quiet --locked
home=/home/user
rust=/usr/local/rust

# as_user COMMAND...: runs a command in the tree as a user that is not root. devpts is mounted, because tests of
# progress bars need pseudo-terminals.
as_user() {
    unshare --mount --pid --net --fork sh -c '
        ip link set lo up && mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" &&
            mount -t devpts -o ptmxmode=0666 devpts "$0/dev/pts" && mount --bind "$1" "$0$2" && mount --bind "$3" "$0$4" || exit
        shift 4
        exec "$@"' "$tree" "$(rustc --print sysroot)" "$rust" "${CARGO_HOME:-$HOME/.cargo}/registry" "$home/.cargo/registry" \
        chroot --userspec=1000:1000 "$tree" \
        env -i PATH="$rust/bin:/usr/bin:/bin" LC_ALL=C.UTF-8 HOME="$home" CARGO_NET_OFFLINE=true CARGO_PROFILE_DEV_DEBUG=0 "$@"
}

for release in "${releases[@]}"; do
    # gcc only recommends libc6-dev, and debootstrap, unlike apt, does not install recommended packages.
    new_tree "bare-$release" "$release" gcc,make,libc6-dev
    mkdir -p "$tree$home"/{gdrapi,.cargo/registry} "$tree$rust"
    tar -xf "$tarball" -C "$tree$home/gdrapi" --strip-components=1
    chown -R 1000:1000 "$tree$home"
    for target in demo "$test"; do
        as_user make -C "$home/gdrapi" $target >"$work/bare-$target.log" 2>&1 ||
            { tail -n 40 "$work/bare-$target.log" >&2 && die "make $target fails on $release, see $work/bare-$target.log"; }
    done
    rm -r "$tree"
    echo "make demo, make $test: pass on a bare $release. $(grep SKIPPED "$work/bare-$test.log")"
done
