#!/usr/bin/env bash
# initramfs.sh KERNEL: packs what a kernel from kernel.sh needs until the host's files are mounted, and prints its path.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
kernel=$(realpath "$1")
release=$(cat "$kernel/release")
image=$kernel/initramfs.cpio

# For the host's files, the writable layer above them, and their transport.
drivers=(virtio_pci 9pnet_virtio 9p overlay)

if [ "$image" -nt "$here/init" ] && [ "$image" -nt "$kernel/complete" ] && [ "$image" -nt "$0" ]; then
    echo "$image"
    exit 0
fi

files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
mkdir -p "$files"/{bin,drivers,proc,sys,dev,job,host,written,root}
cp "$(command -v busybox)" "$files/bin/busybox"
cp "$here/init" "$files/init"
number=100
for driver in "${drivers[@]}"; do
    # In the order of their dependencies; built-in drivers have no file.
    for file in $(modprobe --dirname "$kernel" --set-version "$release" --show-depends "$driver" | sed -n 's/^insmod //p'); do
        name=$(basename "$file")
        ls "$files/drivers"/*-"$name" >/dev/null 2>&1 || cp "$file" "$files/drivers/$number-$name"
        number=$((number + 1))
    done
done
(cd "$files" && find . | cpio --quiet --create --format=newc --owner=0:0) >"$image"
echo "$image"
