/*
 * An unpin that fails in the GPU driver with ENOMEM. It keeps persistent pins until it is asked again, at the next
 * unpin of any process, or when the file is closed. Ordinary ones it keeps until their memory is freed.
 */

#include "device.h"

#define ROUNDS 20

/* The process has lost the pin, which the GPU driver keeps. */
static void fail_unpin(int fd, struct gpu_memory memory)
{
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped(fd, handle, GPU_PAGE);
    uint64_t before = gpu_status().page_tables;

    gpu_fail_put(ENOMEM);
    CHECK_OK(unpin(fd, handle));
    CHECK_EQUAL(gpu_status().page_tables, before);
    CHECK_PAGES_GONE(va, GPU_PAGE);
    CHECK_ERROR(unpin(fd, handle), EINVAL);
    CHECK(munmap(va, GPU_PAGE) == 0);
}

static void check_nothing_pinned(void)
{
    CHECK_EQUAL(gpu_status().page_tables, 0);
    CHECK_EQUAL(page_tables(), 0);
}

static void next_unpin_retries(void)
{
    struct gpu_memory first = gpu_alloc(GPU_PAGE), second = gpu_alloc(GPU_PAGE);
    int fd = driver_open();

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t handle = pinned(fd, second);

        fail_unpin(fd, first);
        CHECK_OK(unpin(fd, handle));
        check_nothing_pinned();
    }
    CHECK(close(fd) == 0);
}

/* Each unpin retries the one before, and one of the two fails. */
static void failed_retries_are_retried(void)
{
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    int fd = driver_open();

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t handle = pinned(fd, memory);

        gpu_fail_put(ENOMEM);
        CHECK_OK(unpin(fd, handle));
        CHECK_EQUAL(gpu_status().page_tables, 1);
        CHECK_EQUAL(page_tables(), 1);
    }
    CHECK_OK(unpin(fd, pinned(fd, memory)));
    check_nothing_pinned();
    CHECK(close(fd) == 0);
}

static void close_retries(void)
{
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);

    for (int i = 0; i < ROUNDS; i++) {
        int fd = driver_open();

        fail_unpin(fd, memory);
        CHECK(close(fd) == 0);
        check_nothing_pinned();
    }
}

/* The close of the file itself fails to unpin. */
static void close_that_fails_is_retried(void)
{
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    int fd = driver_open(), other = driver_open();

    (void)pinned(fd, memory);
    gpu_fail_put(ENOMEM);
    CHECK(close(fd) == 0);
    CHECK_OK(unpin(other, pinned(other, memory)));
    check_nothing_pinned();
    CHECK(close(other) == 0);
}

static void unprivileged(void)
{
    drop_privileges();
    handle_faults();
    next_unpin_retries();
    failed_retries_are_retried();
    close_retries();
    close_that_fails_is_retried();
}

/* gdrdrv is closed first, because it has the smaller number. */
static void fail_at_exit(void)
{
    int fd = driver_open();

    drop_privileges();
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    CHECK(fd < gpu());
    (void)pinned(fd, memory);
    gpu_fail_put(ENOMEM);
}

static void exit_is_retried(void)
{
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    int fd = driver_open();

    in_child(fail_at_exit);
    CHECK_OK(unpin(fd, pinned(fd, memory)));
    check_nothing_pinned();
}

static void *unpinner(void *fd)
{
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);

    for (int i = 0; i < 20 * ROUNDS; i++)
        CHECK_OK(unpin(*(int *)fd, pinned(*(int *)fd, memory)));
    return NULL;
}

/* Failures while another thread unpins, each retried once. */
static void retries_race(void)
{
    drop_privileges();
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    int fd = driver_open();
    pthread_t thread = started_on(1, unpinner, &fd);
    for (int i = 0; i < 20 * ROUNDS; i++) {
        gpu_fail_put(ENOMEM);
        CHECK_OK(unpin(fd, pinned(fd, memory)));
    }
    finish_thread(thread);
    gpu_inject((struct emugpu_inject){.nth_put = 0});
    CHECK_OK(unpin(fd, pinned(fd, memory)));
    check_nothing_pinned();
}

/* A pin that the process gave up in vain ends with its memory. */
static void ordinary_pins_end_with_their_memory(void)
{
    int fd = driver_open();

    drop_privileges();
    handle_faults();
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    fail_unpin(fd, memory);
    CHECK(close(fd) == 0);
    gpu_free(memory);
    check_nothing_pinned();
}

int main(void)
{
    if (pins_persist()) {
        in_child(unprivileged);
        in_child(retries_race);
        exit_is_retried();
    } else {
        in_child(ordinary_pins_end_with_their_memory);
        in_child(fail_at_exit);
        check_nothing_pinned();
    }
    return passed("failed_puts");
}
