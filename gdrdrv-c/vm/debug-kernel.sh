#!/usr/bin/env bash
# debug-kernel.sh DIRECTORY: builds Debian's Linux 6.1 with debug.config, into a directory like those of kernel.sh.
# Takes a quarter of an hour on two processors.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
directory=$1

"$root/scripts/ci/apt-install.sh" bc bison flex gcc make libelf-dev libssl-dev xz-utils >&2

mkdir -p "$directory"
cd "$directory"
apt-get download -qq linux-source-6.1 2>apt.log
dpkg-deb --extract linux-source-6.1_*.deb .
tar -xf usr/src/linux-source-6.1.tar.xz
rm -rf linux-source-6.1_*.deb usr

source=$directory/linux-source-6.1
make --silent -C "$source" tinyconfig >config.log 2>&1
(cd "$source" && scripts/kconfig/merge_config.sh -m .config "$here/debug.config" >>"$directory/config.log")
make --silent -C "$source" olddefconfig >>config.log 2>&1
# An option that depends on one that is not set is dropped silently.
while read -r option; do
    grep -qx "$option" "$source/.config" || { echo "debug-kernel.sh: dropped: $option" >&2 && exit 1; }
done < <(grep ^CONFIG_ "$here/debug.config")
make --silent -C "$source" -j"$(nproc)" bzImage modules
make --silent -C "$source" INSTALL_MOD_PATH="$directory" modules_install

make --silent -C "$source" kernelrelease >release
ln -s "$source/arch/x86/boot/bzImage" vmlinuz
ln -s "$source" headers
touch complete
