/* Actions that end a mapping, and others that do not affect it, within one
   process. */

#include "buffer.h"
#include "kit/fault.h"
#include "invalidation.h"
#include "tables.h"

#define SIZE (4 * GPU_PAGE_SIZE)

void check_untouchable(const unsigned char *va, size_t size, int signal)
{
    CHECK_EQUAL(fault_at(va), signal);
    CHECK_EQUAL(fault_at(va + size / 2), signal);
    CHECK_EQUAL(fault_at(va + size - 1), signal);
}

void check_freed_under(const struct buffer *buffer, unsigned seed)
{
    int flag = -1;

    CHECK_OK(gdr_get_callback_flag(buffer->g, buffer->handle, &flag));
    CHECK_EQUAL(info_of(buffer->g, buffer->handle).va, buffer->memory.address);
    if (is_persistent(buffer->g)) {
        CHECK_EQUAL(flag, 0);
        check_pattern(buffer, seed);
        put_pattern(buffer, seed + 1);
        check_pattern(buffer, seed + 1);
    } else {
        CHECK_EQUAL(flag, 1);
        check_untouchable(buffer->va, buffer->memory.size, SIGBUS);
    }
}

/* ---- Tests ---- */

static void invalidation_access_after_gdr_close(enum gpu_memory kind)
{
    gdr_t g = open_driver();
    uint64_t written = 42, seen = 0;

    gpu_init();
    struct buffer buffer = buffer_pin_and_map(g, kind, SIZE);
    check_views_agree(&buffer, 1);
    CHECK_OK(gdr_close(g));
    check_untouchable(buffer.va, buffer.memory.size, SIGBUS);

    /* The memory is CUDA's, and stays. */
    gpu_write(buffer.memory.address, &written, sizeof(written));
    gpu_read(&seen, buffer.memory.address, sizeof(seen));
    CHECK_EQUAL(seen, written);
    gpu_free(&buffer.memory);
}

static void invalidation_access_after_free(enum gpu_memory kind)
{
    gdr_t g = open_driver();

    gpu_init();
    struct buffer buffer = buffer_pin_and_map(g, kind, SIZE);
    put_pattern(&buffer, 1);
    CHECK_EQUAL(flag_of(g, buffer.handle), 0);
    gpu_free(&buffer.memory);
    check_freed_under(&buffer, 1);

    /* The pin must still be unpinned. */
    unmap_and_unpin(g, buffer.handle, buffer.va, buffer.memory.size);
    CHECK_OK(gdr_close(g));
}

static void invalidation_two_mappings(enum gpu_memory kind)
{
    gdr_t g = open_driver();

    gpu_init();
    struct buffer freed = buffer_pin_and_map(g, kind, SIZE);
    struct buffer alive = buffer_pin_and_map(g, kind, SIZE);
    CHECK(freed.va != alive.va && freed.handle.h != alive.handle.h);
    put_pattern(&freed, 1);
    put_pattern(&alive, 2);

    gpu_free(&freed.memory);
    check_pattern(&alive, 2);
    check_freed_under(&freed, 1);
    CHECK_EQUAL(flag_of(g, alive.handle), 0);
    check_views_agree(&alive, 3);

    unmap_and_unpin(g, freed.handle, freed.va, freed.memory.size);
    check_untouchable(freed.va, freed.memory.size, SIGSEGV);
    check_views_agree(&alive, 4);
    buffer_drop(&alive);
    CHECK_OK(gdr_close(g));
}

const struct test invalidation_tests[] = {
    {"invalidation_access_after_gdr_close", invalidation_access_after_gdr_close, BOTH_KINDS, 0},
    {"invalidation_access_after_free", invalidation_access_after_free, BOTH_KINDS, 0},
    {"invalidation_two_mappings", invalidation_two_mappings, BOTH_KINDS, 0},
    END_OF_TESTS,
};
