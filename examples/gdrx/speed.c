/* Times batches and gathers of random lines beside loops in plain C, in one run, as medians in ns per item. x86-64; the loops use
 * AVX-512 where the CPU has it. */
#include "example.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define SIZE (32 << 20)
#define MOST 256
#define RUNS 401

static struct memory memory;
static _Alignas(64) unsigned char host[MOST][64];
static struct gdrx_copy copies[MOST];

__attribute__((target("avx512f"))) static void loop_512(int writes, size_t n)
{
    char *start = memory.map.address;

    if (!writes)
        _mm_mfence();
    for (size_t i = 0; i < n; i++) {
        void *line = start + copies[i].offset / 64 * 64;

        if (writes && copies[i].size == 8)
            *(volatile uint64_t *)line = *(uint64_t *)copies[i].host;
        else if (writes)
            _mm512_store_si512(line, _mm512_load_si512(copies[i].host));
        else
            _mm512_store_si512(copies[i].host, _mm512_stream_load_si512(line));
    }
    if (writes)
        _mm_sfence();
}

__attribute__((target("sse4.1"))) static void loop_128(int writes, size_t n)
{
    char *start = memory.map.address;

    if (!writes)
        _mm_mfence();
    for (size_t i = 0; i < n; i++) {
        __m128i *line = (__m128i *)(void *)(start + copies[i].offset / 64 * 64), *own = copies[i].host;

        if (writes && copies[i].size == 8)
            *(volatile uint64_t *)(void *)line = *(uint64_t *)copies[i].host;
        else
            for (size_t at = 0; at < (copies[i].size + 15) / 16; at++)
                if (writes)
                    _mm_store_si128(line + at, _mm_load_si128(own + at));
                else
                    _mm_store_si128(own + at, _mm_stream_load_si128(line + at));
    }
    if (writes)
        _mm_sfence();
}

/* Medians of libgdrx and of plain C, which take turns. Choosing the places is not timed, and earlier writes have arrived. */
static void measure(int writes, size_t size, size_t n, double medians[2])
{
    static double times[2][RUNS];
    void (*loop)(int, size_t) = __builtin_cpu_supports("avx512f") ? loop_512 : loop_128;

    for (size_t run = 0; run < 2 * RUNS; run++) {
        int plain = run % 2;
        double begin;

        for (size_t i = 0; i < n; i++)
            copies[i] = (struct gdrx_copy){any_number(SIZE / 64) * 64, host[i], size};
        MUST(gdrx_flush(&memory.map));
        begin = nanoseconds();
        if (plain)
            loop(writes, n);
        else if (writes)
            MUST(gdrx_write_many(&memory.map, copies, n));
        else
            MUST(gdrx_read_many(&memory.map, copies, n));
        times[plain][run / 2] = (nanoseconds() - begin) / (double)n;
    }
    for (int plain = 0; plain < 2; plain++) {
        qsort(times[plain], RUNS, sizeof(times[plain][0]), compare_times);
        medians[plain] = times[plain][RUNS / 2];
    }
}

int main(void)
{
    static const struct {
        int writes;
        size_t size, n;
    } rows[] = {{0, 8, 64},  {0, 16, 64}, {0, 64, 64}, {0, 64, 256}, {1, 8, 16},
                {1, 8, 64},  {1, 64, 16}, {1, 64, 64}, {1, 64, 256}};

    memory = map_memory(SIZE);
    /* The first access to a page takes longer. */
    for (size_t offset = 0; offset < SIZE; offset += 4096)
        gdrx_store_u8(&memory.map, offset, gdrx_load_u8(&memory.map, offset));
    printf("%-8s %6s %6s %8s %8s\n", "", "bytes", "items", "libgdrx", "plain C");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double medians[2];

        measure(rows[i].writes, rows[i].size, rows[i].n, medians);
        printf("%-8s %6zu %6zu %8.1f %8.1f\n", rows[i].writes ? "batch" : "gather", rows[i].size, rows[i].n, medians[0],
               medians[1]);
    }
    unmap_memory(&memory);
    return 0;
}
#else
int main(void)
{
    puts("x86-64 only");
    return 0;
}
#endif
