#!/usr/bin/env bash
# Runs the blocks of shell commands in README.md and docs. Each block gets a newly installed tree in place of
# /usr/local, and gdremu in place of a GPU. A comment on the line before a block can change that:
#
#   <!-- not run: REASON -->       The block cannot run here.
#   <!-- run in DIRECTORY -->      The block runs in a copy of DIRECTORY. Then it runs again, and gdremu refuses its
#                                  first pin. In this run, the block must fail and print that the pin failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

export tree=$PWD work prefix=$work/local
make --no-print-directory --silent build/examples/demo lib_install tools_install gdremu_install prefix="$work/installed"
# Commands of the documents build in a directory of their own, because another cargo may hold the lock of this
# checkout's target directory. Their directory is kept, so that the next check is quick.
examples_target=${CARGO_TARGET_DIR:-$tree/target}/examples

# Makes the files and programs that the commands of the documents name.
mkdir "$work"/{blocks,here,programs,faulty}
ln -s "$tree/build" "$tree/target" "$work/here"
install build/examples/demo "$work/here/program"
ln -s "$work/here/program" "$work/programs/program"
echo 'print("trained")' >"$work/here/train.py"
printf '#!/bin/sh\nexec "%s/bin/gdremu" --fault PIN_BUFFER_V2:ENOMEM "$@"\n' "$prefix" >"$work/faulty/gdremu"
chmod +x "$work/faulty/gdremu"
cat >"$work/stand-ins" <<'END'
make() { command make --no-print-directory --silent -C "$tree" "$@"; }
gdrcopy() { gdremu -- "$prefix/bin/gdrcopy" "$@"; }
program() { gdremu -- "$work/here/program" "$@"; }
ldconfig() { "$(PATH=$PATH:/sbin type -P ldconfig)" -X -C "$work/ld.so.cache" "$@"; }
END

# Writes each block of shell commands into a file, and its place and its comment into another file.
awk -v out="$work/blocks" '
    /^<!-- (not run:|run in) .+ -->$/ { comment = $0; next }
    /^```sh$/ {
        block = sprintf("%s/%03d", out, ++count)
        print FILENAME ":" FNR "\t" comment >(block ".place")
        inside = 1
        next
    }
    /^```/ { inside = 0 }
    inside { print >block }
    { comment = "" }' README.md docs/*.md

# run DIRECTORY BLOCK [PATH]: runs the block in DIRECTORY, with a newly installed tree. Programs in the
# directory PATH take precedence. The output goes to $work/log.
run() {
    rm -rf "$prefix"
    cp -a "$work/installed" "$prefix"
    (cd "$1" && PATH=${3:+$3:}$prefix/bin:$work/programs:$PATH LD_LIBRARY_PATH=$prefix/lib \
        PKG_CONFIG_PATH=$prefix/lib/pkgconfig bash -euo pipefail -c \
        ". '$work/stand-ins'; $(sed "s|/usr/local|$prefix|g; s|/opt/gdrcopy|$prefix|g" "$2")") >"$work/log" 2>&1
}

ran=0 not_run=0
for block in "$work"/blocks/???; do
    IFS=$'\t' read -r place comment <"$block.place"
    case $comment in
        '<!-- not run: '*)
            not_run=$((not_run + 1))
            continue
            ;;
        '<!-- run in '*)
            directory=${comment#<!-- run in } directory=${directory% -->}
            rm -rf "$work/copy"
            cp -r "$directory" "$work/copy"
            sed -i "s|\.\./\.\./crates|$tree/crates|" "$work/copy/Cargo.toml"
            cp Cargo.lock "$work/copy"
            export CARGO_TARGET_DIR=$examples_target
            run "$work/copy" "$block" || { cat "$work/log" >&2 && die "$place fails"; }
            ! run "$work/copy" "$block" "$work/faulty" || die "$place does not notice that its pin fails"
            grep -qiE 'pin_?buffer' "$work/log" || { cat "$work/log" >&2 && die "$place fails, but not by its pin"; }
            unset CARGO_TARGET_DIR
            ;;
        *) run "$work/here" "$block" || { cat "$work/log" >&2 && die "$place fails; or say above it why it is not run"; } ;;
    esac
    ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || die "no block was run"
echo "commands in README.md and docs: $ran blocks ran, $not_run say why they are not run"
