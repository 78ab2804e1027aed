#!/usr/bin/env bash
# Runs the module's tests, as root, on a system with /dev/gdrdrv and /dev/emugpu; gdrdrv-c/vm/run.sh starts one:
#
#   make -C gdrdrv-c/tests && gdrdrv-c/vm/run.sh -- gdrdrv-c/tests/run.sh
#
# usage: run.sh ["program [argument ...]" ...]      (default: all)
# Prints TAP (tap.sh). Exit status, as in kselftest: 0 passed, 1 failed, 4 skipped.
set -u

here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../build/gdrdrv-c/tests
# shellcheck source=gdrdrv-c/tests/tap.sh
. "$here/tap.sh"

[ $# -gt 0 ] || set -- answers stale_handles mappings memory_types executable node pins limits sizes tokens \
    owners killed stale_maps reused_tables ignored_puts failed_puts races fuzz
tap_begin $#
for program; do
    # shellcheck disable=SC2086 # Words.
    tap_test "$program" "$out/"$program
done
tap_end
