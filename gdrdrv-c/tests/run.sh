#!/usr/bin/env bash
# Runs the module's tests, as root, on a system with /dev/gdrdrv and /dev/emugpu. gdrdrv-c/vm/run.sh starts such a system:
#
#   make -C gdrdrv-c/tests && gdrdrv-c/vm/run.sh -- gdrdrv-c/tests/run.sh
#
# usage: run.sh ["program [argument ...]" ...]      (default: all programs)
# Prints TAP (tap.sh). The exit status, as in kselftest, is 0 if none failed, 1 if one failed, 4 if all were skipped.
set -u

here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../build/gdrdrv-c/tests
# shellcheck source=gdrdrv-c/tests/tap.sh
. "$here/tap.sh"

# answers runs first: it tests that failed pins do not keep the module loaded, and a successful pin may keep it loaded.
[ $# -gt 0 ] || set -- answers contract memory_types huge_pages pins tracepoints limits tokens owners killed ignored_puts \
    failed_puts removed waits stale_maps reused_tables races fuzz

tap_begin $#
for program; do
    # shellcheck disable=SC2086 # $program is a program and its arguments.
    tap_test "$program" "$out/"$program
done
tap_end
