#!/usr/bin/env bash
# Draws the pictures of docs again from their data by tools/plot.py, and compares their texts with those of the old ones.
# Then draws results that the tools measure on an emulated GPU. With `--write`, only writes the pictures of docs.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

python=build/matplotlib/bin/python
if ! "$python" -c 'import matplotlib; assert matplotlib.__version__ == "3.11.2"' 2>/dev/null; then
    quietly python3 -m venv build/matplotlib
    quietly "$python" -m pip install matplotlib==3.11.2
fi
for picture in compare-h200:compared ucx-h200:ucx-latency many-h200:many-copies; do
    svg=docs/${picture#*:}.svg
    "$python" -B tools/plot.py "docs/data/${picture%:*}.json" "$work/picture.svg"
    [ "${1-}" != --write ] || cp "$work/picture.svg" "$svg"
    # Only texts are compared. The coordinates are logarithms, whose last digit may differ on another CPU.
    cmp <(grep -o '>[^<]*</text>' "$work/picture.svg") <(grep -o '>[^<]*</text>' "$svg") || die "$svg is not that of its data: make pictures"
done
[ "${1-}" != --write ] || exit 0

gdremu=${CARGO_TARGET_DIR:-target}/release/gdremu
library=$PWD/build/lib/libgdrapi.so.2
for tool in "copylat -s 64K -w 50 -r 20" "apiperf -s 128K -n 10"; do
    # shellcheck disable=SC2086 # $tool also has the tool's options.
    quietly "$gdremu" -- build/tools/bin/gdrcopy $tool --lib "ours=$library" --lib "other=$library" --json "$work/results.json"
    # Removes the time of the last result, as the tools do if a copy has copied wrong bytes.
    "$python" -c 'import json, sys; results = json.load(open(sys.argv[1])); del results["records"][-1]["p50_ns"]
json.dump(results, open(sys.argv[1], "w"))' "$work/results.json"
    "$python" -B tools/plot.py "$work/results.json" "$work/picture.svg"
    for text in "emulated, not PCIe: gdrcopy ${tool%% *}: ours, other" ": time" "write-combining mapping"; do
        grep -q "$text" "$work/picture.svg" || die "$tool: the picture lacks $text"
    done
    ! grep -q 'PCIe [0-9]' "$work/picture.svg" || die "$tool: an emulated GPU has no PCIe"
done
echo '{ "usable": true }' >"$work/other.json"
! "$python" -B tools/plot.py "$work/other.json" "$work/picture.svg" 2>"$work/log" || die "drew another document"
grep -q "has no results over size" "$work/log" || die "$(cat "$work/log")"
