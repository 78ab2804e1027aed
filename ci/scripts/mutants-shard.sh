#!/bin/sh
# mutants-shard.sh [K/N]: cargo-mutants makes small changes of the code, called mutants, which a test must notice. This
# script divides them into N parts, and tries those of part K, counted from 0, or of today's part. If no test notices
# a mutant, it prints the mutant's name and fails. build/mutants has the logs.
set -eu
cd "$(dirname "$0")/../.."

parts=4 # A part has about 250 mutants, and takes about half an hour of CPU time if tests notice all.
shard=${1:-$(($(date +%s) / 86400 % parts))/$parts}
set --
target=${CARGO_TARGET_DIR:-$PWD/target}
bundle=$PWD/build/mutants/bundle

ci/scripts/install-cargo-tool.sh cargo-mutants 27.1.0
# cargo-mutants tests a copy of the sources without built files. So the tests find C programs and gdremu in this
# directory, whose links have the same names as the files of `make gpu-bundle`.
mkdir -p "$bundle"
runner=$(cargo test --package libgdrapi --test c_programs --no-run --message-format json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
make -s -f c_tests/programs.mk plain
ln -sfn "$PWD/build/c_tests/plain" "$bundle/c_tests"
ln -sf "$runner" "$bundle/c_programs"
ln -sf "$PWD/build/c_tests/gdrcopy_sanity" "$PWD/build/c_tests/watched" "$PWD/build/c_tests/denied" "$target/release/gdremu" "$bundle"

# Programs without debug information are linked faster. No target directory is set, because each copy of the sources
# that cargo-mutants makes has its own.
export CARGO_PROFILE_DEV_DEBUG=0
unset CARGO_TARGET_DIR CARGO_BUILD_TARGET

# mutants ARGUMENT…: changes the files that these arguments of cargo-mutants choose. The tests must notice each change.
mutants() {
    status=0
    GDRCOPY_TEST_BUNDLE=$bundle PATH="$target/cargo-mutants/bin:$PATH" cargo mutants --config tests/cargo-mutants.toml \
        --package libgdrapi --package gdrcopy-core --package gdrx --shard "$shard" "$@" -- -- --skip caught:: || status=$?
    [ $status != 3 ] || status=0 # Status 3: a change made tests hang. So they have noticed it.
    [ $status = 0 ] || failed=$status
}

routines='crates/gdrcopy-core/src/routines/**'
copy='crates/gdrcopy-core/src/copy/**'
# A CPU without AVX-512 does not run avx512.rs, so changes in it are not tried.
grep -qw avx512f /proc/cpuinfo && absent=none || absent='**/avx512.rs'
failed=0
# The tests of the copy routines single-step them, which takes longer than everything else. So they run only for mutants
# of the code of copies.
mutants --output build/mutants/copies --file "$routines" --file "$copy" --exclude "$absent" --cargo-arg=--test=copy_routines
mutants --output build/mutants/others --file 'src/**' --file 'crates/gdrx/src/**' --file 'crates/gdrcopy-core/src/**' --exclude "$routines" --exclude "$copy"
exit $failed
