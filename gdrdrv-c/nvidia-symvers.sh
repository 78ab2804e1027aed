#!/bin/sh
# nvidia-symvers.sh KERNEL | FILE: prints the versions of the symbols nvidia_p2p_* that the GPU driver exports, in the format
# of Module.symvers. The GPU driver is the one installed for the kernel, or the module in the file.
set -eu

case $1 in
*.ko*) module=$1 ;;
*) module=$(modinfo -k "$1" -F filename symbol:nvidia_p2p_get_pages 2>/dev/null | head -n 1) ;;
esac
[ -n "$module" ] || exit 1

plain=$(mktemp)
trap 'rm -f "$plain"' EXIT
case $module in
*.xz) xz -dc "$module" ;;
*.zst) zstd -dc "$module" ;;
*.gz) gzip -dc "$module" ;;
*) cat "$module" ;;
esac >"$plain"

# Reads the value, section and name of each symbol with a version. In modules for Linux before 5.19, the value is the
# version. In later ones, the value is the offset of the version in the section.
objdump -t "$plain" | awk '$NF ~ /^__crc_nvidia_p2p_/ { print $1, $(NF - 2), $NF }' |
    while read -r value section name; do
        case $section in
        '*ABS*') version=$(printf %s "$value" | tail -c 8) ;;
        *)
            version=$(objcopy -O binary --only-section="$section" "$plain" /dev/stdout |
                od -A n -t x4 -j "$((0x$value))" -N 4 | tr -d ' ')
            ;;
        esac
        printf '0x%s\t%s\tnvidia\tEXPORT_SYMBOL\t\n' "$version" "${name#__crc_}"
    done
