#!/usr/bin/env bash
# check-modes.sh MODULES: in a virtual machine that has loaded neither emugpu nor gdrdrv (run.sh --no-modules), loads
# gdrdrv with values of `mode` that it must refuse or accept.
#
#   MODULES   directory that modules.sh printed
set -euo pipefail

modules=$1

die() {
    echo "check-modes.sh: $*" >&2
    exit 1
}

insmod "$modules/emugpu/emugpu.ko"
for mode in 0 0006 0606 0644 0664 0777 01666 07660; do
    ! insmod "$modules/gdrdrv/gdrdrv.ko" mode=$mode 2>/dev/null || die "mode=$mode is taken"
done
dmesg | grep -q 'gdrdrv: mode=01666 is not valid: write 0600, 0660 or 0666' || die "no word about mode=01666"
for mode in 600 660 666; do
    insmod "$modules/gdrdrv/gdrdrv.ko" mode=0$mode
    [ "$(stat -c %a /dev/gdrdrv)" = $mode ] || die "mode=0$mode gives $(stat -c %a /dev/gdrdrv)"
    rmmod gdrdrv
done
echo "# 1 passed, 0 failed, 0 skipped"
