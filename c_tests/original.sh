#!/usr/bin/env bash
# Runs the original project's test programs, where a user has them installed, with this library, and prints a table.
set -euo pipefail

machines=(persistent traditional 2.0 2.3 2.4 2.5 cached device defects high-handles dma-buf)
programs=(gdrcopy_sanity gdrcopy_copybw gdrcopy_copylat gdrcopy_apiperf gdrcopy_pplat)

usage() {
    cat <<END
usage: c_tests/original.sh [options] DIR [program ...]

Runs the original's programs that are in DIR, or those named, with this libgdrapi in place of theirs, on every machine
that gdremu emulates. Exit status 1 if one of them failed, 2 if there is nothing to run.

  --lib LIB           take libgdrapi.so.2 from the folder LIB (default: build/lib, which \`make lib\` fills)
  --machines LIST     of these, separated by commas (default: all):
                      $(printf '%s ' "${machines[@]}")
  --real              run on this machine's GPU and driver instead
  -h, --help          this text

Programs: ${programs[*]}

In the table: ok, or FAILED and the exit status (128 + N: ended by signal N), with the numbers of tests that passed,
failed and were waived, where the program counts them; "no kernels": it launches a GPU kernel, which gdremu cannot run;
"-": not in DIR. Outputs are left in build/c_tests/logs/original.
END
}

die() {
    echo "c_tests/original.sh: $*" >&2
    exit 2
}

# emulation MACHINE: gdremu's options.
emulation() {
    case $1 in
    persistent) ;;
    traditional) echo --traditional ;;
    2.*) echo --driver-version "$1" ;;
    cached | device) echo --platform "$1" ;;
    defects) echo --stale-handle-bug ;;
    high-handles) echo --handle-base 0x123456789 ;;
    dma-buf) echo --no-gdrdrv --cuda-version 13.3 ;;
    *) die "there is no machine $1" ;;
    esac
}

# arguments PROGRAM: few iterations and little memory; the answers count here, not the times.
arguments() {
    case $1 in
    gdrcopy_copybw) echo -w 100 -r 10 ;;
    gdrcopy_copylat) echo -s 1048576 -w 10 -r 10 ;;
    gdrcopy_apiperf) echo -s 1048576 -n 10 -w 2 ;;
    gdrcopy_pplat) echo -t 100 ;;
    esac
}

root=$(cd "$(dirname "$0")/.." && pwd)
emulator=${CARGO_TARGET_DIR:-$root/target}/release/gdremu
logs=$root/build/c_tests/logs/original
lib=$root/build/lib
real=no
folder=
chosen=()

while [ $# -gt 0 ]; do
    case $1 in
    --lib) lib=$2 && shift 2 ;;
    --machines) IFS=, read -ra machines <<<"$2" && shift 2 ;;
    --real) real=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *)
        if [ -z "$folder" ]; then folder=$1; else chosen+=("$1"); fi
        shift
        ;;
    esac
done
[ -n "$folder" ] || { usage >&2 && exit 2; }
[ -d "$folder" ] || die "$folder is not a folder"
[ -e "$lib/libgdrapi.so.2" ] || die "no libgdrapi.so.2 in $lib: run \`make lib\` first, or name another place with --lib"
[ "$real" = yes ] || [ -x "$emulator" ] || die "$emulator is missing: run \`make emulator\` first, or give --real"
folder=$(cd "$folder" && pwd)
lib=$(cd "$lib" && pwd)
[ "$real" = no ] || machines=(real)
if [ ${#chosen[@]} -eq 0 ]; then
    chosen=("${programs[@]}")
fi
for machine in "${machines[@]}"; do
    [ "$machine" = real ] || emulation "$machine" >/dev/null
done

# run_on MACHINE PROGRAM: its output and exit status. The library is preloaded as well: a program may have been built
# with the path of another one in it.
run_on() {
    local machine=$1 program=$2 command=()
    # shellcheck disable=SC2046 # The options and arguments are words.
    [ "$machine" = real ] || command=("$emulator" $(emulation "$machine") --)
    env LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LD_PRELOAD="$lib/libgdrapi.so.2" \
        "$root/build/c_tests/watched" ${command[@]+"${command[@]}"} "$folder/$program" $(arguments "$program")
}

# counts LOG: what gdrcopy_sanity's summary says.
counts() {
    sed -n 's/^Total: [0-9]*, Passed: \([0-9]*\), Failed: \([0-9]*\), Waived: \([0-9]*\).*/ (\1, \2, \3)/p' "$1" | tail -n 1
}

failures=()

# verdict MACHINE PROGRAM: sets `word` for the table.
verdict() {
    local log=$logs/$1/$2.log status=0
    word=-
    [ -x "$folder/$2" ] || return 0
    if [ "$2" = gdrcopy_pplat ] && [ "$1" != real ]; then
        word='no kernels'
        return 0
    fi
    mkdir -p "$(dirname "$log")"
    run_on "$1" "$2" >"$log" 2>&1 </dev/null || status=$?
    case $status in
    0) word=ok$(counts "$log") ;;
    124) word=HANGS ;;
    *) word="FAILED $status$(counts "$log")" ;;
    esac
    [ $status -eq 0 ] || failures+=("$log")
}

found=0
for program in "${chosen[@]}"; do
    [ ! -x "$folder/$program" ] || found=1
done
make --no-print-directory --silent -C "$root" build/c_tests/watched
[ $found -eq 1 ] || die "none of ${chosen[*]} is in $folder"

printf '%-14s' machine
printf '%-23s' "${chosen[@]}"
echo
for machine in "${machines[@]}"; do
    printf '%-14s' "$machine"
    for program in "${chosen[@]}"; do
        verdict "$machine" "$program"
        printf '%-23s' "$word"
    done
    echo
done

for log in ${failures[@]+"${failures[@]}"}; do
    printf -- '\n---- %s\n' "${log#"$root"/}"
    tail -n 40 "$log"
done
[ ${#failures[@]} -eq 0 ]
