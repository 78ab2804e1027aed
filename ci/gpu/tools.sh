#!/usr/bin/env bash
# ci/gpu/tools.sh DIRECTORY [BUNDLE]: runs the tools of `gdrcopy` on an NVIDIA GPU. DIRECTORY gets their output, and
# JSON files that tools/plot.py draws. BUNDLE is what `make gpu-bundle` made (default: build/gpu). If there is no
# gdrdrv, gdremu's nvidia provider takes its place. The script takes at most six minutes on one core, GPU_CHECK_CORE
# (default: 4, or the last if there are fewer). If GPU_TOOLS_OTHER names another libgdrapi, the tools compare it with
# this one.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || {
    echo "usage: ci/gpu/tools.sh DIRECTORY [BUNDLE]" >&2
    exit 2
}
mkdir -p "$1" || exit 2
directory=$(cd "$1" && pwd)
bundle=$(cd "${2:-$root/build/gpu}" && pwd) || exit 2

[ -x "$bundle/gdrcopy" ] || {
    echo "gpu-tools: no gdrcopy in $bundle: run \`make gpu-bundle\`" >&2
    exit 2
}

gdrcopy=("$bundle/gdrcopy")
[ -e /dev/gdrdrv ] || gdrcopy=("$bundle/gdremu" --provider nvidia -- "$bundle/gdrcopy")

last=$(($(nproc --all) - 1))
core=${GPU_CHECK_CORE:-$((last < 4 ? last : 4))}
libraries=(--lib "gdrapi=$bundle/libgdrapi.so.2")
[ -z "${GPU_TOOLS_OTHER:-}" ] || libraries+=(--lib "other=$GPU_TOOLS_OTHER")
failed=0

# tool NAME SECONDS ARGUMENT...: runs a tool, and interrupts it after SECONDS. An interrupted tool prints its results so
# far, which is no failure. DIRECTORY/NAME.txt gets the command line and the output, in which the paths of DIRECTORY and
# BUNDLE are left out.
tool() {
    local name=$1 limit=$2 status
    shift 2
    printf '\n---- %s\n' "$name"
    {
        echo "\$ gdrcopy $*"
        timeout --signal=INT "$limit" "${gdrcopy[@]}" "$@" 2>&1
    } | sed "s|$bundle/||g; s|$directory/||g" | tee "$directory/$name.txt"
    status=${PIPESTATUS[0]}
    if [ "$status" -ne 0 ] && [ "$status" -ne 124 ]; then
        echo "gpu-tools: $name ended with $status" >&2
        failed=1
    fi
}

measured=(--cpu "$core" "${libraries[@]}")

tool doctor 15 doctor --lib "$bundle/libgdrapi.so.2"
tool copybw 10 copybw "${measured[@]}"
tool copylat 60 copylat --cumemcpy "${measured[@]}" --json "$directory/copylat.json"
tool compare 60 compare --with memcpy,cumemcpy --budget 20 "${measured[@]}" --json "$directory/compare.json"
tool apiperf 20 apiperf "${measured[@]}" --json "$directory/apiperf.json"
tool tune 20 tune --cpu "$core" --lib "gdrapi=$bundle/libgdrapi.so.2"
for mode in 0 1; do
    tool "pplat-mode$mode" 10 pplat --mode "$mode" "${measured[@]}"
    tool "pplat-mode$mode-4K" 10 pplat --mode "$mode" --size 4096 "${measured[@]}"
done
# Runs two tools again, under `gdrcopy trace`. Their results differ from those above by the time that tracing takes.
for traced in copylat pplat; do
    tool "trace-$traced" 60 trace --lib "$bundle/libgdrapi.so.2" -- "$bundle/gdrcopy" "$traced" --cpu "$core"
done
exit $failed
