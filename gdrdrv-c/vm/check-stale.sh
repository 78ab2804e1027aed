#!/usr/bin/env bash
# check-stale.sh KERNEL OLD NEW GDREMU LIB: in a guest without modules, replaces the GPU driver. Checks that the kernel refuses
# gdrdrv, and that the command that gdrdrv-load and doctor print, as it stands there, has DKMS build one that loads.
#
#   KERNEL     directory that kernel.sh printed
#   OLD, NEW   directories that modules.sh printed, with two emugpus
#   LIB        directory of libgdrapi.so.2
set -euo pipefail

kernel=$1 old=$2 new=$3 gdremu=$4 lib=$5
root=$(cd "$(dirname "$0")/../.." && pwd)
release=$(uname -r)
modules=/lib/modules/$release
export LD_LIBRARY_PATH=$lib GDREMU_STATE=/tmp

die() {
    echo "check-stale.sh: $*" >&2
    exit 1
}

# install_driver DIRECTORY: installed, and loaded as after a boot.
install_driver() {
    rmmod gdrdrv emugpu 2>/dev/null || true
    rm -f /dev/gdrdrv
    cp "$1/emugpu/emugpu.ko" "$modules/extra"
    # The sources that are built against.
    rm -rf /usr/src/nvidia-1
    mkdir -p /usr/src/nvidia-1
    cp "$1"/emugpu/*.[ch] /usr/src/nvidia-1
    touch /usr/src/nvidia-1/nv-p2p.c
    local branch=${1##*/modules-}
    sed -i "1i #define NV_P2P_BRANCH ${branch%-*}" /usr/src/nvidia-1/nv-p2p.h
    depmod "$release"
    insmod "$1/emugpu/emugpu.ko"
}

rm -f /.dockerenv # doctor has other remedies in containers
mkdir -p "$modules/extra"
touch "$modules"/modules.{order,builtin,builtin.modinfo}
ln -sfn "$kernel/headers" "$modules/build"
rm -rf /var/lib/dkms/gdrdrv /usr/src/gdrdrv-2.6 /usr/src/nvidia*
cp -r "$root/gdrdrv-c" /usr/src/gdrdrv-2.6
install "$root/gdrdrv-c/system/gdrdrv-load" /usr/sbin

# run COMMAND...: prints its output, and DKMS's, only if it fails.
run() {
    "$@" >/tmp/log 2>&1 || { cat /tmp/log /var/lib/dkms/gdrdrv/2.6/build/make.log && die "fails: $*"; }
}

# check_stale fails unless the kernel refuses the module, until the command that gdrdrv-load and doctor print is run.
check_stale() {
    local command
    ! gdrdrv-load >/tmp/load 2>&1 || die "the kernel takes a gdrdrv of another GPU driver"
    dmesg | grep -E 'gdrdrv: (disagrees about version of symbol|Unknown symbol)' | tail -n 1 | grep . || die "$(cat /tmp/load)"
    "$gdremu" --provider emugpu -- "$(dirname "$gdremu")/gdrcopy" doctor --json >/tmp/doctor || true
    command=$(jq -r '.steps[0] | select(.remedy == "module-stale").commands | join(" && ")' /tmp/doctor)
    [ -n "$command" ] || die "doctor's first step is another: $(cat /tmp/doctor)"
    grep -F "Run: ${command% modprobe gdrdrv} gdrdrv-load" /tmp/load || die "other commands: $(cat /tmp/load /tmp/doctor)"
    run bash -c "$command"
    grep '^Version: 2.6' /proc/driver/gdrdrv/params || die "gdrdrv is not loaded after: $command"
    rmmod gdrdrv
    gdrdrv-load
}

install_driver "$old"
run dkms install gdrdrv/2.6
gdrdrv-load
install_driver "$new"
check_stale
echo "# 1 passed, 0 failed, 0 skipped"
