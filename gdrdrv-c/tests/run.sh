#!/usr/bin/env bash
# Runs the module's tests, as root, on a system with /dev/gdrdrv and /dev/emugpu; gdrdrv-c/vm/run.sh starts one:
#
#   make -C gdrdrv-c/tests && gdrdrv-c/vm/run.sh -- gdrdrv-c/tests/run.sh
#
# usage: run.sh ["program [argument ...]" ...]      (default: all)
# Prints one line per program. A program fails if it exits with an error, leaves a page table pinned, or the kernel logs
# a warning. Exit status 4: it has nothing to test here.
set -u

here=$(cd "$(dirname "$0")" && pwd)
out=$here/../../build/gdrdrv-c/tests
pinned=/proc/driver/gdrdrv/nv_get_pages_refcount
complaint='WARNING|BUG|Oops|Call Trace|general protection|refcount_t|KASAN|possible circular|freeing invalid memtype'

if [ ! -r "$pinned" ]; then
    echo "run.sh: no $pinned: load gdrdrv with dbg_enabled=1" >&2
    exit 2
fi
[ $# -gt 0 ] || set -- contract answers memory_types executable node pins limits sizes tokens \
    owners killed stale_maps reused_tables ignored_puts failed_puts races fuzz

passed=0
failed=0
skipped=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT
for program; do
    before=$(dmesg | grep -cE "$complaint")
    begin=$(date +%s)
    # shellcheck disable=SC2086 # Words.
    "$out/"$program >"$output" 2>&1
    status=$?
    seconds=$(($(date +%s) - begin))
    program=${program%% *}
    after=$(dmesg | grep -cE "$complaint")
    reason=
    [ "$status" -eq 0 ] || [ "$status" -eq 4 ] || reason="status $status"
    [ "$(cat "$pinned")" -eq 0 ] || reason="$reason, $(cat "$pinned") page tables still pinned"
    [ "$after" -eq "$before" ] || reason="$reason, the kernel complained"
    if [ -z "$reason" ] && [ "$status" -eq 4 ]; then
        skipped=$((skipped + 1))
        printf 'skipped %-14s        %s\n' "$program" "$(sed -n 's/^skipped: //p' "$output")"
    elif [ -z "$reason" ]; then
        passed=$((passed + 1))
        printf 'ok      %-14s %3d s  %s\n' "$program" "$seconds" "$(grep -v '^ok ' "$output" | tail -n 1)"
    else
        failed=$((failed + 1))
        printf 'FAILED  %-14s %3d s  %s\n' "$program" "$seconds" "${reason#, }"
        sed 's/^/        /' "$output"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
