/* Tests of gdr_open in programs with limited address space or locked memory. */

#include "kit/library.h"
#include "process.h"

#include <malloc.h>
#include <sys/mman.h>

#define MIB 1024L /* one MiB, in KiB */

/* Checks that the first gdr_open adds less than `most` KiB to the field `name` of /proc/self/status. */
static void check_open_adds(const char *name, long most)
{
    long before = status_kib(name);
    gdr_t g = open_driver();

    CHECK_COMPARE(status_kib(name) - before, <, most);
    CHECK_OK(gdr_close(g));
}

/* The library leaves almost all of a limited address space to the program. */
static void limited_address_space_stays_the_programs(void)
{
    long before = status_kib("VmSize");
    long limit = before + 1400 * MIB;

    set_limit(RLIMIT_AS, (rlim_t)limit * 1024);
    gdr_t g = open_driver();
    CHECK_COMPARE(status_kib("VmSize") - before, <, limit / 16 + 12 * MIB);
    /* This mmap reserves 900 MiB of addresses, but no memory, which the system may lack. MIB is in KiB. */
    void *memory = mmap(NULL, 900 * MIB * 1024, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(munmap(memory, 900 * MIB * 1024) == 0);
    CHECK_OK(gdr_close(g));
}

/* The library reserves at most a sixteenth of the limit of address space. Here less than a sixteenth is left, so it
   must reserve less. */
static void most_of_the_limit_is_in_use(void)
{
    void *used = mmap(NULL, 2048 * MIB * 1024, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(used != MAP_FAILED);
    set_limit(RLIMIT_AS, (rlim_t)(status_kib("VmSize") + 64 * MIB) * 1024);
    check_open_adds("VmSize", 12 * MIB);
}

/* gdr_open fails if the address space has no room even for a few handles. */
static void no_addresses_are_left(void)
{
    set_limit(RLIMIT_AS, (rlim_t)status_kib("VmSize") * 1024);
    errno = 0;
    CHECK(gdr_open() == NULL);
    CHECK_EQUAL(errno, ENOMEM);
}

static void open_reserves_little(void)
{
    check_open_adds("VmSize", 160 * MIB);
}

/* mlockall() locks the memory that the library uses, not the addresses that it has reserved. */
static void open_locks_little(void)
{
    if (mlockall(MCL_FUTURE) != 0)
        return; /* the process may not lock that much memory */
    check_open_adds("VmLck", 8 * MIB);
}

/* Limits of locked memory in KiB. The first one is a page, and the last one is Linux's default. */
static const long lockable[] = {4, 64, 2048, 8192};
static size_t limited;

#define CONNECTIONS 600 /* more than the 512 handles for which the library gets memory by one call */

/* After mlockall, new memory is locked, up to a limit. The library has room for handles even if the limit is low. */
static void open_works_at_a_limit_of_locked_memory(void)
{
    rlim_t limit = round_up((size_t)lockable[limited] * 1024, (size_t)sysconf(_SC_PAGESIZE));
    gdr_t g[CONNECTIONS];
    void *volatile some;

    if (is_denied("mprotect"))
        return; /* at the limit of locked memory, the library can get memory only by mprotect */
    /* Before the limit is set, malloc gets memory, and keeps it after free(). So it needs no more at the limit. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    some = malloc(16 << 20);
    free(some);
    set_limit(RLIMIT_NOFILE, 4 * CONNECTIONS);
    set_limit(RLIMIT_MEMLOCK, limit);
    drop_ipc_lock();
    CHECK(mlockall(MCL_FUTURE) == 0);
    for (int i = 0; i < CONNECTIONS; i++)
        g[i] = open_driver();
    CHECK_COMPARE((rlim_t)status_kib("VmLck") * 1024, <=, limit);
    for (int i = 0; i < CONNECTIONS; i++)
        CHECK_OK(gdr_close(g[i]));
}

static int locks_memory;

/* The library releases the memory of handles in blocks of 64 KiB, in which each handle has 128 bytes. One live pin
   keeps its whole block in memory. Pins that have ended keep nothing. */
static void few_live_pins_keep_little(void)
{
    enum { LIVE = 20 };
    gdr_mh_t live[LIVE];

    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    if (locks_memory && mlockall(MCL_FUTURE) != 0)
        return; /* this process is not allowed to lock memory */
    gdr_t g = open_driver();
    long before = status_kib("VmRSS");
    for (int i = 0; i < LIVE; i++) {
        live[i] = pin(g, buffer.address, GPU_PAGE_SIZE);
        for (long round = rounds(8192); round > 0; round--)
            CHECK_OK(gdr_unpin_buffer(g, pin(g, buffer.address, GPU_PAGE_SIZE)));
    }
    CHECK_COMPARE(status_kib("VmRSS") - before, <, 8 * MIB);
    for (int i = 0; i < LIVE; i++)
        CHECK_OK(gdr_unpin_buffer(g, live[i]));
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

/* Here the limit of address space leaves room for 2,048 handles. A thousand pins live at once. Then 2,100 pins are made
   and ended one after the other, which works because pins that have ended give their handles back. */
static void few_addresses_are_room_for_many_handles(void)
{
    enum { LIVE = 1000 };
    gdr_mh_t live[LIVE];
    void *used = mmap(NULL, 2048 * MIB * 1024, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(used != MAP_FAILED);
    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    set_limit(RLIMIT_AS, (rlim_t)(status_kib("VmSize") + 6 * MIB) * 1024);
    set_limit(RLIMIT_NOFILE, 2 * LIVE);
    gdr_t g = open_driver();
    for (int i = 0; i < LIVE; i++)
        live[i] = pin(g, buffer.address, GPU_PAGE_SIZE);
    for (int i = 0; i < LIVE; i++)
        CHECK_OK(gdr_unpin_buffer(g, live[i]));
    for (int i = 0; i < 2100; i++)
        CHECK_OK(gdr_unpin_buffer(g, pin(g, buffer.address, GPU_PAGE_SIZE)));
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

int main(void)
{
    /* Each part of the test runs in a new process, because the first gdr_open of a process reserves addresses. */
    in_child(limited_address_space_stays_the_programs);
    in_child(most_of_the_limit_is_in_use);
    in_child(no_addresses_are_left);
    in_child(few_addresses_are_room_for_many_handles);
    in_child(open_reserves_little);
    in_child(open_locks_little);
    for (limited = 0; limited < sizeof(lockable) / sizeof(lockable[0]); limited++)
        in_child(open_works_at_a_limit_of_locked_memory);
    for (locks_memory = 0; locks_memory < 2 && memory_is_its_own(); locks_memory++)
        in_child(few_live_pins_keep_little);
    return passed("address_space");
}
