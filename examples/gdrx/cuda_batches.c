/* Times many copies at once: by libgdrx, by one cuMemcpyBatchAsync (CUDA 12.8 and later), and by one cuMemcpyAsync for
 * each copy. The times are medians in microseconds, until all copies have arrived. Host memory is page-locked, so that
 * CUDA's copies are fast. */
#include "example.h"

#define SIZE (64 << 20)
#define MOST 256
#ifndef RUNS
#define RUNS 61
#endif
#define PATTERN 0x5a

/* Has the layout of CUDA's struct CUmemcpyAttributes. All copies of a batch have the same attributes. */
struct attributes {
    int source_order; /* 1: the source is read after earlier work of the stream */
    int source_hint[2], target_hint[2];
    unsigned int flags;
};

/* The type of cuMemcpyBatchAsync in CUDA 13. */
typedef CUresult batch_13(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct attributes *, size_t *, size_t, CUstream);
/* The type of cuMemcpyBatchAsync in CUDA 12.8 and 12.9, which also returns the number of the copy that failed. */
typedef CUresult batch_12(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, struct attributes *, size_t *, size_t, size_t *, CUstream);

static batch_13 *copy_batch;
static batch_12 *copy_batch_of_12;

enum method { LIBGDRX, BATCH, EACH, METHODS };

static struct memory memory;
static unsigned char *host;
static CUstream stream;
static struct gdrx_copy copies[MOST];
static CUdeviceptr to[MOST], from[MOST];
static size_t sizes[MOST];

/* CUDA drivers before 12.0 do not have this function. With them, its address is NULL. */
#pragma weak cuGetProcAddress_v2

static void find_batches(void)
{
    CUdriverProcAddressQueryResult result;
    void *function;

    if (cuGetProcAddress_v2 == NULL)
        return;
    if (cuGetProcAddress_v2("cuMemcpyBatchAsync", &function, 13000, 0, &result) == 0 && function != NULL)
        memcpy(&copy_batch, &function, sizeof(function));
    else if (cuGetProcAddress_v2("cuMemcpyBatchAsync", &function, 12080, 0, &result) == 0 && function != NULL)
        memcpy(&copy_batch_of_12, &function, sizeof(function));
}

static void copy_all(enum method method, int writes, size_t n)
{
    struct attributes attributes = {.source_order = 1};
    size_t first = 0, failed;

    if (method == LIBGDRX) {
        MUST(writes ? gdrx_write_many(&memory.map, copies, n) : gdrx_read_many(&memory.map, copies, n));
        if (writes)
            MUST(gdrx_flush(&memory.map));
        return;
    }
    if (method == EACH)
        for (size_t i = 0; i < n; i++)
            MUST(cuMemcpyAsync(to[i], from[i], sizes[i], stream));
    else if (copy_batch != NULL)
        MUST(copy_batch(to, from, sizes, n, &attributes, &first, 1, stream));
    else
        MUST(copy_batch_of_12(to, from, sizes, n, &attributes, &first, 1, &failed, stream));
    MUST(cuStreamSynchronize(stream));
}

static int is_there(enum method method)
{
    return method != BATCH || copy_batch != NULL || copy_batch_of_12 != NULL;
}

/* Prints the median time of each method for copies to or from random places. The methods take turns. Checks the bytes
 * that are read. */
static void measure(int writes, size_t size, size_t n)
{
    static double times[METHODS][RUNS];

    printf("%-5s %7zu B x %5zu", writes ? "write" : "read", size, n);
    for (size_t run = 0; run < RUNS; run++) {
        for (size_t i = 0; i < n; i++) {
            size_t offset = any_number(SIZE / size) * size;
            CUdeviceptr there = memory.address + offset, here = (CUdeviceptr)(host + i * size);

            copies[i] = (struct gdrx_copy){offset, host + i * size, size};
            to[i] = writes ? there : here;
            from[i] = writes ? here : there;
            sizes[i] = size;
        }
        for (enum method method = 0; method < METHODS; method++) {
            double begin;

            if (!is_there(method))
                continue;
            memset(host, writes ? PATTERN : 0, n * size);
            begin = nanoseconds();
            copy_all(method, writes, n);
            times[method][run] = nanoseconds() - begin;
            for (size_t i = 0; i < n * size; i += size)
                MUST(host[i] != PATTERN || host[i + size - 1] != PATTERN);
        }
    }
    for (enum method method = 0; method < METHODS; method++)
        if (is_there(method)) {
            qsort(times[method], RUNS, sizeof(times[method][0]), compare_times);
            printf(" %9.1f", times[method][RUNS / 2] / 1000);
        }
    puts("");
}

int main(void)
{
    static const size_t item_sizes[] = {64, 1024, 4096, 16384, 65536}, counts[] = {1, 16, 64, 256};
    static const char *const names[METHODS] = {"libgdrx", "batch", "each"};
    void *pinned;

    memory = map_memory(SIZE);
    MUST(cuMemsetD8(memory.address, PATTERN, SIZE));
    MUST(cuMemHostAlloc(&pinned, MOST * 65536, 0));
    host = pinned;
    MUST(cuStreamCreate(&stream, 1)); /* 1: the stream does not wait for the default stream */
    find_batches();
    if (!is_there(BATCH))
        puts("cuMemcpyBatchAsync is left out: this CUDA does not have it (NVIDIA's has it since 12.8)");
    printf("%-22s", "us for all items");
    for (enum method method = 0; method < METHODS; method++)
        if (is_there(method))
            printf(" %9s", names[method]);
    puts("");
    for (int writes = 1; writes >= 0; writes--)
        for (size_t i = 0; i < sizeof(item_sizes) / sizeof(item_sizes[0]); i++)
            for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
                measure(writes, item_sizes[i], counts[k]);
    MUST(cuStreamDestroy(stream));
    MUST(cuMemFreeHost(pinned));
    unmap_memory(&memory);
    return 0;
}
