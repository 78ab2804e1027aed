/*
 * One thread unpins a pin or closes its file, while another frees the pin's memory and pins again. To unpin,
 * emugpu looks for the pin by the address of its page table. By then, the page table of the new pin can have that
 * address. The new pin must stay.
 *
 * usage: reused_tables [rounds [microseconds]]
 *
 *   microseconds   between the call of emugpu's unpin and its search for the pin (default: 1000)
 */

#include "device.h"

#define DELAY 10000

static int fd, others;
static uint64_t ended;
static int closes; /* the thread closes the file instead of unpinning */
static int go, ending;

static void *ender(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
        ;
    __atomic_store_n(&ending, 1, __ATOMIC_RELEASE);
    if (closes)
        CHECK(close(others) == 0);
    else
        CHECK_OK(unpin(others, ended));
    __atomic_store_n(&ending, 0, __ATOMIC_RELEASE);
    return NULL;
}

int main(int argc, char **argv)
{
    long rounds_wanted = argc > 1 ? atol(argv[1]) : 2000, met = 0;
    uint32_t wait = argc > 2 ? (uint32_t)atoi(argv[2]) : 1000;
    unsigned int seed = 1;

    if (pins_persist())
        waive("the GPU driver undoes persistent pins only by request");
    drop_privileges();
    handle_faults();
    run_on(0);
    fd = driver_open();
    others = driver_open();
    gpu_inject((struct emugpu_inject){.put_delay = wait});
    for (long round = 0; round < rounds_wanted; round++) {
        struct gpu_memory memory = gpu_alloc(GPU_PAGE);

        ended = pinned(others, memory);
        closes = round % 4 == 3;
        go = ending = 0;
        pthread_t thread = started_on(1, ender, NULL);
        __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
        delay(&seed, DELAY);
        gpu_renew(memory);
        met += __atomic_load_n(&ending, __ATOMIC_ACQUIRE);
        uint64_t handle = pinned(fd, memory);
        finish_thread(thread);

        if (gpu_status().page_tables != 1) {
            fprintf(stderr, "%s:%d: round %ld: the GPU driver has %llu page tables, gdrdrv %ld\n", __FILE__, __LINE__,
                    round, (unsigned long long)gpu_status().page_tables, page_tables());
            return 1;
        }
        unsigned char *va = mapped(fd, handle, GPU_PAGE);
        memory.view[0] = (unsigned char)round;
        CHECK_EQUAL(va[0], (unsigned char)round);
        CHECK_OK(unpin(fd, handle));
        CHECK(munmap(va, GPU_PAGE) == 0);
        CHECK_EQUAL(page_tables(), 0);
        gpu_free(memory);
        if (closes)
            others = driver_open();
    }
    CHECK(met > 0);
    printf("%ld rounds, memory freed during the unpin in %ld\n", rounds_wanted, met);
    return passed("reused_tables");
}
