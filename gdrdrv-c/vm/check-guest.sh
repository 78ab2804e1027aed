#!/usr/bin/env bash
# Runs the project's tests over the kernel's gdrdrv, in the guest: prints one line per test, and a last one with the counts.
# check.sh calls it, and has built everything.
#
# usage: check-guest.sh persistent|traditional GDREMU LIB MODEL
#   GDREMU   the program             LIB     directory of libgdrapi.so.2
#   MODEL    the test program `emulated`
set -u

mode=$1 gdremu=$2 lib=$3 model=$4
root=$(cd "$(dirname "$0")/../.." && pwd)
refcount=/proc/driver/gdrdrv/nv_get_pages_refcount
limit=300

# Calls of the model-based test; loops of the C tests, a hundredth of what they are elsewhere.
export MODEL_CALLS=${MODEL_CALLS:-5000} CHECK_SLOWNESS=100
# Some programs load libgdrapi.so, which a directory of another library may lack.
names=$(mktemp -d)
ln -s "$lib/libgdrapi.so.2" "$names/libgdrapi.so"
export GDRAPI_LIB=$lib LD_LIBRARY_PATH=$lib:$names
GDREMU_OPTIONS_OF_TEST="--provider emugpu $([ "$mode" = persistent ] || echo --traditional)"
export GDREMU_OPTIONS_OF_TEST

passed=0
failed=0
waived=0
output=$(mktemp)

# line NAME WORD NOTE
line() {
    printf '%-31s%-8s%4d s  %s\n' "$1" "$2" $(($(date +%s) - begin)) "$3"
}

# run NAME COMMAND ...: passes if it ends with 0 and leaves nothing pinned; status 2 is waived.
run() {
    local name=$1 status=0 pinned
    shift
    begin=$(date +%s)
    timeout $limit "$@" >"$output" 2>&1 || status=$?
    pinned=$(cat $refcount)
    if [ "$pinned" -ne 0 ]; then
        line "$name" FAILED "left pinned: $pinned"
    elif [ $status -eq 0 ]; then
        passed=$((passed + 1))
        line "$name" ok "$(sed -n 's/^Total: //p; s/.* model: \([0-9]* calls\).*/\1/p' "$output")"
        return
    elif [ $status -eq 2 ]; then
        waived=$((waived + 1))
        line "$name" waived "$(sed -n "s/^waived $name: //p" "$output")"
        return
    else
        line "$name" FAILED "status $status"
    fi
    failed=$((failed + 1))
    sed 's/^/    /' "$output" | tail -n 60
}

emulated() {
    run "$1" "$gdremu" --provider emugpu -- "${@:2}"
}

for program in "$root"/build/c_tests/plain/*; do
    name=$(basename "$program")
    case $name in
    header_* | open_fails | libcuda_load | nv_p2p_dummy | dmabuf*) ;; # they test systems without gdrdrv, or no system
    *) emulated "$name" "$program" ;;
    esac
done
emulated contract "$root/build/gdrdrv-c/tests/contract"
emulated gdrcopy_sanity "$root/build/c_tests/gdrcopy_sanity"
emulated model "$model" --ignored --nocapture --test-threads=1 model::

rm "$output"
echo "$passed passed, $failed failed, $waived waived"
[ $failed -eq 0 ]
