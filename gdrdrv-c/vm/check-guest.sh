#!/usr/bin/env bash
# Runs the project's tests over the kernel's gdrdrv, in the guest, and prints TAP. check.sh calls it, and has built everything.
#
# usage: check-guest.sh persistent|traditional GDREMU LIB MODEL
#   GDREMU   the program             LIB     directory of libgdrapi.so.2
#   MODEL    the test program `emulated`
set -u

mode=$1 gdremu=$2 lib=$3 model=$4
root=$(cd "$(dirname "$0")/../.." && pwd)
objects=$root/build/tools/lib/gdrcopy
limit=300

# Calls of the model-based test; loops of the C tests, a hundredth of what they are elsewhere.
export MODEL_CALLS=${MODEL_CALLS:-5000} CHECK_SLOWNESS=100
# Some programs load libgdrapi.so, which a directory of another library may lack.
names=$(mktemp -d)
ln -s "$lib/libgdrapi.so.2" "$names/libgdrapi.so"
export GDRAPI_LIB=$lib LD_LIBRARY_PATH=$lib:$names
GDREMU_OPTIONS_OF_TEST="--provider emugpu $([ "$mode" = persistent ] || echo --traditional)"
export GDREMU_OPTIONS_OF_TEST

# shellcheck source=gdrdrv-c/tests/tap.sh
. "$root/gdrdrv-c/tests/tap.sh"

tap_note() {
    sed -n 's/^Total: //p; s/.* model: \([0-9]* calls\).*/\1/p' "$1"
}

emulated() {
    tap_test "$1" timeout $limit "$gdremu" --provider emugpu -- "${@:2}"
}

# Doctor reads the module's list of pins.
doctor() {
    local holder gdrcopy gpu
    gdrcopy=$(dirname "$gdremu")/gdrcopy
    mkfifo "$names/input"
    "$root/build/gdrdrv-c/tests/pins" hold <"$names/input" >"$names/held" &
    holder=$!
    exec 7>"$names/input"
    until grep held "$names/held"; do
        kill -0 $holder || return 1
        sleep 0.1
    done
    "$gdrcopy" doctor >"$names/report" # its status is about this system, which has no GPU
    exec 7>&-
    wait $holder && cat "$names/report"
    gpu=GPU-656d756c-6174-6564-2047-5055200123fe
    grep -q "$gpu: 192 KiB of uid 0" "$names/report" &&
        grep -q "$holder (pins), uid 0, $gpu: 2 pins of 192 KiB, 128 KiB mapped" "$names/report"
}

tap_begin
tap_test doctor doctor
for program in "$root"/build/c_tests/plain/*; do
    name=$(basename "$program")
    case $name in
    header_* | open_fails | libcuda_load | nv_p2p_dummy | dmabuf*) ;; # they test systems without gdrdrv, or no system
    checkpoint)
        GDRCHECKPOINT_LIBRARY=$lib/libgdrapi.so.2 LD_PRELOAD=$objects/libgdrcopy_checkpoint.so:$objects/libgdrcopy_checkpoint_alias.so \
            emulated "$name" "$program"
        ;;
    *) emulated "$name" "$program" ;;
    esac
done
emulated contract "$root/build/gdrdrv-c/tests/contract"
emulated gdrcopy_sanity "$root/build/c_tests/gdrcopy_sanity"
emulated model "$model" --ignored --nocapture --test-threads=1 model::
tap_end
