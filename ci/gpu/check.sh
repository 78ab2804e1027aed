#!/usr/bin/env bash
# ci/gpu/check.sh [BUNDLE]: runs tests on this machine's NVIDIA GPU, under gdremu's nvidia provider, without gdrdrv.
# BUNDLE is a directory that `make gpu-bundle` made, here or on another machine (default: build/gpu). The script
# needs no compiler. At the end it prints a table. It takes some minutes on one core, GPU_CHECK_CORE (default: 4, or the last if
# there are fewer).
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
bundle=$(cd "${1:-$root/build/gpu}" && pwd) || exit 2
logs=$root/build/gpu-check
gdremu=("$bundle/gdremu" --provider nvidia)
watched=("$bundle/watched" "${gdremu[@]}")
leak=66 # gdremu exits with this status if a program leaves pins.

die() {
    echo "gpu-check: $*" >&2
    exit 2
}

[ -e /dev/nvidiactl ] || die "this machine has no NVIDIA GPU with its driver (/dev/nvidiactl)"
[ -x "$bundle/gdremu" ] || die "no gdremu in $bundle: run \`make gpu-bundle\`"

last=$(($(nproc --all) - 1))
core=${GPU_CHECK_CORE:-$((last < 4 ? last : 4))}
taskset -cp "$core" $$ >/dev/null || die "core $core cannot be used"

export LD_LIBRARY_PATH="$bundle${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
mkdir -p "$logs"
table=()
failed=0

# check NAME COMMAND...: runs a test, prints the end of its output, and adds a row to the table.
check() {
    local name=$1 log="$logs/${1//[ ,]/_}.log" begin=$SECONDS status=0 word=ok
    shift
    printf -- '\n---- %s\n' "$name"
    "$@" 2>&1 | tee "$log" | tail -n 60
    status=${PIPESTATUS[0]}
    case $status in
    0) ;;
    "$leak") word=LEAK ;;
    124) word=HANGS ;;
    *) word="FAILED $status" ;;
    esac
    [ "$status" -eq 0 ] || failed=1
    table+=("$(printf '%-32s %-12s %4d s' "$name" "$word" $((SECONDS - begin)))")
}

# `watched` ends programs that hang. c_programs and tools.sh, which run after the demo, end hanging programs by themselves.
check "memory" "${watched[@]}" --leak-exit $leak -- "$bundle/gpu_memory"
check "memory, traditional" "${watched[@]}" --leak-exit $leak --traditional -- "$bundle/gpu_memory"
check "contract" "${watched[@]}" -- "$bundle/contract"
check "contract, traditional" "${watched[@]}" --traditional -- "$bundle/contract"
for example in flags doorbells{,_cxx}; do
    check "$example" "${watched[@]}" --leak-exit $leak -- "$bundle/$example"
done
check "demo" "${watched[@]}" --leak-exit $leak -- "$bundle/demo"
cd "$root" || exit 2
check "C tests" env GDRCOPY_TEST_BUNDLE="$bundle" GDRCOPY_TEST_PROVIDER=nvidia "$bundle/c_programs" \
    linked::default::,linked::traditional::,sanity::default::,sanity::traditional::
check "tools" env GPU_CHECK_CORE="$core" "$root/ci/gpu/tools.sh" "$logs/tools" "$bundle"

printf '\n%s\n' "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1), core $core"
printf '%s\n' "${table[@]}"
exit $failed
