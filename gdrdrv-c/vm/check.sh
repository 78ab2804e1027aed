#!/usr/bin/env bash
# Runs the project's tests and gdrdrv-c's over gdrdrv-c in a Debian kernel, with persistent pins and without.
set -euo pipefail

usage() {
    cat <<END
usage: gdrdrv-c/vm/check.sh [--kernel 6.1|6.12|debug]

Two to four machines at a time, with two processors each. The last line is "N passed, N failed"; exit status 1 if any failed.
\`make lib emulator\` comes first.

  --kernel SERIES   see run.sh (default: 6.1)
  -h, --help        this text
END
}

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
lib=$root/build/lib
gdremu=$target/release/gdremu
logs=$root/build/gdrdrv-c/logs

series=6.1
while [ $# -gt 0 ]; do
    case $1 in
    --kernel) series=$2 && shift 2 ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
    esac
done

for needed in "$lib/libgdrapi.so.2" "$gdremu"; do
    [ -e "$needed" ] || { echo "check.sh: no $needed: run \`make lib emulator\` first" >&2 && exit 2; }
done

# ---- Building ----

echo "Building the tests"
make --no-print-directory --silent -C "$root" -f c_tests/programs.mk plain
make --no-print-directory --silent -C "$root/gdrdrv-c/tests"
model=$(cd "$root" && cargo test --quiet --no-run --package libgdrapi --test emulated --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)

# ---- Running ----

rm -rf "$logs"
mkdir -p "$logs"
failures=0
limit=1000
[ "$series" != debug ] || limit=3000

# start NAME OPTION ... -- COMMAND ...: on a machine of its own, meanwhile.
start() {
    local name=$1
    shift
    "$here/run.sh" --kernel "$series" --timeout $limit --dmesg "$logs/$name.dmesg" "$@" >"$logs/$name.log" 2>&1 &
    machines[$name]=$!
}

# finish NAME TITLE: waits for it, and tells.
finish() {
    local status=0
    wait "${machines[$1]}" || status=$?
    printf '\n== %s\n' "$2"
    cat "$logs/$1.log"
    # A machine that fails otherwise than by a failed test is one failure more.
    [ $status -le 1 ] || { echo "FAILED: exit status $status (gdrdrv-c/vm/run.sh --help)" && failures=$((failures + 1)); }
}

declare -A machines
"$here/run.sh" --kernel "$series" -- cat /proc/driver/gdrdrv/params
"$here/modules.sh" "$("$here/kernel.sh" "$series")" 570 >/dev/null # The other branches are run.
start persistent -- "$here/check-guest.sh" persistent "$gdremu" "$lib" "$model"
start traditional --traditional -- "$here/check-guest.sh" traditional "$gdremu" "$lib" "$model"
finish persistent "the library, pins that outlive a free"
finish traditional "the library, pins that end with a free"

start module-persistent -- "$root/gdrdrv-c/tests/run.sh" answers stale_handles mappings memory_types owners killed
start module-535 --branch 535 -- "$root/gdrdrv-c/tests/run.sh" answers stale_handles
start module-515 --branch 515 -- "$root/gdrdrv-c/tests/run.sh" answers stale_handles mappings memory_types owners killed
start module-traditional --traditional -- "$root/gdrdrv-c/tests/run.sh"
finish module-persistent "the module, pins that outlive a free"
finish module-535 "the module, a GPU driver that cannot force PCIe"
finish module-515 "the module, a GPU driver without persistent pins"
finish module-traditional "the module, pins that end with a free"

# sum WORD: over the summaries of all machines.
sum() {
    sed -nE 's/^([0-9]+ passed, [0-9]+ failed.*)$/\1/p' "$logs"/*.log | grep -oE "[0-9]+ $1" | awk '{ n += $1 } END { print n + 0 }'
}

failed=$(($(sum failed) + failures))
printf '\n%d passed, %d failed\n' "$(sum passed)" "$failed"
[ "$failed" -eq 0 ]
