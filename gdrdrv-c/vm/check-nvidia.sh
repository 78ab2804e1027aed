#!/usr/bin/env bash
# check-nvidia.sh KERNEL MODULES NVIDIAS: in a virtual machine that has loaded neither emugpu nor gdrdrv
# (run.sh --no-modules), installs gdrdrv-c over NVIDIA's gdrdrv, and NVIDIA's gdrdrv over gdrdrv-c. The commands that
# drv_install and gdrdrv-load print, and the commands for DKMS in gdrdrv-c/README.md, must load gdrdrv-c.
#
#   KERNEL    directory that kernel.sh printed
#   MODULES   directory that modules.sh printed, with emugpu and gdrdrv-c
#   NVIDIAS   file of NVIDIA's gdrdrv.ko, or of the module that nvidia-stand-in.sh builds in its place
set -euo pipefail

kernel=$1 modules=$2 nvidias=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
release=$(uname -r)
installed=/lib/modules/$release
export NVIDIA_SRC_DIR=$modules/emugpu

work=$(mktemp -d) # a new name, because the guest also sees the files in the host's /tmp

die() {
    echo "check-nvidia.sh: $*" >&2
    exit 1
}

# run COMMAND...: runs a command. If it fails, prints its output and DKMS's log, and ends the script.
run() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log" /var/lib/dkms/gdrdrv/2.6/build/make.log && die "fails: $*"; }
}

# install_nvidias [option of DKMS]: lets DKMS install NVIDIA's module. Its build does nothing, because compiling here takes
# minutes.
install_nvidias() {
    rm -rf /usr/src/gdrdrv-2.6
    mkdir -p /usr/src/gdrdrv-2.6
    cp "$nvidias" /usr/src/gdrdrv-2.6
    cat >/usr/src/gdrdrv-2.6/dkms.conf <<'CONF'
PACKAGE_NAME="gdrdrv"
PACKAGE_VERSION="2.6"
MAKE[0]="true"
BUILT_MODULE_NAME[0]="gdrdrv"
DEST_MODULE_LOCATION[0]="/extra"
CONF
    run dkms install "$@" gdrdrv/2.6
}

install_ours() {
    make --silent -C "$work/ours" drv_install >"$work/install"
}

remove_all() {
    rmmod gdrdrv 2>/dev/null || true
    dkms remove gdrdrv/2.6 --all >/dev/null 2>&1 || true
    rm -rf /usr/src/gdrdrv-2.6 /dev/gdrdrv
    make --silent -C "$work/ours" drv_uninstall
}

# command_in FILE: prints the command at the end of the file's last line, after "run: ". The file must name NVIDIA's module.
command_in() {
    grep -F "$installed/updates/dkms/gdrdrv.ko" "$1" >/dev/null || die "no word about NVIDIA's module: $(cat "$1")"
    tail -n 1 "$1" | sed -n 's/.*run: //p' | grep . || die "no command: $(cat "$1")"
}

is_ours() {
    grep -q '^Implementation: gdrapi gdrdrv-c' /proc/driver/gdrdrv/params || die "after $1, NVIDIA's is loaded"
}

# nvidias_is_loaded: checks that gdrdrv-load refuses NVIDIA's module, and that the command which it prints loads gdrdrv-c.
nvidias_is_loaded() {
    ! gdrdrv-load >"$work/load" 2>&1 || die "gdrdrv-load takes NVIDIA's module"
    command=$(command_in "$work/load")
    bash -c "$command" >"$work/log" 2>&1 || die "fails: $command: $(cat "$work/log")"
    is_ours "$command"
    grep -F "loaded $installed/extra/gdrdrv.ko" "$work/log" >/dev/null || die "gdrdrv-load does not name the file: $(cat "$work/log")"
}

mkdir -p "$installed/extra"
touch "$installed"/modules.{order,builtin,builtin.modinfo}
ln -sfn "$kernel/headers" "$installed/build"
rm -rf /var/lib/dkms/gdrdrv /usr/src/gdrdrv-2.6
cp "$modules/emugpu/emugpu.ko" "$installed/extra"
depmod "$release"
insmod "$modules/emugpu/emugpu.ko"
cp -r "$root/gdrdrv-c" "$work/ours"
cp "$modules/gdrdrv/gdrdrv.ko" "$work/ours"

echo "NVIDIA's first: drv_install says which one modprobe takes, and so does gdrdrv-load"
install_nvidias
install_ours
command_in "$work/install" >/dev/null
nvidias_is_loaded
remove_all

echo "The command of drv_install"
install_nvidias
install_ours
run bash -c "$(command_in "$work/install")"
gdrdrv-load
is_ours "drv_install and its command"
remove_all

echo "gdrdrv-c first"
install_ours
[ ! -s "$work/install" ] || die "drv_install prints: $(cat "$work/install")"
install_nvidias --force # else DKMS leaves a module of the same version in place
nvidias_is_loaded
remove_all

echo "README's commands for DKMS, over other sources"
dkms_commands=$(sed -n '/^With DKMS/,/^```$/p' "$root/gdrdrv-c/README.md" | sed -n '/^```sh$/,/^```$/{/^```/d;p}')
[ -n "$dkms_commands" ] || die "README has no commands for DKMS"
install_nvidias
touch /usr/src/gdrdrv-2.6/older
install "$root/gdrdrv-c/system/gdrdrv-load" /usr/sbin
run bash -c "cd '$root' && $dkms_commands"
diff -r "$root/gdrdrv-c" /usr/src/gdrdrv-2.6 >"$work/log" || die "other sources: $(cat "$work/log")"
gdrdrv-load
is_ours "README's commands for DKMS"
echo "# 1 passed, 0 failed, 0 skipped"
