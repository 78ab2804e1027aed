#!/usr/bin/env bash
# modules.sh KERNEL [BRANCH]: builds emugpu and gdrdrv for a folder of kernel.sh's, warnings being errors, and prints
# the folder that they are in. BRANCH is that of the GPU driver whose nv-p2p.h emugpu has (default: 580).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
source=$(dirname "$here")
kernel=$(realpath "$1")
branch=${2:-580}
out=$kernel/modules-$branch

# build NAME FOLDER [variable=value ...]: from a copy, so that the sources stay clean.
build() {
    local name=$1 folder=$2
    shift 2
    mkdir -p "$out/$name"
    # Files that have not changed keep their times: then nothing is built again.
    cp --update --preserve=timestamps "$folder"/*.[ch] "$folder/Kbuild" "$out/$name"
    make --silent -C "$kernel/headers" M="$out/$name" KCFLAGS="-Werror -DNV_P2P_BRANCH=$branch" CC=gcc CONFIG_DEBUG_INFO_BTF_MODULES= CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT= "$@" modules \
        >"$out/$name.log" 2>&1 || {
        cat "$out/$name.log" >&2
        exit 1
    }
}

build emugpu "$source/emugpu"
build gdrdrv "$source" NVIDIA_SRC_DIR="$out/emugpu" KBUILD_EXTRA_SYMBOLS="$out/emugpu/Module.symvers"
echo "$out"
