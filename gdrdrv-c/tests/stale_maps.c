/*
 * One thread repeatedly maps a pin, while another thread unpins it. A mapping that the kernel was making when its pin
 * ended must not give access to memory. In other rounds the second thread has its own descriptor table, and exits or
 * closes its copy of the descriptor. That must not end the pin, because a pin ends with its process, not with a thread.
 *
 * usage: stale_maps [exit|close|unpin [rounds]]
 */

#include "device.h"

#define OURS 0x77
#define THEIRS 0x5e

enum end { EXIT, CLOSE, UNPIN };

static struct gpu_memory memory;
static int fd;
static uint64_t handle;
static enum end how;
static int ready, go, ended;

static void *ender(void *seed)
{
    if (how != UNPIN) {
        int gpu_fd = gpu();

        CHECK(unshare(CLONE_FILES) == 0);
        CHECK(close(gpu_fd) == 0);
    }
    __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
        ;
    delay(seed, 20000);
    if (how == CLOSE)
        CHECK(close(fd) == 0);
    if (how == UNPIN)
        CHECK_OK(unpin(fd, handle));
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

/*
 * Maps until the pin has ended. If the pin outlives the other thread, maps a few times more: the kernel closes the
 * thread's descriptors after the thread has set `ended`, and that must not end the pin either.
 */
static unsigned char *map_while_pin_ends(long *maps)
{
    struct gdrdrv_get_info_v2 i;
    unsigned char *va = NULL;
    int more = 5;

    for (;;) {
        if (__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
            more--;
        int error = map(fd, handle, GPU_PAGE, &va);
        if (error != 0) {
            CHECK_EQUAL(error, EINVAL);
            return NULL;
        }
        (*maps)++;
        if (more <= 0 || info(fd, handle, &i) != 0)
            return va;
        CHECK(munmap(va, GPU_PAGE) == 0);
    }
}

static void run(enum end end, const char *name, long rounds_wanted)
{
    unsigned int seed = 1;
    long maps = 0, caught = 0;

    how = end;
    for (long round = 0; round < rounds_wanted; round++) {
        struct gdrdrv_get_info_v2 i;
        unsigned char value = 0;

        fd = driver_open();
        handle = pinned(fd, memory);
        ready = go = ended = 0;
        pthread_t thread = started_on(1, ender, &seed);
        while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
            ;
        __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
        unsigned char *va = map_while_pin_ends(&maps);
        finish_thread(thread);

        int is_gone = info(fd, handle, &i) != 0;
        if (va != NULL && is_gone) {
            caught++;
            CHECK_EQUAL(page_tables(), 0);
            if (touch(va, &value) == 0) {
                gpu_free(memory);
                struct gpu_memory next = gpu_alloc(GPU_PAGE); /* gets the same page, because no other is free */
                memset(next.view, THEIRS, GPU_PAGE);
                (void)touch(va, &value);
                fprintf(stderr, "%s, round %ld: nothing is pinned, and the mapping shows %#x, the next owner's %#x\n",
                        name, round, value, THEIRS);
                exit(1);
            }
        }
        CHECK_EQUAL(is_gone, how == UNPIN);
        if (!is_gone)
            CHECK_PAGES(va, GPU_PAGE, OURS);
        if (va != NULL)
            CHECK(munmap(va, GPU_PAGE) == 0);
        CHECK(close(fd) == 0);
        while (page_tables() != 0) /* the other thread's descriptors are closed only after its last instruction */
            sched_yield();
    }
    printf("%s: %ld rounds, %ld mmaps, %ld mapped as the pin ended\n", name, rounds_wanted, maps, caught);
}

int main(int argc, char **argv)
{
    const char *const names[] = {"exit", "close", "unpin"};
    long rounds_wanted = argc > 2 ? atol(argv[2]) : 300;

    handle_faults();
    run_on(0);
    gpu_leave_free(GPU_PAGE);
    memory = gpu_alloc(GPU_PAGE);
    memset(memory.view, OURS, GPU_PAGE);
    for (enum end end = EXIT; end <= UNPIN; end++)
        if (argc < 2 || strcmp(argv[1], names[end]) == 0)
            run(end, names[end], rounds_wanted);
    return passed("stale_maps");
}
