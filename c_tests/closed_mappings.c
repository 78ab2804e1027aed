/* Tests that the addresses of a mapping stay reserved after gdr_unpin_buffer has removed the mapping. */

#include "kit/fault.h"
#include "kit/library.h"
#include "process.h"

#define SIZE (16 * GPU_PAGE_SIZE)

static struct gpu_buffer buffer;
static gdr_t g;
static gdr_mh_t handle;
static char *va;

static void pin_and_map(void)
{
    handle = pin(g, buffer.address, SIZE);
    va = map(g, handle, SIZE);
}

/* Checks that the addresses of the closed mapping are reserved: a new mapping gets other addresses, stale pointers
   fault, and core files omit the addresses. */
static void check_reserved(void)
{
    char *next = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(next != MAP_FAILED);
    CHECK(next + SIZE <= va || va + SIZE <= next);
    CHECK(munmap(next, SIZE) == 0);
    CHECK_GONE(va);
    CHECK_GONE(va + SIZE - 1);
    CHECK(is_denied("madvise") || has_flag(va, " dd"));
}

/* ---- The cost of reservations ---- */

/* When the library unmaps, it reserves the addresses by another mapping. mlockall must not lock that one in memory. */
static void closed_mappings_are_not_locked(void)
{
    pin_and_map();
    if (mlockall(MCL_FUTURE) != 0)
        return; /* the process may not lock memory */
    long before = status_kib("VmLck");
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_COMPARE(status_kib("VmLck") - before, <, (long)(SIZE / 1024 / 2));
    check_reserved();
    CHECK(munlockall() == 0);
}

/* gdr_unpin_buffer succeeds even if the mapping is larger than the process's limit of locked memory. */
static void closed_mappings_fit_any_limit_of_locked_memory(void)
{
    pin_and_map();
    set_limit(RLIMIT_MEMLOCK, SIZE / 4);
    drop_ipc_lock();
    if (mlockall(MCL_FUTURE) != 0)
        return; /* the process is not allowed to lock memory */
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK(munlockall() == 0);
    check_reserved();
}

/* Each closed mapping leaves a reserved range. The kernel limits a process's number of mappings, so adjacent ranges
   must merge into one mapping. */
static void closed_mappings_merge(void)
{
    long usual = 3000;
    int before = mappings();

    for (long i = rounds(usual); i > 0; i--) {
        pin_and_map();
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    int more = mappings() - before;
    if (more >= 100) {
        fprintf(stderr, "%ld closed mappings are %d mappings of the kernel\n", rounds(usual), more);
        exit(1);
    }
    check_reserved();
}

int main(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    g = open_driver();
    pin_and_map();
    CHECK_OK(gdr_unpin_buffer(g, handle));
    check_reserved();
    closed_mappings_are_not_locked();
    closed_mappings_merge();
    closed_mappings_fit_any_limit_of_locked_memory(); /* last, because it gives up CAP_IPC_LOCK */
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("closed_mappings");
}
