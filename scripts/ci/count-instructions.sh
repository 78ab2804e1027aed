#!/usr/bin/env bash
# Counts the instructions of small copies, from the C entry to the return, under gdremu and callgrind; and of the crate's
# `Word::store`. Fails if one takes more than it did when it was last made faster; `Word::store` may take the call and return
# besides, which are inlined elsewhere.
#
#   scripts/ci/count-instructions.sh [DIR]    libgdrapi.so.2 is in DIR (default: build/lib, which `make lib` fills)
#
# valgrind's CPU has no AVX-512: copies of more than a word take the avx2 routine.
set -euo pipefail
cd "$(dirname "$0")/../.."

lib=${1:-build/lib}
built=${CARGO_TARGET_DIR:-target}/release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
    echo "count-instructions: $*" >&2
    exit 1
}

[ -e "$lib/libgdrapi.so.2" ] || die "no libgdrapi.so.2 in $lib: run \`make lib\` first"
[ -e "$built/gdremu" ] || die "no gdremu in $built: run \`make emulator\` first"
command -v valgrind >/dev/null || die "valgrind is missing: run scripts/ci/install-deps.sh"

# Copies SIZE bytes COUNT times.
cat >"$work/copies.c" <<'END'
#include "gpu.h"

int main(int argc, char **argv)
{
    static _Alignas(64) unsigned char host[4096];
    int is_write = argc > 3 && strcmp(argv[1], "write") == 0;
    size_t size = strtoul(argv[2], NULL, 10);
    long count = atol(argv[3]);
    struct gpu_buffer buffer;
    gdr_mh_t handle;
    void *va;
    gdr_t g;

    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    g = gdr_open();
    CHECK(g != NULL);
    handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    va = map(g, handle, GPU_PAGE_SIZE);
    while (count-- > 0)
        CHECK_OK(is_write ? gdr_copy_to_mapping(handle, va, host, size) : gdr_copy_from_mapping(handle, host, va, size));
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return 0;
}
END
gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -Iinclude -Ic_tests "$work/copies.c" -o "$work/copies" \
    -L"$lib" -l:libgdrapi.so.2 -lc "$built/libgdremu_libcuda.so"

# executed FUNCTION PROGRAM ARGUMENT…: instructions inside a function of a program.
executed() {
    local function=$1
    shift
    LD_LIBRARY_PATH=$lib "$built/gdremu" -- valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        --toggle-collect="$function" "$@" >"$work/log" 2>&1 || die "$(cat "$work/log")"
    sed -n 's/.*Collected : \([0-9]*\)$/\1/p' "$work/log"
}

# The first copy, which chooses the routine, does not count.
printf '%-10s %6s  %s\n' direction bytes instructions
while read -r direction size limit; do
    copies=('gdr_copy_*_mapping' "$work/copies" "$direction" "$size")
    each=$((($(executed "${copies[@]}" 1001) - $(executed "${copies[@]}" 1)) / 1000))
    printf '%-10s %6d  %d\n' "$direction" "$size" $each
    [ "$each" -gt 0 ] || die "nothing was counted"
    [ "$each" -le "$limit" ] || die "a $direction of $size bytes takes $each instructions, more than $limit"
done <<END
write 4 41
write 8 43
write 64 61
read 4 39
read 8 41
read 64 106
END

cargo build --quiet --release --package gdrcopy --example word_store
store=('word_store::store*' "$built/examples/word_store")
each=$((($(executed "${store[@]}" 1001) - $(executed "${store[@]}" 1)) / 1000))
printf '%-10s %6d  %d\n' Word::store 4 $each
[ "$each" -gt 0 ] || die "no Word::store was counted"
[ "$each" -le 14 ] || die "Word::store takes $each instructions, more than 14"
