/* Polls 64 flags in GPU memory, one by one and all at once. Each flag has a cache line of its own. A GPU kernel would set the
 * flags; here cuMemcpyHtoD does so. */
#include "example.h"

#define FLAGS 64
#define STRIDE 192 /* bytes (3 cache lines); an even number of lines slows polling all at once (docs/gdrx.md) */
#define ROUNDS 2000

int main(void)
{
    struct memory memory = map_memory(GPU_PAGE_SIZE);
    static double one_by_one[ROUNDS], together[ROUNDS];
    static uint32_t flags[FLAGS];
    struct gdrx_copy reads[FLAGS];

    for (size_t i = 0; i < FLAGS; i++) {
        uint32_t flag = (uint32_t)i + 1;

        MUST(cuMemcpyHtoD(memory.address + i * STRIDE, &flag, sizeof(flag)));
        reads[i] = (struct gdrx_copy){i * STRIDE, &flags[i], sizeof(flags[i])};
    }
    MUST(cuCtxSynchronize());
    for (size_t round = 0; round < ROUNDS; round++) {
        double start = nanoseconds();

        for (size_t i = 0; i < FLAGS; i++)
            flags[i] = gdrx_load_u32(&memory.map, i * STRIDE);
        one_by_one[round] = nanoseconds() - start;

        memset(flags, 0, sizeof(flags));
        start = nanoseconds();
        MUST(gdrx_read_many(&memory.map, reads, FLAGS));
        together[round] = nanoseconds() - start;
        for (size_t i = 0; i < FLAGS; i++)
            must("flag", flags[i] != i + 1);
    }
    printf("%d flags, %d bytes apart; median of %d rounds, for each flag:\n", FLAGS, STRIDE, ROUNDS);
    print_time("gdrx_load_u32", one_by_one, ROUNDS, FLAGS);
    print_time("gdrx_read_many", together, ROUNDS, FLAGS);
    unmap_memory(&memory);
    return 0;
}
