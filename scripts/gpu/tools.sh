#!/usr/bin/env bash
# scripts/gpu/tools.sh FOLDER [BUNDLE]: runs every tool of `gdrcopy` on this machine's NVIDIA GPU, and leaves what they
# print and draw in FOLDER. BUNDLE is what `make gpu-bundle` made (default: build/gpu). Where there is no gdrdrv, gdremu's
# nvidia provider stands in for it. Takes three minutes at most, on one core, GPU_CHECK_CORE (default: 4, or the last if
# there are fewer). GPU_TOOLS_OTHER names another libgdrapi to compare with.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 1 ] || {
    echo "usage: scripts/gpu/tools.sh FOLDER [BUNDLE]" >&2
    exit 2
}
mkdir -p "$1" || exit 2
folder=$(cd "$1" && pwd)
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

# tool NAME SECONDS ARGUMENT...: runs a tool for so long at most, then asks it for its results so far, which is no failure. What it prints is
# left in FOLDER/NAME.txt, below its command line, without the names of the two folders.
tool() {
    local name=$1 limit=$2 status
    shift 2
    printf '\n---- %s\n' "$name"
    {
        echo "\$ gdrcopy $*"
        timeout --signal=INT "$limit" "${gdrcopy[@]}" "$@" 2>&1
    } | sed "s|$bundle/||g; s|$folder/||g" | tee "$folder/$name.txt"
    status=${PIPESTATUS[0]}
    if [ "$status" -ne 0 ] && [ "$status" -ne 124 ]; then
        echo "gpu-tools: $name ended with $status" >&2
        failed=1
    fi
}

measured=(--cpu "$core" "${libraries[@]}")

tool doctor 15 doctor --lib "$bundle/libgdrapi.so.2"
tool copybw 10 copybw "${measured[@]}"
tool copybw-sweep 30 copybw --sweep 4M --size 4M "${measured[@]}" --plot "$folder/copybw.svg"
tool copylat 60 copylat --cumemcpy "${measured[@]}" --plot "$folder/copylat.svg"
tool apiperf 20 apiperf "${measured[@]}" --plot "$folder/apiperf.svg"
for mode in 0 1; do
    tool "pplat-mode$mode" 10 pplat --mode "$mode" "${measured[@]}"
    tool "pplat-mode$mode-4K" 10 pplat --mode "$mode" --size 4096 "${measured[@]}"
done
exit $failed
