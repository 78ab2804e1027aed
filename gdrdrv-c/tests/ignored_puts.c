/*
 * Tests of an unpin for which the GPU driver reports success but keeps the pin, because it no longer knows the
 * process. The free callback of that pin comes when its memory is freed. It must not affect other pins or use freed
 * memory.
 *
 * usage: ignored_puts [rounds]
 */

#include "device.h"

#include <sys/syscall.h>

#define OURS 0x11

static long rounds_wanted;

/* A new pin is probably stored where the ended pin was, so the ended pin's late callback could end the new pin. */
static void late_callback_leaves_other_pins(void)
{
    int fd = driver_open();

    run_on(0);
    for (long round = 0; round < rounds_wanted; round++) {
        struct gpu_memory ended = gpu_alloc(GPU_PAGE), memory = gpu_alloc(GPU_PAGE);
        uint64_t handle = pinned(fd, ended);
        uint32_t flag = 77;

        gpu_ignore_put();
        CHECK_OK(unpin(fd, handle));
        CHECK_EQUAL(gpu_status().page_tables, 1);
        handle = pinned(fd, memory);
        unsigned char *va = mapped(fd, handle, GPU_PAGE);
        memset(memory.view, OURS, GPU_PAGE);
        gpu_free(ended);
        CHECK_OK(callback_flag(fd, handle, &flag));
        CHECK_EQUAL(flag, 0);
        CHECK_PAGES(va, GPU_PAGE, OURS);
        CHECK_EQUAL(page_tables(), 1);
        CHECK_OK(unpin(fd, handle));
        CHECK(munmap(va, GPU_PAGE) == 0);
        gpu_free(memory);
        CHECK_EQUAL(page_tables(), 0);
        CHECK_EQUAL(gpu_status().page_tables, 0);
    }
    CHECK(close(fd) == 0);
}

static void ignored_unpin_against_free(void)
{
    struct live_pin live = {.fd = driver_open()};
    unsigned int seed = 1;

    for (long round = 0; round < rounds_wanted; round++) {
        struct gpu_memory memory = gpu_alloc(GPU_PAGE);

        live.handle = pinned(live.fd, memory);
        gpu_inject((struct emugpu_inject){.nth_put = 1,
                                          .put_delay = (uint32_t)(round % 3) * 100,
                                          .callback_delay = (uint32_t)(round % 5) * 50});
        pthread_t thread = start_thread(unpin_thread, &live);
        delay(&seed, 200000);
        gpu_free(memory);
        finish_thread(thread);
        CHECK_EQUAL(page_tables(), 0);
        CHECK_EQUAL(gpu_status().page_tables, 0);
    }
    CHECK(close(live.fd) == 0);
}

static int freed[2], go[2];

/*
 * Pins, and exits. The exit closes gdrdrv before emugpu, as gdrdrv's descriptor has the smaller number. A child has a
 * copy of emugpu's descriptor, which keeps the memory until the child is asked to end.
 */
static void owner(void)
{
    int mine = driver_open();

    drop_privileges();
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    CHECK_COMPARE(mine, <, gpu());
    (void)pinned(mine, memory);
    gpu_ignore_put();
    if (fork() == 0) {
        CHECK(close(mine) == 0 && close(go[1]) == 0);
        await(go[0]);
        _exit(0);
    }
}

static void owner_exits_before_its_memory_is_freed(void)
{
    char byte;

    for (long round = 0; round < rounds_wanted / 10 + 1; round++) {
        CHECK(pipe(freed) == 0 && pipe(go) == 0);
        in_child(owner);
        CHECK(close(freed[1]) == 0);
        say(go[1]);
        CHECK(read(freed[0], &byte, 1) == 0); /* the child has ended */
        while (gpu_status().page_tables != 0)
            sched_yield();
        CHECK_EQUAL(page_tables(), 0);
        CHECK(close(freed[0]) == 0 && close(go[0]) == 0 && close(go[1]) == 0);
    }
}

static void unprivileged(void)
{
    drop_privileges();
    handle_faults();
    late_callback_leaves_other_pins();
    ignored_unpin_against_free();
}

int main(int argc, char **argv)
{
    rounds_wanted = argc > 1 ? atol(argv[1]) : 300;
    if (pins_persist())
        waive("persistent pins have no callback");
    in_child(unprivileged);
    owner_exits_before_its_memory_is_freed();
    /* The module cannot be unloaded, because it cannot find out whether the GPU driver will still call it back. */
    CHECK(syscall(SYS_delete_module, "gdrdrv", O_NONBLOCK) < 0);
    CHECK_EQUAL(errno, EWOULDBLOCK);
    return passed("ignored_puts");
}
