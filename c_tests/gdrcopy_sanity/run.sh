#!/usr/bin/env bash
# Runs gdrcopy_sanity on every kind of machine that gdremu emulates, and prints a table.
set -euo pipefail

usage() {
    cat <<END
usage: c_tests/gdrcopy_sanity/run.sh [options] [machine ...]

Runs gdrcopy_sanity on the named machines, or on all. Exit status 1 if a test failed or a pin was left behind.

  --lib DIR    take libgdrapi.so.2 from DIR (default: build/lib, which \`make lib\` fills)
  --extended   the extended tests too
  --real       run on this machine's GPU and driver instead of under gdremu
  -h, --help   this text

Machines: $(printf '%s ' "${machines[@]}")
END
}

root=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
emulator=$target/release/gdremu
program=$root/build/c_tests/gdrcopy_sanity
logs=$root/build/c_tests/logs/gdrcopy_sanity

machines=(persistent traditional 2.0 2.3 2.4 2.5 cached cached-traditional device no-force-pcie defects high-handles
    dma-buf dma-buf-coherent)

# emulation MACHINE: gdremu's options.
emulation() {
    case $1 in
    persistent) ;;
    traditional) echo --traditional ;;
    2.4) echo --driver-version 2.4 --strict-sizes ;;
    2.*) echo --driver-version "$1" ;;
    cached | device) echo --platform "$1" ;;
    cached-traditional) echo --platform cached --traditional ;;
    no-force-pcie) echo --platform cached --force-pcie no ;;
    defects) echo --stale-handle-bug ;;
    high-handles) echo --handle-base 0x123456789 ;;
    dma-buf) echo --no-gdrdrv --cuda-version 13.3 ;;
    dma-buf-coherent) echo --no-gdrdrv --cuda-version 13.3 --coherent ;;
    *) die "there is no machine $1" ;;
    esac
}

die() {
    echo "gdrcopy_sanity/run.sh: $*" >&2
    exit 2
}

lib=$root/build/lib
extended=()
real=no
chosen=()
while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$(cd "$2" && pwd) && shift 2 ;;
    --extended) extended=(-e) && shift ;;
    --real) real=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) chosen+=("$1") && shift ;;
    esac
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${machines[@]}")
[ "$real" = no ] || chosen=(real)

make --no-print-directory --silent -C "$root" -f c_tests/gdrcopy_sanity/sanity.mk SANITY_LIBGDRAPI="$lib/libgdrapi.so.2"
mkdir -p "$logs"
export LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# gdremu's exit status where a test left a pin behind.
leak=66

# run_on MACHINE LEAKS ARGUMENT ...: runs the program; LEAKS is gdremu's option for pins that it left behind, if any.
run_on() {
    local machine=$1 leaks=$2
    shift 2
    if [ "$machine" = real ]; then
        "$program" "$@"
    else
        # shellcheck disable=SC2046,SC2086 # The options are words.
        "$emulator" $leaks $(emulation "$machine") -- "$program" "$@"
    fi
}

# names OPTION PATTERN: "-t NAME" for each test that grep finds.
names() {
    run_on "${chosen[0]}" '' -l ${extended[@]+"${extended[@]}"} | grep "$@" | sed 's/^/-t /'
}

# The tests of leakage end processes in the middle of a pin: there pins are left behind on purpose.
# shellcheck disable=SC2207 # Words.
tidy=($(names -v ^leakage_)) untidy=($(names -e ^leakage_))

# count WORD LOG: the sum of that count over the summaries in the log.
count() {
    sed -n "s/^Total: .*$1: \([0-9]*\).*/\1/p" "$2" | awk '{ sum += $1 } END { print sum + 0 }'
}

logs_of_all=()
failures=()
printf '%-20s%-9s%-9s%-9s\n' machine passed failed waived
for machine in "${chosen[@]}"; do
    log=$logs/$machine.log status=0 note=
    logs_of_all+=("$log")
    run_on "$machine" "--leak-exit $leak" "${tidy[@]}" >"$log" 2>&1 || status=$?
    run_on "$machine" '' "${untidy[@]}" >"$log.untidy" 2>&1 || status=$?
    grep -v '^gdremu: leak' "$log.untidy" >>"$log"
    rm "$log.untidy"
    case $status in
    0) ;;
    1) failures+=("$log") ;;
    "$leak") failures+=("$log") note=LEAK ;;
    *) failures+=("$log") note="exit status $status" ;;
    esac
    printf '%-20s%-9s%-9s%-9s%s\n' "$machine" "$(count Passed "$log")" "$(count Failed "$log")" "$(count Waived "$log")" "$note"
done

for log in ${failures[@]+"${failures[@]}"}; do
    printf -- '---- %s\n' "${log#"$root"/}"
    cat "$log"
done

printf '\nWaived, on how many machines and why:\n'
sed -n 's/^waived //p' "${logs_of_all[@]}" | sort | uniq -c
[ ${#failures[@]} -eq 0 ]
