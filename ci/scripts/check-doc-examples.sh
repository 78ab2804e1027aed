#!/usr/bin/env bash
# Runs the examples of the crates' documentation under gdremu. Fails if an example fails, finds no GPU or is not run. Only
# the example of README.md is compiled and not run, because README.md cannot hide the lines that would find a GPU.
# tests/readme.rs compares it with an example that tests run.
#
# `cargo test --doc` without this script also runs the examples, but without a GPU they end at once.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

gdremu=$(realpath "${CARGO_TARGET_DIR:-target}/release/gdremu")
[ -e "$gdremu" ] || die "no gdremu: run \`make emulator\` first"

# gdremu emulates CUDA 13.3, because an example maps dma-bufs, and earlier versions of CUDA cannot map them.
host=$(rustc --version --verbose | sed -n 's/^host: //p')
export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER=$gdremu --cuda-version 13.3 --leak-exit 66 --"

log=$work/log
GDRCOPY_DOC_EXAMPLES=1 cargo test --workspace --all-features --doc >"$log" 2>&1 || { cat "$log" >&2 && die "an example fails"; }
! grep -E ' - compile \.\.\. | \.\.\. ignored' "$log" | grep -v '/README\.md' >&2 || die "these do not run"
count=$(grep -cE '^test .*[0-9]\) \.\.\. ok$' "$log")
echo "examples of the documentation: $count ran"
