#!/usr/bin/env bash
# modules.sh KERNEL [BRANCH [LICENSE [SOURCE]]]: builds emugpu and gdrdrv with -Werror for a directory that kernel.sh
# printed, and prints the directory of the modules.
#
#   BRANCH    branch of the GPU driver whose nv-p2p.h emugpu has (default: 580)
#   LICENSE   open (default) or proprietary: emugpu has the license "NVIDIA", and gdrdrv must not use GPL-only symbols
#   SOURCE    directory of another gdrdrv (mutants.sh)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
kernel=$(realpath "$1")
branch=${2:-580}
license=${3:-open}
source=${4:-$(dirname "$here")}
out=$kernel/modules-$branch-$license
[ $# -lt 4 ] || out=$out-$(basename "$source")

# The kernel headers contain build tools that run on the host, even if the kernel is for another architecture. So a
# cross-build needs only these variables.
case $kernel in
*-arm64) cross="ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-" ;;
*-ppc64el) cross="ARCH=powerpc CROSS_COMPILE=powerpc64le-linux-gnu-" ;;
*) cross= ;;
esac
tools=${cross##*=}

# build NAME DIRECTORY [variable=value ...]: builds a module from a copy, so that the sources stay clean.
build() {
    local name=$1 directory=$2
    shift 2
    mkdir -p "$out/$name"
    # Unchanged files keep their times, so that they are not rebuilt.
    cp --update --preserve=timestamps "$directory"/*.[ch] "$directory/Kbuild" "$out/$name"
    [ "$name$license" != emugpuproprietary ] || sed -i 's|"Dual MIT/GPL"|"NVIDIA"|' "$out/$name"/*.c
    # emugpu drives a device of QEMU (vendor 0x1af4) with at most 1 GiB. So here, gdrdrv treats requests of more than 32 MiB as
    # large ones, and not only those of more than 1 GiB.
    # Newer kernels were built by a newer compiler. CC_HAS_... switches off an option that only that compiler has.
    # shellcheck disable=SC2086 # These are several words.
    make --silent -j"$(nproc)" -C "$kernel/headers" M="$out/$name" KCFLAGS="-Werror -DNV_P2P_BRANCH=$branch -DGDR_GPU_VENDOR=0x1af4 -DGDR_LARGE_REQUEST=0x2000000" $cross CC="${tools}gcc" \
        CONFIG_DEBUG_INFO_BTF_MODULES= CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT= "$@" modules >"$out/$name.log" 2>&1 || {
        cat "$out/$name.log" >&2
        exit 1
    }
}

# KCSAN must watch gdrdrv's accesses, but not emugpu's. In emugpu, as in the kernel (debug-kernel.sh), it sees only barriers.
build emugpu "$(dirname "$here")/emugpu" KCSAN_SANITIZE=n KCSAN_INSTRUMENT_BARRIERS=y
build gdrdrv "$source" NVIDIA_SRC_DIR="$out/emugpu" KBUILD_EXTRA_SYMBOLS="$out/emugpu/Module.symvers"

# Since Linux 5.9, a module that uses a proprietary module cannot use GPL-only symbols.
if [ "$license" = proprietary ]; then
    forbidden=$(awk '$4 == "EXPORT_SYMBOL_GPL" { print $2 }' "$kernel/headers/Module.symvers" |
        grep -Fx -f <("${tools}nm" -u "$out/gdrdrv/gdrdrv.ko" | awk '{ print $2 }') || true)
    [ -z "$forbidden" ] || { echo "modules.sh: gdrdrv uses GPL-only symbols:" $forbidden >&2 && exit 1; }
fi
echo "$out"
