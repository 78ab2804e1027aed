#!/usr/bin/env bash
# packaging.sh KERNEL: checks the module's Makefile and its package for DKMS. KERNEL is a directory that kernel.sh printed,
# which has a kernel's headers. The Makefile must find the GPU driver's sources and the compiler, and undo an
# installation. DKMS must build the module after the GPU driver. Writes only to build/gdrdrv-c/packaging.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
kernel=$(realpath "$1")
release=$(cat "$kernel/release")
work=$root/build/gdrdrv-c/packaging
# gdrdrv is built with the sources of emugpu, which takes the place of the GPU driver.
NVIDIA_SRC_DIR=$("$here/modules.sh" "$kernel")/emugpu
export NVIDIA_SRC_DIR

die() {
    echo "FAILED: packaging.sh: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo --preserve-env=NVIDIA_SRC_DIR "$@"; fi
}

"$root/ci/scripts/apt-install.sh" dkms pahole >&2
as_root rm -rf "$work"
mkdir -p "$work"

# ---- The GPU driver's sources ----

for directory in nvidia-535.1/nvidia nvidia-580.2/nvidia kernel-modules/nvidia-550.3/nvidia; do
    mkdir -p "$work/src/$directory"
    touch "$work/src/$directory/nv-p2p."{c,h}
done
# This package has a copy of nv-p2p.h, but not the GPU driver's sources. So the Makefile must not choose it.
mkdir -p "$work/src/nvidia-peermem-590"
touch "$work/src/nvidia-peermem-590/nv-p2p.h"

# finds RELEASE DIRECTORY: checks which directory the Makefile finds for a release of the GPU driver, or for none ('').
finds() {
    local found
    found=$(env -u NVIDIA_SRC_DIR make -C "$root/gdrdrv-c" help release="$1" \
        places="$work/src/nvidia* $work/src/kernel-modules/nvidia*" | sed -n 's/^NVIDIA_SRC_DIR *//p')
    [ "$found" = "$work/src/$2" ] || die "sources for release '$1' are $found, not $work/src/$2"
}

finds '' nvidia-580.2/nvidia
finds 535.1 nvidia-535.1/nvidia
finds 550.3 kernel-modules/nvidia-550.3/nvidia

# ---- The compiler ----

mkdir -p "$work/kernel/include/config"
printf 'CC = gcc\nLD = ld\nmodules:\n\t@echo tools: $(CC) $(LD)\n' >"$work/kernel/Makefile"

# compiled_with "TOOLS" [variable=value ...]: checks which compiler and linker build the module for the kernel.
compiled_with() {
    local wanted=$1 found
    shift
    found=$(make --silent -C "$root/gdrdrv-c" driver KDIR="$work/kernel" NVIDIA_SYMVERS=none "$@" | sed -n 's/^tools: //p')
    [ "$found" = "$wanted" ] || die "the tools for $* are '$found', not '$wanted'"
}

compiled_with "gcc ld"
printf 'CONFIG_CC_IS_CLANG=y\n' >"$work/kernel/include/config/auto.conf"
compiled_with "clang ld"
echo CONFIG_LD_IS_LLD=y >>"$work/kernel/include/config/auto.conf"
compiled_with "clang ld.lld"
compiled_with "clang-17 ld.lld" CC=clang-17 LD=ld.lld
compiled_with "clang-17 ld.lld" CC=clang-17
compiled_with "gcc ld" LLVM=1 # gdrdrv's Makefile leaves LLVM to the kernel's Makefile, which does not know it here.

# ---- DKMS ----

mkdir -p "$work"/dkms/{src,tree,installed/"$release"}
cp -r "$root/gdrdrv-c" "$work/dkms/src/gdrdrv-2.6"
gpu_driver=$work/dkms/src/nvidia-current-580
cp -r "$root/gdrdrv-c/emugpu" "$gpu_driver"
touch "$gpu_driver/nv-p2p.c"
cat >"$gpu_driver/dkms.conf" <<'END'
PACKAGE_NAME="nvidia-current"
PACKAGE_VERSION="580"
MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/nvidia-current/580/build modules"
BUILT_MODULE_NAME[0]="emugpu"
DEST_MODULE_LOCATION[0]="/extra"
AUTOINSTALL="yes"
END

dkms() {
    as_root env "PATH=$PATH:/usr/sbin" dkms --no-depmod --dkmstree "$work/dkms/tree" --sourcetree "$work/dkms/src" \
        --installtree "$work/dkms/installed" --kernelsourcedir "$kernel/headers" -k "$release" "$@" >>"$work/dkms.log" 2>&1
}

# modules: lists the installed modules, in the order of their installation.
modules() {
    find "$work/dkms/installed" -name '*.ko*' -printf '%T@ %f\n' | sort -n | sed 's/.* //; s/\..*//' | xargs
}

dkms add gdrdrv/2.6 || die "dkms add: $work/dkms.log"
dkms build gdrdrv/2.6 || die "dkms build: $work/dkms.log"
dkms install gdrdrv/2.6 || die "dkms install: $work/dkms.log"
[ "$(modules)" = gdrdrv ] || die "dkms install: installed are: $(modules)"
dkms uninstall gdrdrv/2.6 && dkms unbuild gdrdrv/2.6 || die "dkms unbuild: $work/dkms.log"
[ -z "$(modules)" ] || die "dkms uninstall left $(modules)"

# `dkms autoinstall` runs after the installation of a kernel. It must build the GPU driver, here nvidia-current, before
# gdrdrv, although DKMS by itself builds in the order of the alphabet.
dkms add nvidia-current/580 || die "dkms add: $work/dkms.log"
dkms autoinstall || die "dkms autoinstall: $work/dkms.log"
[ "$(modules)" = "emugpu gdrdrv" ] || die "dkms autoinstall: installed are, in this order: $(modules)"
dkms remove gdrdrv/2.6 || die "dkms remove: $work/dkms.log"
[ "$(modules)" = emugpu ] || die "dkms remove: installed are: $(modules)"

# ---- Without DKMS ----

source=$work/dkms/src/gdrdrv-2.6
make --silent -C "$source" driver KVER="$release" KDIR="$kernel/headers" >"$work/make.log" 2>&1 || die "make driver: $work/make.log"
make --silent -C "$source" drv_install KVER="$release" DESTDIR="$work/stage"
files=$(cd "$work/stage" && find . -type f | sort | xargs)
expected="./lib/modules/$release/extra/gdrdrv.ko ./usr/lib/modprobe.d/gdrdrv.conf ./usr/lib/modules-load.d/gdrdrv.conf"
expected+=" ./usr/sbin/gdrdrv-load ./usr/share/man/man8/gdrdrv-load.8"
[ "$files" = "$expected" ] || die "drv_install installed $files"
make --silent -C "$source" drv_uninstall KVER="$release" DESTDIR="$work/stage"
[ -z "$(find "$work/stage" -type f)" ] || die "drv_uninstall left $(find "$work/stage" -type f)"

as_root rm -rf "$work"
echo "packaging: ok"
