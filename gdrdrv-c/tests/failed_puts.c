/*
 * Tests of an unpin that fails in the GPU driver with ENOMEM. If the pin is persistent, the module unpins again. If
 * not, the GPU driver keeps the pin until its memory is freed.
 */

#include "device.h"

#define ROUNDS 20

static void check_nothing_pinned(void)
{
    CHECK_EQUAL(gpu_status().page_tables, 0);
    CHECK_EQUAL(page_tables(), 0);
}

static void fail_unpin(int fd, struct gpu_memory memory)
{
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped(fd, handle, GPU_PAGE);

    gpu_fail_put(ENOMEM);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, GPU_PAGE);
    CHECK_ERROR(unpin(fd, handle), EINVAL);
    CHECK(munmap(va, GPU_PAGE) == 0);
}

static void persistent_pins_end(void)
{
    drop_privileges();
    handle_faults();
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    for (int i = 0; i < ROUNDS; i++) {
        int fd = driver_open();

        fail_unpin(fd, memory);
        check_nothing_pinned();
        (void)pinned(fd, memory);
        gpu_fail_put(ENOMEM);
        CHECK(close(fd) == 0);
        check_nothing_pinned();
    }
}

/* At exit, the kernel closes descriptors in the order of their numbers: gdrdrv's first, then emugpu's. */
static void fail_at_exit(void)
{
    int fd = driver_open();

    drop_privileges();
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    CHECK_COMPARE(fd, <, gpu());
    (void)pinned(fd, memory);
    gpu_fail_put(ENOMEM);
}

/* A pin whose unpin has failed ends when its memory is freed. */
static void other_pins_end_with_their_memory(void)
{
    int fd = driver_open();

    drop_privileges();
    handle_faults();
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    fail_unpin(fd, memory);
    CHECK_EQUAL(gpu_status().page_tables, 1);
    CHECK_EQUAL(page_tables(), 1);
    CHECK(close(fd) == 0);
    gpu_free(memory);
    check_nothing_pinned();
}

int main(void)
{
    in_child(pins_persist() ? persistent_pins_end : other_pins_end_with_their_memory);
    in_child(fail_at_exit);
    check_nothing_pinned();
    return passed("failed_puts");
}
