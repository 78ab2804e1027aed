#!/usr/bin/env bash
# Runs examples/gdrx/cuda_batches.c under gdremu, whose CUDA has no cuMemcpyBatchAsync. Then runs it with two functions
# of this script, one in place of CUDA 12.8's cuMemcpyBatchAsync, and one in place of CUDA 13's. CUDA's two functions have
# different parameters, so both functions of this script check their arguments.
set -euo pipefail
cd "$(dirname "$0")/../.."
. ci/scripts/common.sh

cat >"$work/batches.c" <<'END'
#include "cuda_driver.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static CUresult copy_all(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, int *attributes, size_t *first,
                         size_t kinds, CUstream stream)
{
    if (attributes[0] != 1 || attributes[5] != 0 || *first != 0 || kinds != 1 || stream == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        if (cuMemcpyAsync(to[i], from[i], sizes[i], stream) != 0)
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static CUresult of_13(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, int *attributes, size_t *first,
                      size_t kinds, CUstream stream)
{
    return copy_all(to, from, sizes, n, attributes, first, kinds, stream);
}

static CUresult of_12(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, int *attributes, size_t *first,
                      size_t kinds, size_t *failed, CUstream stream)
{
    *failed = n;
    return copy_all(to, from, sizes, n, attributes, first, kinds, stream);
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags,
                          CUdriverProcAddressQueryResult *status)
{
    int is_12 = version < 13000, exists = version <= atoi(getenv("CUDA_OF_TEST"));

    (void)flags;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    *function = NULL;
    if (strcmp(symbol, "cuMemcpyBatchAsync") == 0 && exists)
        *function = is_12 ? (void *)of_12 : (void *)of_13;
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
END
built=${CARGO_TARGET_DIR:-target}/release
gcc -std=gnu11 -D_GNU_SOURCE -DRUNS=3 -O2 -Wall -Wextra -Werror -Iinclude -Ic_tests examples/gdrx/cuda_batches.c "$work/batches.c" \
    -o "$work/cuda_batches" -Lbuild/lib -lgdrx -lgdrapi -lc "$built/libgdremu_cuda.so"

# printed PROGRAM: runs the program, and prints its output. Fails unless the output has 40 lines of results, each
# with a number for each column.
printed() {
    LD_LIBRARY_PATH=build/lib "$built/gdremu" --leak-exit 66 -- "$1" >"$work/printed" || die "$1 fails"
    awk '/^us for all items/ { columns = NF - 4 } /^(write|read) / { rows += NF == 5 + columns } END { exit rows != 40 }' \
        "$work/printed" || die "$(cat "$work/printed")"
    cat "$work/printed"
}

left_out='cuMemcpyBatchAsync is left out'
printed build/examples/gdrx/cuda_batches | grep -q "$left_out" || die "does not say that the emulated CUDA has no batches"
for version in 12080 13040; do
    export CUDA_OF_TEST=$version
    printed "$work/cuda_batches" >"$work/all"
    grep -qE '^us for all items +libgdrx +batch +each$' "$work/all" || die "CUDA $version: no column of batches"
    ! grep -q "$left_out" "$work/all" || die "CUDA $version: says that there are no batches"
done
CUDA_OF_TEST=12060 printed "$work/cuda_batches" | grep -q "$left_out" || die "CUDA 12.6: does not say that there are no batches"
echo "cuda_batches: with cuMemcpyBatchAsync of CUDA 12.8 and 13, and without"
