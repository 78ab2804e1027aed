/*
 * Keeps an order book in GPU memory. The CPU changes price levels at random places of the book, and then rings a
 * doorbell. The doorbell is a word that a GPU kernel polls before it reads the levels.
 */
#include "example.h"

#define LEVELS (1 << 20)
#define CHANGES 64 /* changes before each ring of the doorbell */
#define ROUNDS 2000

struct level {
    uint64_t price, quantity, orders, sequence, rest[4];
};

#define DOORBELL (LEVELS * sizeof(struct level))

int main(void)
{
    struct memory memory = map_memory(DOORBELL + GPU_PAGE_SIZE);
    static double one_by_one[ROUNDS], together[ROUNDS];
    struct level levels[CHANGES], seen;
    struct gdrx_copy writes[CHANGES];
    uint32_t round;

    for (round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < CHANGES; i++) {
            levels[i] = (struct level){.price = round, .quantity = i, .sequence = round * CHANGES + i};
            writes[i] = (struct gdrx_copy){any_number(LEVELS) * sizeof(struct level), &levels[i], sizeof(struct level)};
        }
        double start = nanoseconds();
        for (uint32_t i = 0; i < CHANGES; i++)
            MUST(gdr_copy_to_mapping(memory.handle, memory.va + writes[i].offset, &levels[i], sizeof(struct level)));
        gdrx_store_u32(&memory.map, DOORBELL, round);
        one_by_one[round] = nanoseconds() - start;

        start = nanoseconds();
        MUST(gdrx_write_many(&memory.map, writes, CHANGES));
        gdrx_store_u32(&memory.map, DOORBELL, round + 1);
        together[round] = nanoseconds() - start;

        /* Wait until the writes of this round have arrived where GPU kernels see them. This is not timed. */
        MUST(gdrx_flush(&memory.map));
    }
    MUST(cuMemcpyDtoH(&round, memory.address + DOORBELL, sizeof(round)));
    must("doorbell", round != ROUNDS);
    MUST(cuMemcpyDtoH(&seen, memory.address + writes[CHANGES - 1].offset, sizeof(seen)));
    must("level", memcmp(&seen, &levels[CHANGES - 1], sizeof(seen)) != 0);
    printf("%d levels of %zu bytes, then the doorbell; median of %d rounds, for each level:\n", CHANGES,
           sizeof(struct level), ROUNDS);
    print_time("gdr_copy_to_mapping", one_by_one, ROUNDS, CHANGES);
    print_time("gdrx_write_many", together, ROUNDS, CHANGES);
    unmap_memory(&memory);
    return 0;
}
