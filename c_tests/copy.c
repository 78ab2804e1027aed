/* Tests of gdr_copy_to_mapping and gdr_copy_from_mapping. CUDA must see the same bytes. */

#include "bodies.h"

#define GUARD 128
#define SMALL 1100
#define LARGE (16UL << 20)
#define SIZE (LARGE + GPU_PAGE_SIZE)

static gdr_t g;
static struct gpu_buffer buffer;
static gdr_mh_t handle;
static unsigned char *va;

static unsigned char host[LARGE + 2 * GUARD], wanted[LARGE + 2 * GUARD], seen[LARGE + 2 * GUARD];

/*
 * Copies `size` bytes from offset `host_at` of the host buffer to a GPU address that is `gpu_at` bytes past the start
 * of a cache line. The bytes around the copy must stay as they were.
 */
static void check_write(size_t size, size_t gpu_at, size_t host_at)
{
    size_t window = size + 2 * GUARD;

    memset(wanted, 0xee, window);
    gpu_write(buffer.address, wanted, window);
    fill(host, size + GUARD, (unsigned)(size + gpu_at));
    memcpy(wanted + 64 + gpu_at, host + host_at, size);
    CHECK_OK(gdr_copy_to_mapping(handle, va + 64 + gpu_at, host + host_at, size));
    gpu_read(seen, buffer.address, window);
    CHECK_BYTES(seen, wanted, window);
}

static void check_read(size_t size, size_t gpu_at, size_t host_at)
{
    size_t window = size + 2 * GUARD;

    fill(host, window, (unsigned)(size ^ gpu_at));
    gpu_write(buffer.address, host, window);
    memset(wanted, 0xee, window);
    memset(seen, 0xee, window);
    memcpy(wanted + 64 + host_at, host + gpu_at, size);
    CHECK_OK(gdr_copy_from_mapping(handle, seen + 64 + host_at, va + gpu_at, size));
    CHECK_BYTES(seen, wanted, window);
}

static void small_sizes_and_alignments_arrive(size_t step)
{
    static const size_t host_alignments[] = {0, 1, 4, 8, 31, 48};

    for (size_t size = 0; size <= SMALL; size += step) {
        for (size_t gpu_at = 0; gpu_at < 64; gpu_at += size <= 160 ? step : 13) {
            for (size_t i = 0; i < sizeof(host_alignments) / sizeof(host_alignments[0]); i += size <= 64 ? 1 : 5) {
                check_write(size, gpu_at, host_alignments[i]);
                check_read(size, gpu_at, host_alignments[i]);
            }
        }
    }
}

static void large_sizes_arrive(size_t most)
{
    for (size_t size = 2048; size <= most; size *= 2) {
        check_write(size, 0, 0);
        check_read(size, 0, 0);
        check_write(size - 1, 1, 3);
        check_read(size - 1, 1, 3);
        check_write(size - 56, 60, 17);
        check_read(size - 56, 60, 17);
    }
}

/* Copies at both ends of a mapping of one GPU page. If a copy accessed bytes outside the mapping, it might fault. */
static void copies_at_the_edges_stay_within_the_mapping(void)
{
    gdr_mh_t page = pin(g, buffer.address, GPU_PAGE_SIZE);
    unsigned char *first = map(g, page, GPU_PAGE_SIZE);
    unsigned char *end = first + GPU_PAGE_SIZE;

    for (size_t size = 1; size <= 300; size++) {
        fill(host, size, (unsigned)size);
        CHECK_OK(gdr_copy_to_mapping(page, end - size, host, size));
        gpu_read(seen, buffer.address + GPU_PAGE_SIZE - size, size);
        CHECK_BYTES(seen, host, size);
        memset(seen, 0, size);
        CHECK_OK(gdr_copy_from_mapping(page, seen, end - size, size));
        CHECK_BYTES(seen, host, size);
        memset(seen, 0, size);
        CHECK_OK(gdr_copy_to_mapping(page, first, host, size));
        CHECK_OK(gdr_copy_from_mapping(page, seen, first, size));
        CHECK_BYTES(seen, host, size);
    }
    CHECK_OK(gdr_unpin_buffer(g, page));
}

/* Copies words of 1, 2, 4 and 8 bytes. Also loads and stores words in the mapping, as programs do that poll flags. */
static void aligned_words_arrive(void)
{
    uint64_t value = 0x1122334455667788;
    uint64_t word = 0;

    for (size_t size = 1; size <= 8; size *= 2) {
        word = 0;
        CHECK_OK(gdr_copy_to_mapping(handle, va + 256, &word, 8));
        CHECK_OK(gdr_copy_to_mapping(handle, va + 256, &value, size));
        gpu_read(&word, buffer.address + 256, 8);
        CHECK_EQUAL(word, size == 8 ? value : value & ((1ULL << (8 * size)) - 1));
    }
    gpu_write(buffer.address + 256, &value, 8);
    CHECK_EQUAL(*(volatile uint64_t *)(va + 256), value);
    *(volatile uint32_t *)(va + 256) = 7;
    CHECK_OK(gdr_copy_from_mapping(handle, &word, va + 256, 8));
    CHECK_EQUAL(word, (value & 0xffffffff00000000) | 7);
}

static void a_size_of_0_touches_nothing(void)
{
    CHECK_OK(gdr_copy_to_mapping(handle, va, host, 0));
    CHECK_OK(gdr_copy_from_mapping(handle, host, va, 0));
    CHECK_OK(gdr_copy_to_mapping(handle, NULL, NULL, 0));
    CHECK_OK(gdr_copy_from_mapping(handle, NULL, NULL, 0));
    CHECK_OK(gdr_copy_to_mapping(handle, (void *)1, (void *)1, 0));
}

static void null_is_refused(void)
{
    unsigned char byte = 0x5a;

    CHECK_ERROR(gdr_copy_to_mapping(handle, va, NULL, 1), EINVAL);
    CHECK_ERROR(gdr_copy_to_mapping(handle, NULL, &byte, 1), EINVAL);
    CHECK_ERROR(gdr_copy_from_mapping(handle, NULL, va, 1), EINVAL);
    CHECK_ERROR(gdr_copy_from_mapping(handle, &byte, NULL, 1), EINVAL);
    CHECK_EQUAL(byte, 0x5a);
}

/* The library does not check that an address is in the pin's mapping, because some programs pass addresses outside of
   the mapping. */
static void addresses_outside_the_mapping_are_not_checked(void)
{
    char from[16] = "0123456789abcde", to[16] = "";

    CHECK_OK(gdr_copy_to_mapping(handle, to, from, sizeof(from)));
    CHECK_STRING(to, from);
}

static void a_pin_without_mapping_is_refused(void)
{
    gdr_mh_t unmapped = pin(g, buffer.address, GPU_PAGE_SIZE);
    unsigned char byte = 0x5a;

    CHECK_ERROR(gdr_copy_to_mapping(unmapped, &byte, &byte, 1), EINVAL);
    CHECK_ERROR(gdr_copy_from_mapping(unmapped, &byte, va, 1), EINVAL);
    CHECK_ERROR(gdr_copy_to_mapping(unmapped, &byte, &byte, 0), EINVAL);
    CHECK_ERROR(gdr_copy_from_mapping(unmapped, &byte, &byte, 0), EINVAL);
    void *mapping = map(g, unmapped, GPU_PAGE_SIZE);
    CHECK_OK(gdr_copy_to_mapping(unmapped, mapping, &byte, 1));
    CHECK_OK(gdr_unmap(g, unmapped, mapping, GPU_PAGE_SIZE));
    CHECK_ERROR(gdr_copy_to_mapping(unmapped, mapping, &byte, 1), EINVAL);
    CHECK_ERROR(gdr_copy_from_mapping(unmapped, &byte, mapping, 1), EINVAL);
    CHECK_OK(gdr_unpin_buffer(g, unmapped));
}

static void begin(enum gpu_memory kind, pin_function *pin)
{
    gpu_init();
    buffer = gpu_alloc(kind, SIZE);
    g = open_driver();
    handle = pin(g, buffer.address, SIZE);
    va = map(g, handle, SIZE);
}

static void end(void)
{
    unmap_and_unpin(g, handle, va, SIZE);
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

void copies_arrive(enum gpu_memory kind, pin_function *pin, size_t step)
{
    begin(kind, pin);
    small_sizes_and_alignments_arrive(step);
    large_sizes_arrive(step > 1 ? LARGE / 16 : LARGE);
    copies_at_the_edges_stay_within_the_mapping();
    aligned_words_arrive();
    end();
}

int main(void)
{
    copies_arrive(MEM_ALLOC, pin, slowness() > 1 ? 37 : 1);
    copies_arrive(MEM_CREATE, pin, slowness() > 1 ? 37 : 1);
    begin(MEM_ALLOC, pin);
    a_size_of_0_touches_nothing();
    null_is_refused();
    addresses_outside_the_mapping_are_not_checked();
    a_pin_without_mapping_is_refused();
    end();
    return passed("copy");
}
