/* gdr_open in programs whose address space or locked memory is limited. */

#include "kit/library.h"
#include "process.h"

#include <sys/mman.h>
#include <sys/resource.h>

#define MIB 1024L /* in KiB */

/* The library leaves almost all of the rest to the program. */
static void limited_address_space_stays_the_programs(void)
{
    const rlim_t left = 1400 * MIB;
    struct rlimit limit;
    void *memory;
    gdr_t g;

    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = ((rlim_t)status_kib("VmSize") + left) * 1024;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return; /* there is a lower limit already */
    g = gdr_open();
    CHECK(g != NULL);
    /* Not malloc, because the system may have less memory. */
    memory = mmap(NULL, 900 * MIB * 1024, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(munmap(memory, 900 * MIB * 1024) == 0);
    CHECK_OK(gdr_close(g));
}

/* Memory in use already does not count as left. */
static void most_of_the_limit_is_in_use(void)
{
    const rlim_t left = 64 * MIB;
    void *used = mmap(NULL, 2048 * MIB * 1024, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct rlimit limit;
    long before;
    gdr_t g;

    CHECK(used != MAP_FAILED);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    before = status_kib("VmSize");
    limit.rlim_cur = ((rlim_t)before + left) * 1024;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return; /* there is a lower limit already */
    g = gdr_open();
    CHECK(g != NULL);
    CHECK(status_kib("VmSize") - before < 12 * MIB);
    CHECK_OK(gdr_close(g));
}

static void open_reserves_little(void)
{
    long before = status_kib("VmSize");
    gdr_t g = gdr_open();

    CHECK(g != NULL);
    CHECK(status_kib("VmSize") - before < 160 * MIB);
    CHECK_OK(gdr_close(g));
}

/* Locking all memory locks what the library uses, not what it has reserved. */
static void open_locks_little(void)
{
    long before;
    gdr_t g;

    if (mlockall(MCL_FUTURE) != 0)
        return; /* not allowed to */
    before = status_kib("VmLck");
    g = gdr_open();
    CHECK(g != NULL);
    CHECK(status_kib("VmLck") - before < 8 * MIB);
    CHECK_OK(gdr_close(g));
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
