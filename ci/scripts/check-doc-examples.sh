#!/usr/bin/env bash
# Runs the examples of gdrcopy's documentation under gdremu. Fails if one fails, is only compiled, or does not reach its end.
# README.md's, without hidden lines, is only compiled here, because tests/readme.rs compares it with an example that
# tests run.
#
# `cargo test --doc` by itself runs them as well, but examples end at once where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

gdremu=$(realpath "${CARGO_TARGET_DIR:-target}/release/gdremu")
[ -e "$gdremu" ] || die "no gdremu: run \`make emulator\` first"

# CUDA 13.3 is the first that maps dma-bufs.
host=$(rustc --version --verbose | sed -n 's/^host: //p')
export "CARGO_TARGET_$(tr a-z- A-Z_ <<<"$host")_RUNNER=$gdremu --cuda-version 13.3 --leak-exit 66 --"
export GDRCOPY_DOC_EXAMPLES=$work/ended
touch "$GDRCOPY_DOC_EXAMPLES"

log=$work/log
cargo test --package gdrcopy --all-features --doc >"$log" 2>&1 || { cat "$log" >&2 && die "an example fails"; }
! grep -E ' - compile \.\.\. | \.\.\. ignored' "$log" | grep -v '/README\.md' >&2 || die "these do not run"
count=$(awk '/^running [0-9]+ test/ { count += $2 } / - compile( fail)? \.\.\. ok$/ { count-- } END { print count + 0 }' "$log")
ended=$(wc -l <"$GDRCOPY_DOC_EXAMPLES")
[ "$count" -gt 0 ] && [ "$ended" = "$count" ] || { cat "$log" >&2 && die "$ended of $count examples reached their end"; }
echo "examples of gdrcopy's documentation: $count ran"
