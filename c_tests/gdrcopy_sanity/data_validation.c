/*
 * Copies of every size and alignment, in both directions, compared with CUDA's copies.
 *
 * Every byte of data has its top bit set, and every byte around it has not. So a byte too few or too many is always
 * detected.
 */

#include "buffer.h"
#include "tables.h"

#define SIZE (256UL << 10)
#define GUARD 64 /* largest alignment, and number of bytes checked around each copy */
#define BACKGROUND 0x55

static struct buffer buffer;
static unsigned char image[SIZE]; /* what CUDA must find in the buffer, or has written there */
static unsigned char source[GUARD + SIZE] __attribute__((aligned(GUARD)));
static unsigned char host[GUARD + GUARD + SIZE + GUARD] __attribute__((aligned(GUARD)));
static unsigned char expected[sizeof(host)];

/* One copy, with its size, and its offset from a multiple of GUARD in the buffer and in host memory. */
typedef void copy_function(size_t size, size_t buffer_rest, size_t host_rest);

static void fill_data(unsigned char *bytes, size_t size, unsigned seed)
{
    fill(bytes, size, seed);
    for (size_t i = 0; i < size; i++)
        bytes[i] |= 0x80;
}

static void print_copy(const char *direction, size_t size, size_t offset, size_t host_rest)
{
    fprintf(stderr, "copy %s mapping of %zu bytes at offset %zu, host memory %zu past a multiple of %d:\n", direction,
            size, offset, host_rest, GUARD);
}

/* ---- To the mapping, many copies side by side, then CUDA's view of the whole buffer ---- */

static struct written {
    size_t size, offset, host_rest;
} written[SIZE / GUARD];
static size_t written_count;
static size_t written_end; /* of the last one */

static void begin_writes(void)
{
    memset(image, BACKGROUND, SIZE);
    gpu_write(buffer.memory.address, image, SIZE);
    written_count = written_end = 0;
}

static void check_writes(void)
{
    static unsigned char seen[SIZE];
    size_t bad = 0;

    gpu_read(seen, buffer.memory.address, SIZE);
    if (memcmp(seen, image, SIZE) == 0)
        return;
    while (seen[bad] == image[bad])
        bad++;
    for (size_t i = 0; i < written_count; i++)
        if (bad + GUARD >= written[i].offset && bad < written[i].offset + written[i].size + GUARD)
            print_copy("to", written[i].size, written[i].offset, written[i].host_rest);
    CHECK_BYTES(seen, image, SIZE);
}

static void try_write(size_t size, size_t buffer_rest, size_t host_rest)
{
    size_t offset = (written_end / GUARD + 1) * GUARD + buffer_rest;

    if (offset + size > SIZE) {
        check_writes();
        begin_writes();
        offset = buffer_rest;
    }
    if (offset + size > SIZE)
        offset = SIZE - size; /* the last bytes of the buffer */
    CHECK_OK(gdr_copy_to_mapping(buffer.handle, buffer.va + offset, source + host_rest, size));
    memcpy(image + offset, source + host_rest, size);
    written[written_count++] = (struct written){size, offset, host_rest};
    written_end = offset + size;
}

/* ---- From the mapping, each copy by itself ---- */

static void begin_reads(void)
{
    fill_data(image, SIZE, 2);
    gpu_write(buffer.memory.address, image, SIZE);
}

static void try_read(size_t size, size_t buffer_rest, size_t host_rest)
{
    static size_t place = 0;
    size_t before = GUARD + host_rest, window = before + size + GUARD;

    /* Each time at another offset, all over the buffer. */
    place = (place + 37 * GUARD) % SIZE;
    size_t offset = place + buffer_rest;
    if (offset + size > SIZE)
        offset = size + buffer_rest <= SIZE ? buffer_rest : SIZE - size;

    memset(host, BACKGROUND, window);
    memset(expected, BACKGROUND, window);
    memcpy(expected + before, image + offset, size);
    CHECK_OK(gdr_copy_from_mapping(buffer.handle, host + before, buffer.va + offset, size));
    if (memcmp(host, expected, window) != 0)
        print_copy("from", size, offset, host_rest);
    CHECK_BYTES(host, expected, window);
}

/* ---- Which copies ---- */

/* Every number below GUARD in turn, in an order unrelated to that of the sizes. */
static size_t next_rest(void)
{
    static size_t rest = 0;

    rest = (rest + 27) % GUARD;
    return rest;
}

static void sizes_with_other_rests(size_t first, size_t last, size_t step, int times, copy_function *copy)
{
    for (size_t size = first; size <= last; size += step)
        for (int i = 0; i < times; i++) {
            size_t buffer_rest = next_rest();

            copy(size, buffer_rest, (buffer_rest * 5 + next_rest() + (size_t)i) % GUARD);
        }
}

static void sizes_with_all_rests(size_t last, size_t rests, copy_function *copy)
{
    for (size_t size = 0; size <= last; size++)
        for (size_t buffer_rest = 0; buffer_rest < rests; buffer_rest++)
            for (size_t host_rest = 0; host_rest < rests; host_rest++)
                copy(size, buffer_rest, host_rest);
}

/* One byte less, exactly, and one byte more; aligned like words, and unaligned. */
static void powers_of_two(copy_function *copy)
{
    static const size_t rests[][2] = {{0, 0}, {4, 4}, {0, 11}, {11, 0}, {13, 6}};

    for (size_t power = 1024; power <= SIZE; power *= 2)
        for (size_t size = power - 1; size <= power + 1 && size <= SIZE; size++)
            for (size_t i = 0; i < sizeof(rests) / sizeof(rests[0]); i++)
                copy(size, rests[i][0], rests[i][1]);
}

static void usual_copies(copy_function *copy)
{
    sizes_with_all_rests(72, 16, copy);
    sizes_with_other_rests(73, 1024, 1, 4, copy);
    sizes_with_other_rests(1024, SIZE, 8191, 1, copy);
    powers_of_two(copy);
}

static void all_copies(copy_function *copy)
{
    usual_copies(copy);
    sizes_with_all_rests(256, GUARD, copy);
    sizes_with_other_rests(257, 4096, 1, 16, copy);
    sizes_with_other_rests(4096, SIZE, 509, 1, copy);
}

/* ---- Loads and stores without the library ---- */

#define PLAIN(type, offset)                                                                                            \
    do {                                                                                                               \
        volatile type *at = (volatile type *)(void *)(buffer.va + (offset));                                           \
        type value;                                                                                                    \
        memcpy(&value, source + (offset), sizeof(value));                                                              \
        *at = value;                                                                                                   \
    } while (0)

#define CHECK_PLAIN(type, offset)                                                                                      \
    do {                                                                                                               \
        type value = *(const volatile type *)(const void *)(buffer.va + (offset));                                     \
        CHECK_BYTES((const unsigned char *)&value, image + (offset), sizeof(value));                                   \
    } while (0)

static void plain_accesses(void)
{
    begin_writes();
    for (size_t offset = 0; offset + 16 <= 4096; offset += 16) {
        PLAIN(uint64_t, offset);
        PLAIN(uint32_t, offset + 8);
        PLAIN(uint16_t, offset + 12);
        PLAIN(uint8_t, offset + 15);
        memcpy(image + offset, source + offset, 14);
        image[offset + 15] = source[offset + 15];
    }
    __sync_synchronize(); /* empties the write-combining buffers */
    check_writes();

    begin_reads();
    for (size_t offset = 0; offset + 16 <= 4096; offset += 16) {
        CHECK_PLAIN(uint64_t, offset);
        CHECK_PLAIN(uint32_t, offset + 8);
        CHECK_PLAIN(uint16_t, offset + 12);
        CHECK_PLAIN(uint8_t, offset + 15);
    }
}

/* ---- Tests ---- */

static void validate(enum gpu_memory kind, pin_function *pin, void (*for_each)(copy_function *copy))
{
    gdr_t g = open_driver();

    gpu_init();
    buffer = buffer_pin(g, kind, SIZE, pin);
    buffer_map(&buffer);
    fill_data(source, sizeof(source), 1);

    plain_accesses();
    begin_writes();
    for_each(try_write);
    check_writes();
    begin_reads();
    for_each(try_read);
    check_writes(); /* reading has changed nothing */

    buffer_drop(&buffer);
    CHECK_OK(gdr_close(g));
}

static void data_validation(enum gpu_memory kind)
{
    validate(kind, pin, usual_copies);
}

static void data_validation_v2(enum gpu_memory kind)
{
    validate(kind, pin_v2, usual_copies);
}

static void data_validation_v2_forcepci(enum gpu_memory kind)
{
    validate(kind, pin_force_pcie, usual_copies);
}

static void data_validation_exhaustive(enum gpu_memory kind)
{
    validate(kind, pin, all_copies);
}

const struct test data_validation_tests[] = {
    {"data_validation", data_validation, BOTH_KINDS, 0},
    {"data_validation_v2", data_validation_v2, BOTH_KINDS, 0},
    {"data_validation_v2_forcepci", data_validation_v2_forcepci, BOTH_KINDS, 0},
    {"data_validation_exhaustive", data_validation_exhaustive, BOTH_KINDS, 1},
    END_OF_TESTS,
};
