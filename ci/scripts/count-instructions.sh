#!/usr/bin/env bash
# Counts the instructions of small copies under gdremu and callgrind. For the C libraries, it counts from the C entry to
# the return. For the crate, it counts in a function that makes one access, in a project with cargo's default release
# settings (tests/default_build). Fails if an access takes more instructions than its limit here, which is lowered when
# the access is made faster.
#
#   ci/scripts/count-instructions.sh [DIR]    DIR has libgdrapi.so.2 (default: build/lib, which `make lib` fills)
#
# valgrind's CPU has no AVX-512, so copies of more than a word take the avx2 routine.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

lib=${1:-build/lib}
built=${CARGO_TARGET_DIR:-target}/release

[ -e "$lib/libgdrapi.so.2" ] || die "no libgdrapi.so.2 in $lib: run \`make lib\` first"
[ -e "$built/gdremu" ] || die "no gdremu in $built: run \`make emulator\` first"
command -v valgrind >/dev/null || die "valgrind is missing: run ci/scripts/install-deps.sh"

# The program `counted FUNCTION [SIZE] COUNT` calls a function of libgdrapi with SIZE bytes, or one of libgdrx, COUNT
# times. callgrind cannot count inline functions, so the functions counted_... contain them.
cat >"$work/counted.c" <<'END'
#include "gdrx.h"
#include "kit/library.h"

#define ITEMS 16

static struct gdrx_map mapped;

__attribute__((noipa)) static void counted_store(size_t offset, uint64_t value)
{
    gdrx_store_u64(&mapped, offset, value);
}

__attribute__((noipa)) static uint64_t counted_load(size_t offset)
{
    return gdrx_load_u64(&mapped, offset);
}

int main(int argc, char **argv)
{
    static _Alignas(64) unsigned char host[ITEMS][64];
    struct gdrx_copy copies[ITEMS];
    struct gpu_buffer buffer;
    const char *function;
    size_t size, i;
    gdr_mh_t handle;
    long count;
    void *va;
    gdr_t g;

    CHECK(argc >= 3);
    function = argv[1];
    size = strtoul(argv[2], NULL, 10);
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    g = gdr_open();
    CHECK(g != NULL);
    handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    va = map(g, handle, GPU_PAGE_SIZE);
    CHECK_OK(gdrx_attach(&mapped, g, handle, va, GPU_PAGE_SIZE));
    for (i = 0; i < ITEMS; i++)
        copies[i] = (struct gdrx_copy){i * (2048 + 64), host[i], sizeof(host[i])};
    for (count = atol(argv[argc - 1]); count > 0; count--) {
        if (strcmp(function, "gdr_copy_to_mapping") == 0)
            CHECK_OK(gdr_copy_to_mapping(handle, va, host, size));
        else if (strcmp(function, "gdr_copy_from_mapping") == 0)
            CHECK_OK(gdr_copy_from_mapping(handle, host, va, size));
        else if (strcmp(function, "counted_store") == 0)
            counted_store(8, 1);
        else if (strcmp(function, "counted_load") == 0)
            counted_load(8);
        else if (strcmp(function, "gdrx_write_unfenced") == 0)
            CHECK_OK(gdrx_write_unfenced(&mapped, 64, host, 64));
        else if (strcmp(function, "gdrx_flush") == 0)
            CHECK_OK(gdrx_flush(&mapped));
        else if (strcmp(function, "gdrx_write_many") == 0)
            CHECK_OK(gdrx_write_many(&mapped, copies, ITEMS));
        else
            CHECK_OK(gdrx_read_many(&mapped, copies, ITEMS));
    }
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return 0;
}
END
make --no-print-directory --silent -f c_tests/programs.mk kit
gcc -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -Iinclude -Ic_tests "$work/counted.c" build/c_tests/kit/plain/libkit.a \
    -o "$work/counted" -L"$lib" -l:libgdrx.so.1 -l:libgdrapi.so.2 -lc "$built/libgdremu_cuda.so"

# executed FUNCTION PROGRAM ARGUMENT…: runs a program, and prints how many instructions it executed inside a function.
executed() {
    local function=$1 log
    shift
    log=$work/log.${*: -1} # `check` starts two runs at once, with different last arguments
    LD_LIBRARY_PATH=$lib "$built/gdremu" -- valgrind --tool=callgrind --callgrind-out-file=/dev/null \
        --toggle-collect="$function" "$@" >"$log" 2>&1 || die "$(cat "$log")"
    sed -n 's/.*Collected : \([0-9]*\)$/\1/p' "$log"
}

# check NAME LIMIT FUNCTION PROGRAM ARGUMENT…: counts the instructions of one call of FUNCTION. PROGRAM calls it as
# often as its last argument says. The first call, which chooses the copy routine, does not count.
check() {
    local name=$1 limit=$2 each
    shift 2
    executed "$@" 1001 >"$work/all" &
    executed "$@" 1 >"$work/first"
    wait $!
    each=$((($(cat "$work/all") - $(cat "$work/first")) / 1000))
    printf '%-18s %6d\n' "$name" $each
    [ "$each" -gt 0 ] || die "$name: nothing was counted"
    [ "$each" -le "$limit" ] || die "$name takes $each instructions, more than $limit"
}

echo "C library:"
while read -r direction size limit function; do
    check "$direction $size" "$limit" "$function" "$work/counted" "$function" "$size"
done <<END
write 4 37 gdr_copy_to_mapping
write 8 39 gdr_copy_to_mapping
write 64 45 gdr_copy_to_mapping
read 4 36 gdr_copy_from_mapping
read 8 38 gdr_copy_from_mapping
read 64 89 gdr_copy_from_mapping
END

echo "libgdrx; write and read are of 16 lines:"
while read -r access limit function; do
    check "$access" "$limit" "$function" "$work/counted" "$function"
done <<END
store 8 counted_store
load 8 counted_load
write 380 gdrx_write_many
read 550 gdrx_read_many
write_unfenced 66 gdrx_write_unfenced
flush 26 gdrx_flush
END

project=${CARGO_TARGET_DIR:-$PWD/target}/default_build
ci/scripts/copy-default-build.sh "$project"
CARGO_TARGET_DIR=$project/target cargo build --quiet --offline --release --manifest-path "$project/Cargo.toml"

echo "crate, default build:"
while read -r access limit; do
    check "$access" "$limit" "default_build::counted::$access*" "$project/target/release/default-build" "$access"
done <<END
word_store 12
word_load 12
owned_word_store 12
make_word_and_load 26
slice_write_8 23
slice_write_64 45
slice_read_64 89
buffer_write_64 68
array_set 35
batch_of_lines 443
batch_of_words 96
write_many_of_lines 388
scatter_of_lines 319
gather_of_words 362
gather_of_lines 586
array_gather_of_lines 482
END

# docs/gdrx.md names this program, which prints times. They mean nothing under gdremu, so only its end is checked.
"$built/gdremu" -- "$project/target/release/speed" >/dev/null
