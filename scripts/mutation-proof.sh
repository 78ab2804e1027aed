#!/usr/bin/env bash
# scripts/mutation-proof.sh [MUTANT …]: puts each deliberate defect of tests/mutants into a copy of the library, one at a
# time, and prints which tests find it. Exit status 1 if one stays hidden. Takes a minute or two for each.
#
#   scripts/mutation-proof.sh --some N    N of them, others each day: all have their turn
set -euo pipefail
cd "$(dirname "$0")/.."

work=$PWD/build/mutants
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$work/lib"

cargo build --quiet --workspace
make --no-print-directory lib emulator >/dev/null
emulated=$(cargo test --quiet --package libgdrapi --test emulated --no-run --message-format json |
    sed -n 's/.*"executable":"\([^"]*\/emulated-[^"]*\)".*/\1/p')

# The copy of the tree, without the defects of the last mutant.
fresh_tree() {
    rm -rf "$work/tree"
    mkdir -p "$work/tree"
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/tree"
}

# Each prints the names of the tests that fail.
unit_tests() {
    (cd "$work/tree" && CARGO_TARGET_DIR=$work/target cargo test --quiet --package libgdrapi --lib --test copy_kernels --no-fail-fast 2>&1) |
        sed -n 's/^    \([a-z_0-9:]*\)$/\1/p' | sort -u
}
c_tests() {
    c_tests/run.sh --lib "$work/lib" --ways linked --machines defects,2.4 2>/dev/null |
        awk '/FAILED/ { print "c_tests/" $1 }' | sort -u
}
model() {
    local option
    for option in '' --stale-handle-bug '--handle-base 0x123456789' '--platform cached'; do
        # shellcheck disable=SC2086 # The options are words.
        GDRAPI_LIB=$work/lib/libgdrapi.so.2 GDREMU_OPTIONS_OF_TEST=$option MODEL_CALLS=8000 RUST_BACKTRACE=0 \
            build/c_tests/watched "$target/debug/gdremu" --leak-exit 9 $option -- "$emulated" --ignored model:: >/dev/null 2>&1 ||
            echo "model${option:+($option)}"
    done
}

hidden=0
mutants=("$@")
[ $# -gt 0 ] && [ "$1" != --some ] || mutants=(tests/mutants/*.patch)
if [ "${1:-}" = --some ]; then
    all=("${mutants[@]}") mutants=()
    first=$(($(date +%s) / 86400 * $2))
    for ((i = first; i < first + $2; i++)); do
        mutants+=("${all[i % ${#all[@]}]}")
    done
fi
for mutant in "${mutants[@]}"; do
    fresh_tree
    patch --quiet --directory "$work/tree" --strip 1 <"$mutant"
    (cd "$work/tree" && CARGO_TARGET_DIR=$work/target cargo build --quiet --release --package libgdrapi 2>/dev/null)
    install "$work/target/release/libgdrapi.so" "$work/lib/libgdrapi.so.2"
    ln -sf libgdrapi.so.2 "$work/lib/libgdrapi.so"
    caught=$( (unit_tests; c_tests; model) | paste -sd' ')
    printf '%-24s %s\n' "$(basename "$mutant" .patch)" "${caught:-NOT CAUGHT: $(head -1 "$mutant")}"
    [ -n "$caught" ] || hidden=1
done
exit $hidden
