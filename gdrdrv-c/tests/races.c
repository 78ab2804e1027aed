/*
 * One thread frees the memory of a pin, another maps and reads the pin, and a third unpins it or closes the device. In
 * any order, a read returns the pin's data or raises SIGBUS. It never returns data of the next allocation. Nothing
 * stays mapped, and nothing is released twice.
 *
 * usage: races [rounds]
 */

#include "device.h"

#define SIZE (2 * GPU_PAGE)
#define OURS 0x11
#define THEIRS 0x5e
#define DELAY 20000
#define WAKING 10

static long rounds_wanted;
static int outlives_free; /* 1 if pins are persistent */

/* The state of one round. */
static struct gpu_memory memory;
static uint64_t handle;
static int fd;
static int closes; /* the third thread closes the device instead of unpinning */
static unsigned char *mapping; /* NULL if mmap failed, because the pin had ended */
static int ended; /* the call that ends access has returned */
static int closed;

static pthread_barrier_t begin, end;

/* The numbers of maps and reads, in all rounds together, that succeeded before the pin ended. */
static long mapped_in_time, read_in_time;

static void map_and_read(void)
{
    unsigned char *va = NULL, value;
    int error = map(fd, handle, SIZE, &va), signal;
    size_t at = 0;

    mapping = NULL;
    if (error) {
        CHECK(error == EINVAL || (closes && error == EBADF));
        return;
    }
    mapping = va;
    mapped_in_time++;
    for (;;) {
        int over = __atomic_load_n(&ended, __ATOMIC_ACQUIRE);

        signal = touch(va + at, &value);
        if (signal != 0)
            break;
        CHECK_EQUAL(value, OURS);
        CHECK(!over);
        read_in_time++;
        /* A persistent pin of a closed file lasts as long as its mapping, so this loop would never end. */
        if (outlives_free && __atomic_load_n(&closed, __ATOMIC_ACQUIRE))
            return;
        at = (at + PAGE) % SIZE;
        if (at == 0)
            sched_yield(); /* there may be only two processors for three threads */
    }
    CHECK_EQUAL(signal, SIGBUS);
}

static void unpin_or_close(void)
{
    if (closes) {
        CHECK(close(fd) == 0);
        __atomic_store_n(&closed, 1, __ATOMIC_RELEASE);
    } else {
        CHECK_OK(unpin(fd, handle));
        __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    }
}

static void *repeated(void *part)
{
    unsigned int seed = part == map_and_read ? 1 : 2;

    for (long round = 0; round < rounds_wanted; round++) {
        pthread_barrier_wait(&begin);
        delay(&seed, DELAY);
        ((void (*)(void))part)();
        pthread_barrier_wait(&end);
    }
    return NULL;
}

static void free_against_map_against_unpin(void)
{
    unsigned int seed = 3;

    pthread_barrier_init(&begin, NULL, 3);
    pthread_barrier_init(&end, NULL, 3);
    pthread_t mapper = start_thread(repeated, map_and_read);
    pthread_t unpinner = start_thread(repeated, unpin_or_close);
    fd = driver_open();
    for (long round = 0; round < rounds_wanted; round++) {
        memory = gpu_alloc(SIZE);
        memset(memory.view, OURS, SIZE);
        handle = pinned(fd, memory);
        closes = round % 4 == 3;
        ended = closed = 0;

        pthread_barrier_wait(&begin);
        delay(&seed, WAKING * DELAY); /* a longer delay, because the other threads may still have to wake up */
        gpu_free(memory);
        if (!outlives_free)
            __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
        struct gpu_memory next = gpu_alloc(SIZE);
        memset(next.view, THEIRS, SIZE);
        pthread_barrier_wait(&end);

        if (mapping) {
            if (closes && outlives_free)
                CHECK_PAGES(mapping, SIZE, OURS);
            else
                CHECK_PAGES_GONE(mapping, SIZE);
            CHECK(munmap(mapping, SIZE) == 0);
        }
        CHECK_EQUAL(page_tables(), 0);
        gpu_free(next);
        if (closes)
            fd = driver_open();
    }
    pthread_join(mapper, NULL);
    pthread_join(unpinner, NULL);
    CHECK(close(fd) == 0);
    /* If this fails, mmap or the reads always came too late. */
    CHECK(mapped_in_time > 0 && mapped_in_time <= rounds_wanted);
    CHECK(read_in_time > 0);
}

static void *freer(void *patience)
{
    unsigned int seed = (unsigned int)memory.va;

    delay(&seed, DELAY * *(const unsigned int *)patience);
    gpu_free(memory);
    return NULL;
}

/* emugpu's delays let memory be freed before its pin is complete, and let a pin be unpinned while its callback runs. */
static void free_against_pin(void)
{
    unsigned int patience = 1;
    long made = 0;

    fd = driver_open();
    for (long round = 0; round < rounds_wanted / 10 || made == 0; round++) {
        gpu_inject((struct emugpu_inject){.pin_delay = (uint32_t)(round % 7) * 50,
                                          .callback_delay = (uint32_t)(round % 5) * 50});
        memory = gpu_alloc(SIZE);
        pthread_t thread = start_thread(freer, &patience);
        int error = pin(fd, memory.va, SIZE, &handle);
        if (error == 0) {
            made++;
            CHECK_OK(unpin(fd, handle));
            CHECK_EQUAL(page_tables(), 0); /* unpin waits for a callback that is running */
        } else {
            CHECK_EQUAL(error, EINVAL);
        }
        pthread_join(thread, NULL);
        CHECK_EQUAL(page_tables(), 0);
        patience += made == 0; /* so far, each free came before the pin was complete, so the next round frees later */
    }
    gpu_inject((struct emugpu_inject){0});
    CHECK(close(fd) == 0);
}

int main(int argc, char **argv)
{
    fd = driver_open();
    outlives_free = persistent(fd);
    /* Persistent pins are never revoked, so fewer races are possible. */
    rounds_wanted = argc > 1 ? atol(argv[1]) : outlives_free ? 2000 : 5000;
    CHECK(close(fd) == 0);
    handle_faults();
    gpu_leave_free(3 * SIZE);
    free_against_map_against_unpin();
    free_against_pin();
    printf("%ld rounds, mapped in time in %ld, %ld reads\n", rounds_wanted, mapped_in_time, read_in_time);
    return passed("races");
}
