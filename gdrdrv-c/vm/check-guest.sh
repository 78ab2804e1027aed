#!/usr/bin/env bash
# Runs the project's tests with the guest's gdrdrv, and prints TAP. check.sh builds everything and calls this in the guest.
#
# usage: check-guest.sh persistent|traditional GDREMU LIB [MODEL]
#   GDREMU   the program gdremu      LIB     directory of libgdrapi.so.2
#   MODEL    the test program `emulated`
set -u

mode=$1 gdremu=$2 lib=$3 model=${4-}
root=$(cd "$(dirname "$0")/../.." && pwd)
limit=300

# The model-based test makes MODEL_CALLS calls. C tests repeat their loops a hundredth as often as elsewhere.
export MODEL_CALLS=${MODEL_CALLS:-5000} CHECK_SLOWNESS=100
# Some programs load the library by the name libgdrapi.so, which LIB may lack. This link provides it.
names=$(mktemp -d)
ln -s "$lib/libgdrapi.so.2" "$names/libgdrapi.so"
export GDRAPI_LIB=$lib LD_LIBRARY_PATH=$lib:$names
GDREMU_OPTIONS_OF_TEST="--provider emugpu $([ "$mode" = persistent ] || echo --traditional)"
export GDREMU_OPTIONS_OF_TEST

# shellcheck source=gdrdrv-c/tests/tap.sh
. "$root/gdrdrv-c/tests/tap.sh"

tap_note() {
    sed -n 's/^Total: //p; s/^model: \([0-9]* calls\).*/\1/p' "$1"
}

emulated() {
    tap_test "$1" timeout $limit "$gdremu" --provider emugpu -- "${@:2}"
}

tap_begin
for program in "$root"/build/c_tests/plain/*; do
    name=$(basename "$program")
    case $name in
    header_* | open_fails | libcuda_load | nv_p2p_dummy | dmabuf*) ;; # these do not use gdrdrv
    *) emulated "$name" "$program" ;;
    esac
done
emulated contract "$root/build/gdrdrv-c/tests/contract"
emulated gdrcopy_sanity "$root/build/c_tests/gdrcopy_sanity"
[ -z "$model" ] || TEST_UNDER_GDREMU=emulated::model::behaves_as_the_model emulated model "$model"
tap_end
