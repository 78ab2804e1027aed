#!/usr/bin/env bash
# check-stale.sh KERNEL OLD NEW GDREMU LIB: in a virtual machine that has loaded neither emugpu nor gdrdrv
# (run.sh --no-modules), replaces the GPU driver, so that the kernel refuses gdrdrv. While the new driver is only loaded,
# gdrdrv-load and `gdrcopy doctor` must ask for its installation. After that, the command that they print must let DKMS
# build a gdrdrv that loads.
#
#   KERNEL     directory that kernel.sh printed
#   OLD, NEW   directories that modules.sh printed, with different versions of emugpu
#   GDREMU     the program gdremu, with gdrcopy beside it
#   LIB        directory of libgdrapi.so.2
set -euo pipefail

kernel=$1 old=$2 new=$3 gdremu=$4 lib=$5
root=$(cd "$(dirname "$0")/../.." && pwd)
release=$(uname -r)
modules=/lib/modules/$release
export LD_LIBRARY_PATH=$lib GDREMU_STATE=/tmp

work=$(mktemp -d) # a new name, because the guest also sees the files in the host's /tmp

die() {
    echo "check-stale.sh: $*" >&2
    exit 1
}

# install_driver DIRECTORY: installs the directory's emugpu as the GPU driver, together with its sources.
install_driver() {
    cp "$1/emugpu/emugpu.ko" "$modules/extra"
    # DKMS builds gdrdrv against these sources.
    rm -rf /usr/src/nvidia-1
    mkdir -p /usr/src/nvidia-1
    cp "$1"/emugpu/*.[ch] /usr/src/nvidia-1
    touch /usr/src/nvidia-1/nv-p2p.c
    local branch=${1##*/modules-}
    sed -i "1i #define NV_P2P_BRANCH ${branch%-*}" /usr/src/nvidia-1/nv-p2p.h
    depmod "$release"
}

# load_driver DIRECTORY: replaces the loaded GPU driver. Boots do so, and containers that bring their own driver.
load_driver() {
    rmmod gdrdrv emugpu 2>/dev/null || true
    rm -f /dev/gdrdrv
    insmod "$1/emugpu/emugpu.ko"
}

rm -f /.dockerenv # with this file, doctor would take the guest for a container, and print other remedies
mkdir -p "$modules/extra"
touch "$modules"/modules.{order,builtin,builtin.modinfo}
ln -sfn "$kernel/headers" "$modules/build"
rm -rf /var/lib/dkms/gdrdrv /usr/src/gdrdrv-2.6 /usr/src/nvidia*
cp -r "$root/gdrdrv-c" /usr/src/gdrdrv-2.6
install "$root/gdrdrv-c/system/gdrdrv-load" /usr/sbin

# run COMMAND...: runs a command. If it fails, prints its output and DKMS's log, and ends the script.
run() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" /var/lib/dkms/gdrdrv/2.6/build/make.log && die "fails: $*"; }
}

# first_step: prints the first step that `gdrcopy doctor` advises, as JSON.
first_step() {
    "$gdremu" --provider emugpu -- "$(dirname "$gdremu")/gdrcopy" doctor --json >"$work/doctor" || true
    jq '.steps[0]' "$work/doctor"
}

# refused WORDS: checks that the kernel refuses the module, and that gdrdrv-load prints these words.
refused() {
    ! gdrdrv-load >"$work/load" 2>&1 || die "the kernel takes a gdrdrv of another GPU driver"
    dmesg | grep -E 'gdrdrv: (disagrees about version of symbol|Unknown symbol)' | tail -n 1 | grep . || die "$(cat "$work/load")"
    grep -F "$1" "$work/load" || die "other words: $(cat "$work/load")"
}

install_driver "$old"
load_driver "$old"
run dkms install gdrdrv/2.6
gdrdrv-load

rm "$modules/extra/emugpu.ko"
depmod "$release"
load_driver "$new"
refused 'which is not installed'
[ "$(first_step | jq -r .remedy)" = driver-install ] || die "doctor's first step is another: $(cat "$work/doctor")"

install_driver "$new"
command=$(first_step | jq -r 'select(.remedy == "module-stale").commands | .[0] + "; " + (.[1:] | join(" && "))')
[ -n "$command" ] || die "doctor's first step is another: $(cat "$work/doctor")"
refused "Run: ${command% modprobe gdrdrv} gdrdrv-load"
run bash -c "$command"
grep '^Version: 2.6' /proc/driver/gdrdrv/params || die "gdrdrv is not loaded after: $command"
rmmod gdrdrv
gdrdrv-load
echo "# 1 passed, 0 failed, 0 skipped"
