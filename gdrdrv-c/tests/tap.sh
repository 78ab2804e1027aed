# shellcheck shell=bash
# Scripts source this file, which runs test programs with the loaded gdrdrv and prints the results in TAP version 13.
# A program fails if its exit status is neither 0 nor skip_status, if it leaves a page table pinned, or if the kernel
# logs a warning.

skip_status=4 # as in kselftest, a program that cannot run its tests exits with this status
pinned=/proc/driver/gdrdrv/nv_get_pages_refcount
complaint='WARNING|BUG|Oops|Call Trace|general protection|refcount_t|KASAN|KCSAN|possible circular|freeing invalid memtype'
number=0
passed=0
failed=0
skipped=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# tap_begin [NUMBER]: begins the output, with the number of tests if it is known. Exits if nothing can be tested.
tap_begin() {
    echo "TAP version 13"
    [ -r "$pinned" ] || { echo "1..0 # SKIP no $pinned: load gdrdrv with dbg_enabled=1" && exit 4; }
    planned=${1:-0}
    [ "$planned" -eq 0 ] || echo "1..$planned"
}

# tap_test NAME COMMAND ...: runs a test, and prints its result.
tap_test() {
    local name=$1 status=0 reasons=() before begin seconds note
    shift
    number=$((number + 1))
    before=$(dmesg | grep -cE "$complaint")
    begin=$(date +%s)
    "$@" >"$output" 2>&1 || status=$?
    seconds=$(($(date +%s) - begin))
    [ $status -eq 0 ] || [ $status -eq $skip_status ] || reasons+=("status $status")
    [ "$(cat "$pinned")" -eq 0 ] || reasons+=("left pinned: $(cat "$pinned")")
    [ "$(dmesg | grep -cE "$complaint")" -eq "$before" ] || reasons+=("the kernel complained")
    if [ ${#reasons[@]} -gt 0 ]; then
        failed=$((failed + 1))
        printf 'not ok %d - %s\n' $number "$name"
        printf '# %s\n' "${reasons[@]}" "$seconds s"
        tail -n 60 "$output" | sed 's/^/#   /'
    elif [ $status -eq $skip_status ]; then
        skipped=$((skipped + 1))
        printf 'ok %d - %s # SKIP %s\n' $number "$name" "$(tail -n 1 "$output" | sed 's/^[^:]*: //')"
    else
        passed=$((passed + 1))
        note=$(tap_note "$output")
        printf 'ok %d - %s # %d s%s\n' $number "$name" $seconds "${note:+, $note}"
    fi
}

# tap_note FILE: prints the last note in the output of a program that passed. tap_test appends this note to its "ok" line.
tap_note() {
    grep -v '^ok ' "$1" | tail -n 1 | sed 's/^# //'
}

# tap_end: prints the totals, and exits with the status that kselftest expects.
tap_end() {
    [ "$planned" -gt 0 ] || echo "1..$number"
    echo "# $passed passed, $failed failed, $skipped skipped"
    [ $failed -eq 0 ] || exit 1
    [ $passed -gt 0 ] || exit 4
    exit 0
}
