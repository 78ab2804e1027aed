/* Compares batches and gathers of random places with loops in plain C that check nothing. The times are medians of one run, in
 * ns per item. The example is for x86-64 only; the loops use AVX-512 if the CPU has it. */
#include "example.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define SIZE (32 << 20)
#define MOST 256
#define LARGEST 256
#define RUNS 201

/* The copies of which a measured batch or gather consists. Each has `size` bytes, and begins at byte `place` of a cache
 * line. Size 0 stands for copies of 4 to 128 bytes that begin at different places. */
static const struct shape {
    const char *name;
    size_t size, place;
} shapes[] = {{"8 B", 8, 0},
              {"16 B", 16, 0},
              {"32 B", 32, 0},
              {"64 B", 64, 0},
              {"24 B at 20", 24, 20},
              {"60 B at 4", 60, 4},
              {"100 B at 4, two lines", 100, 4},
              {"16 B at 56, two lines", 16, 56},
              {"128 B", 128, 0},
              {"256 B", 256, 0},
              {"4 to 128 B", 0, 0}};

static struct memory memory;
static _Alignas(64) unsigned char host[MOST][LARGEST], lines[MOST * (LARGEST + 64)];
static struct gdrx_copy copies[MOST];

/* Reads into `lines` the aligned blocks of BYTES bytes that contain the items. Then copies the items out of them. */
#define GATHER(BYTES, load_and_store)                                                                                          \
    do {                                                                                                                        \
        unsigned char *to = lines;                                                                                              \
        _mm_mfence();                                                                                                           \
        for (size_t i = 0; i < n; i++)                                                                                          \
            for (size_t at = copies[i].offset & -(size_t)(BYTES); at < copies[i].offset + copies[i].size; at += (BYTES)) {      \
                load_and_store;                                                                                                 \
                to += (BYTES);                                                                                                  \
            }                                                                                                                   \
        to = lines;                                                                                                             \
        for (size_t i = 0; i < n; i++) {                                                                                        \
            size_t place = copies[i].offset % (BYTES);                                                                          \
                                                                                                                                \
            memcpy(copies[i].host, to + place, copies[i].size);                                                                 \
            to += (place + copies[i].size + (BYTES)-1) & -(size_t)(BYTES);                                                      \
        }                                                                                                                       \
    } while (0)

__attribute__((target("avx512f,avx512bw"))) static void plain_512(int writes, size_t n)
{
    unsigned char *start = memory.map.address;

    if (!writes) {
        GATHER(64, _mm512_store_si512(to, _mm512_stream_load_si512(start + at)));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char *to = start + copies[i].offset, *from = copies[i].host;
        size_t left = copies[i].size;

        if (left == 8) {
            *(volatile uint64_t *)(void *)to = *(uint64_t *)(void *)from;
            continue;
        }
        for (; left >= 64; left -= 64, to += 64, from += 64)
            _mm512_storeu_si512(to, _mm512_loadu_si512(from));
        if (left != 0) {
            __mmask64 mask = ((__mmask64)1 << left) - 1;

            _mm512_mask_storeu_epi8(to, mask, _mm512_maskz_loadu_epi8(mask, from));
        }
    }
    _mm_sfence();
}

__attribute__((target("sse4.1"))) static void plain_128(int writes, size_t n)
{
    unsigned char *start = memory.map.address;

    if (!writes) {
        GATHER(16, _mm_store_si128((__m128i *)(void *)to, _mm_stream_load_si128((__m128i *)(void *)(start + at))));
        return;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(start + copies[i].offset, copies[i].host, copies[i].size);
    _mm_sfence();
}

/* Measures the median times of libgdrx and of plain C, which take turns. Choosing the places and waiting for earlier writes is
 * not timed. */
static void measure(const struct shape *shape, int writes, size_t n, double medians[2])
{
    static double times[2][RUNS];
    void (*plain)(int, size_t) = __builtin_cpu_supports("avx512bw") ? plain_512 : plain_128;

    for (size_t run = 0; run < 2 * RUNS; run++) {
        int is_plain = run % 2;
        double begin;

        for (size_t i = 0; i < n; i++) {
            size_t size = shape->size, place = shape->place;

            if (size == 0) {
                size = 4 + 4 * any_number(32);
                place = 4 * any_number(16);
            }
            copies[i] = (struct gdrx_copy){any_number(SIZE / 64 - 8) * 64 + place, host[i], size};
        }
        MUST(gdrx_flush(&memory.map));
        begin = nanoseconds();
        if (is_plain)
            plain(writes, n);
        else if (writes)
            MUST(gdrx_write_many(&memory.map, copies, n));
        else
            MUST(gdrx_read_many(&memory.map, copies, n));
        times[is_plain][run / 2] = (nanoseconds() - begin) / (double)n;
    }
    for (int is_plain = 0; is_plain < 2; is_plain++) {
        qsort(times[is_plain], RUNS, sizeof(times[is_plain][0]), compare_times);
        medians[is_plain] = times[is_plain][RUNS / 2];
    }
}

int main(void)
{
    static const size_t counts[] = {4, 16, 64, 256};

    memory = map_memory(SIZE);
    /* Accesses each page once before the measurement, because the first access to a page takes longer. */
    for (size_t offset = 0; offset < SIZE; offset += 4096)
        gdrx_store_u8(&memory.map, offset, gdrx_load_u8(&memory.map, offset));
    for (int writes = 0; writes < 2; writes++) {
        printf("%-22s %6s %8s %8s %6s\n", writes ? "batch of writes" : "gather", "items", "libgdrx", "plain C", "ratio");
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
                double medians[2];

                measure(&shapes[i], writes, counts[k], medians);
                printf("%-22s %6zu %8.1f %8.1f %6.2f\n", shapes[i].name, counts[k], medians[0], medians[1],
                       medians[0] / medians[1]);
            }
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
