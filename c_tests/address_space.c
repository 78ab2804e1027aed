/* gdr_open in programs whose address space or locked memory is limited. */

#include "kit/library.h"
#include "process.h"

#include <sys/mman.h>

#define MIB 1024L /* in KiB */

/* The first gdr_open adds less than `most` to a number of the process's status. */
static void check_open_adds(const char *name, long most)
{
    long before = status_kib(name);
    gdr_t g = open_driver();

    CHECK_COMPARE(status_kib(name) - before, <, most);
    CHECK_OK(gdr_close(g));
}

/* The library leaves almost all of the rest to the program. */
static void limited_address_space_stays_the_programs(void)
{
    set_limit(RLIMIT_AS, (rlim_t)(status_kib("VmSize") + 1400 * MIB) * 1024);
    gdr_t g = open_driver();
    /* Not malloc, because the system may have less memory. */
    void *memory = mmap(NULL, 900 * MIB * 1024, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(munmap(memory, 900 * MIB * 1024) == 0);
    CHECK_OK(gdr_close(g));
}

/* Memory in use already does not count as left. */
static void most_of_the_limit_is_in_use(void)
{
    void *used = mmap(NULL, 2048 * MIB * 1024, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(used != MAP_FAILED);
    set_limit(RLIMIT_AS, (rlim_t)(status_kib("VmSize") + 64 * MIB) * 1024);
    check_open_adds("VmSize", 12 * MIB);
}

static void open_reserves_little(void)
{
    check_open_adds("VmSize", 160 * MIB);
}

/* Locking all memory locks what the library uses, not what it has reserved. */
static void open_locks_little(void)
{
    if (mlockall(MCL_FUTURE) != 0)
        return; /* not allowed to */
    check_open_adds("VmLck", 8 * MIB);
}

int main(void)
{
    /* The first gdr_open of a process reserves. */
    in_child(limited_address_space_stays_the_programs);
    in_child(most_of_the_limit_is_in_use);
    in_child(open_reserves_little);
    in_child(open_locks_little);
    return passed("address_space");
}
