#!/usr/bin/env bash
# Makes the .crate files of the crates that are published. Unpacks these files into a directory of their own, builds the
# crates there, runs their tests, and runs gdrcopy's examples on a GPU or under gdremu. Works offline, with the versions
# of our Cargo.lock.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

target=${CARGO_TARGET_DIR:-$PWD/target}
unpacked=$target/crates/unpacked
crates=(gdrcopy-core gdrcopy gdrapi-sys)

mkdir -p "$target/crates"
export CARGO_TARGET_DIR=$target/crates CARGO_INCREMENTAL=0
rm -rf "$CARGO_TARGET_DIR/package"/*.crate
# Cargo makes a local registry of these crates. Their earlier builds are removed, because cargo would not unpack or
# build the same version again.
for crate in "${crates[@]}"; do
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/"$crate"-[0-9]* "$CARGO_TARGET_DIR/debug/.fingerprint/$crate"-*
done

# This command also builds each crate, with default features. It takes the other crates of this release from cargo's
# local registry.
quietly cargo package --offline --locked --allow-dirty "${crates[@]/#/--package=}"

# `--touch` gives the files new times. The times in the archives are old, so cargo would think that the files have not
# changed since the last check.
rm -rf "$unpacked"
mkdir "$unpacked"
for file in "$CARGO_TARGET_DIR/package"/*.crate; do
    tar --extract --touch --file "$file" --directory "$unpacked"
done
cp Cargo.lock "$unpacked"
cd "$unpacked"
printf '[workspace]\nresolver = "3"\nmembers = ["*"]\nexclude = ["target"]\n' >Cargo.toml
patches=()
for crate in "${crates[@]}"; do
    patches+=(--config "patch.crates-io.$crate.path='$(echo "$crate"-[0-9]*)'")
done
quietly cargo test --offline "${patches[@]}" --workspace --all-features -- --show-output
passed=$(awk '/^test result: ok/ { count += $4 } END { print count + 0 }' "$work/log")
grep -o '^skipped.*' "$work/log" | sort | uniq -c || true

gdremu=$target/release/gdremu
runner=()
if [ ! -e /dev/gdrdrv ]; then
    [ -e "$gdremu" ] || { echo "check-crates: examples are not run: there is no GPU with gdrdrv, and no gdremu" && exit; }
    runner=("$gdremu" --profile dmabuf --leak-exit 66 --)
fi
count=0
for source in gdrcopy-[0-9]*/examples/*.rs; do
    quietly "${runner[@]}" "$CARGO_TARGET_DIR/debug/examples/$(basename "$source" .rs)"
    count=$((count + 1))
done
echo "crates: $(basename --multiple --suffix=.crate "$CARGO_TARGET_DIR/package"/*.crate | paste -sd ' '); $passed tests passed, $count examples ran"
