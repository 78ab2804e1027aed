/* Tests of processes that SIGKILL ends. Their pins end at once, even if another process has the descriptor, too. */

#include "device.h"

#define PINS 1000
#define CHILDREN 300
#define PARENT_PINS 8

/* Pins 1,000 pages, and maps every second one. Starts a child that only keeps the descriptor open. Then waits. */
static void pin_and_wait(void)
{
    struct gpu_memory memory = gpu_alloc(PINS * GPU_PAGE);
    int fd = driver_open();
    uint64_t handle;
    unsigned char value;

    CHECK(setpgid(0, 0) == 0);
    for (int i = 0; i < PINS; i++) {
        CHECK_OK(pin(fd, memory.va + (uint64_t)i * GPU_PAGE, GPU_PAGE, &handle));
        if (i % 2)
            CHECK_EQUAL(touch(mapped(fd, handle, GPU_PAGE), &value), 0);
    }
    CHECK_EQUAL(page_tables(), PINS);
    if (fork() == 0) {
        pause();
        _exit(0);
    }
    next_step();
}

static void killed_process_loses_1000_pins(void)
{
    pid_t child = start_steps(pin_and_wait);

    await(steps[0]);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_EQUAL(page_tables(), 0);
    CHECK(kill(-child, SIGKILL) == 0);
    CHECK(close(steps[0]) == 0);
}

static struct gpu_memory memory[PARENT_PINS];
static uint64_t handles[PARENT_PINS];
static unsigned char *va[PARENT_PINS];
static int parents_fd;
static int storm_over;

static void storm_child(int number)
{
    unsigned char argument[64] = {0}, value;

    CHECK_ERROR(command(parents_fd, GDRDRV_IOC_GET_VERSION, argument), EACCES);
    CHECK_EQUAL(touch(va[0], &value), SIGSEGV);
    if (number % 3 == 0) {
        struct gpu_memory own = gpu_alloc(GPU_PAGE);
        int fd = driver_open();

        memset(own.view, number, GPU_PAGE);
        CHECK_PAGES(mapped(fd, pinned(fd, own), GPU_PAGE), GPU_PAGE, (unsigned char)number);
    }
    if (number % 3 == 1)
        close(parents_fd);
    if (number % 2)
        raise(SIGKILL);
    _exit(0);
}

/* Pins, maps and unpins while children fork and end. */
static void *pin_until_storm_over(void *unused)
{
    struct gpu_memory more = gpu_alloc(4 * GPU_PAGE);

    (void)unused;
    while (!__atomic_load_n(&storm_over, __ATOMIC_RELAXED)) {
        uint64_t handle = pinned(parents_fd, more);
        unsigned char *at = mapped(parents_fd, handle, 4 * GPU_PAGE);

        CHECK_PAGES(at, 4 * GPU_PAGE, 0);
        CHECK_OK(unpin(parents_fd, handle));
        CHECK_PAGES_GONE(at, 4 * GPU_PAGE);
        CHECK(munmap(at, 4 * GPU_PAGE) == 0);
    }
    gpu_free(more);
    return NULL;
}

/* Waits for the end of a child. Returns 1, the number of children that ended. */
static int storm_child_ends(void)
{
    int status;

    CHECK(wait(&status) > 0);
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
    return 1;
}

static void fork_storm_does_not_affect_the_parent(void)
{
    int running = 0;

    parents_fd = driver_open();
    for (int i = 0; i < PARENT_PINS; i++) {
        memory[i] = gpu_alloc(GPU_PAGE);
        memset(memory[i].view, 0x10 + i, GPU_PAGE);
        handles[i] = pinned(parents_fd, memory[i]);
        va[i] = mapped(parents_fd, handles[i], GPU_PAGE);
    }
    pthread_t thread = start_thread(pin_until_storm_over, NULL);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0)
            storm_child(i);
        if (++running == 16)
            running -= storm_child_ends();
    }
    while (running > 0)
        running -= storm_child_ends();
    __atomic_store_n(&storm_over, 1, __ATOMIC_RELAXED);
    finish_thread(thread);

    CHECK_EQUAL(page_tables(), PARENT_PINS);
    for (int i = 0; i < PARENT_PINS; i++)
        CHECK_PAGES(va[i], GPU_PAGE, (unsigned char)(0x10 + i));
    CHECK(close(parents_fd) == 0);
    CHECK_EQUAL(page_tables(), PARENT_PINS);
    for (int i = 0; i < PARENT_PINS; i++)
        CHECK(munmap(va[i], GPU_PAGE) == 0);
    CHECK_EQUAL(page_tables(), 0);
}

int main(void)
{
    handle_faults();
    killed_process_loses_1000_pins();
    fork_storm_does_not_affect_the_parent();
    return passed("killed");
}
