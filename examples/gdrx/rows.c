/* Reads rows out of a table of MIB (by default 1024) in GPU memory, by
   `rows [MIB]`. */
#include "example.h"

#define ROW 64
#define WANTED 64 /* rows at once */
#define ROUNDS 2000
#define CHUNK (1UL << 20)

int main(int argc, char **argv)
{
    size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1024) * CHUNK;
    static double one_by_one[ROUNDS], together[ROUNDS];
    static unsigned char rows[WANTED][ROW];
    static uint64_t chunk[CHUNK / sizeof(uint64_t)];
    struct gdrx_copy reads[WANTED];

    if (size == 0) {
        fprintf(stderr, "usage: rows [MIB]\n");
        return 2;
    }
    struct memory memory = map_memory(size);
    for (size_t at = 0; at < size; at += CHUNK) { /* Each row begins with its own offset. */
        for (size_t i = 0; i < CHUNK; i += ROW)
            chunk[i / sizeof(uint64_t)] = at + i;
        MUST(cuMemcpyHtoD(memory.address + at, chunk, CHUNK));
    }
    MUST(cuCtxSynchronize());
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < WANTED; i++)
            reads[i] = (struct gdrx_copy){any_number(size / ROW) * ROW, rows[i], ROW};
        double start = nanoseconds();
        for (size_t i = 0; i < WANTED; i++)
            MUST(gdr_copy_from_mapping(memory.handle, rows[i], memory.va + reads[i].offset, ROW));
        one_by_one[round] = nanoseconds() - start;

        memset(rows, 0xff, sizeof(rows));
        start = nanoseconds();
        MUST(gdrx_read_many(&memory.map, reads, WANTED));
        together[round] = nanoseconds() - start;
        for (size_t i = 0; i < WANTED; i++)
            must("row", memcmp(rows[i], &reads[i].offset, sizeof(uint64_t)) != 0);
    }
    printf("%d of %zu rows of %d bytes; median of %d rounds, for each row:\n", WANTED, size / ROW, ROW, ROUNDS);
    print_time("gdr_copy_from_mapping", one_by_one, ROUNDS, WANTED);
    print_time("gdrx_read_many", together, ROUNDS, WANTED);
    unmap_memory(&memory);
    return 0;
}
