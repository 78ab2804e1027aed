#!/usr/bin/env bash
# debug-kernel.sh debug|kcsan DIRECTORY: builds Debian's Linux 6.1 with guest.config, and with debug.config or kcsan.config,
# into a directory like those of kernel.sh. This takes a quarter of an hour on two processors.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
configs=("$here/guest.config" "$here/$1.config")
directory=$2
options=()
# KCSAN (Linux's detector of data races) must not watch accesses of the kernel itself. The kernel's data races are not this
# project's, and watching them leaves less time for gdrdrv's accesses. In the kernel's code, KCSAN must see only barriers.
[ "$1" != kcsan ] || options=(CFLAGS_KCSAN=-D__KCSAN_INSTRUMENT_BARRIERS__)

"$root/ci/scripts/apt-install.sh" bc bison flex gcc make libelf-dev libssl-dev >&2

source=$directory/source
"$here/source.sh" "$source"
cd "$directory"
make --silent -C "$source" tinyconfig >config.log 2>&1
(cd "$source" && scripts/kconfig/merge_config.sh -m .config "${configs[@]}" >>"$directory/config.log")
make --silent -C "$source" olddefconfig >>config.log 2>&1
# `make olddefconfig` silently drops an option that depends on one that is not set. Then this script fails.
while read -r option; do
    grep -qx "$option" "$source/.config" || { echo "debug-kernel.sh: dropped: $option" >&2 && exit 1; }
done < <(grep -h ^CONFIG_ "${configs[@]}")
make --silent -C "$source" -j"$(nproc)" "${options[@]}" bzImage modules
make --silent -C "$source" INSTALL_MOD_PATH="$directory" modules_install

make --silent -C "$source" kernelrelease >release
ln -s "$source/arch/x86/boot/bzImage" vmlinuz
ln -s "$source" headers
touch complete
