#!/usr/bin/env bash
# nvidia-stand-in.sh KERNEL: builds a gdrdrv that scripts take for NVIDIA's. It has a number in /proc/devices, no misc
# device, and no text that names gdrdrv-c. KERNEL is a directory that kernel.sh printed. Prints the path of the module.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
source=$root/build/gdrdrv-c/nvidia-stand-in

rm -rf "$source"
mkdir -p "$source"
cp --preserve=timestamps "$root"/gdrdrv-c/*.[ch] "$root/gdrdrv-c/Kbuild" "$source"
sed -i '/MODULE_INFO(gpu_driver/d; /"Implementation: /d' "$source/proc.c"
sed -i 's/err = misc_register/err = IS_ENABLED(CONFIG_64BIT) ? 0 : misc_register/' "$source/main.c"
sed -i 's/^\tmisc_deregister/\tif (!IS_ENABLED(CONFIG_64BIT))\n\t&/' "$source/main.c"
echo "$("$here/modules.sh" "$1" 580 open "$source")/gdrdrv/gdrdrv.ko"
