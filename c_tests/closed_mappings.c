/* The ranges of mappings that gdr_unpin_buffer and gdr_close have removed. */

#include "emulator.h"
#include "kit/fault.h"
#include "kit/library.h"
#include "logged.h"
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

/* No new mapping of the same size gets the addresses, and a stale pointer raises this signal. */
static void check_reserved(int signal)
{
    char *next = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(next != MAP_FAILED);
    CHECK(next + SIZE <= va || va + SIZE <= next);
    CHECK(munmap(next, SIZE) == 0);
    CHECK_EQUAL(fault_at(va), signal);
    CHECK_EQUAL(fault_at(va + SIZE - 1), signal);
    CHECK(is_reserved(va));
    CHECK(is_reserved(va + SIZE - 1));
    CHECK(is_denied("madvise") || has_flag(va, " dd"));
}

/* ---- No empty file can be made ---- */

/* Calls `release` while the process can make no file descriptor. */
static void release_without_descriptors(void (*release)(void))
{
    g = open_driver();
    pin_and_map();
    rlim_t limit = set_limit(RLIMIT_NOFILE, 0);
    release();
    set_limit(RLIMIT_NOFILE, limit);
}

static void unpin_it(void)
{
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

static void close_it(void)
{
    CHECK_OK(gdr_close(g));
}

static void unpin_without_descriptors(void)
{
    release_without_descriptors(unpin_it);
    CHECK_OK(gdr_close(g));
}

static void close_without_descriptors(void)
{
    release_without_descriptors(close_it);
}

static void addresses_stay_reserved_without_descriptors(void)
{
    static void (*const parts[])(void) = {unpin_without_descriptors, close_without_descriptors};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        CHECK_LOGGED(log_of(parts[i], "3"), "raises SIGSEGV instead of SIGBUS");
        check_reserved(SIGSEGV);
    }
}

/* ---- The cost ---- */

/* The driver's mappings are neither in core files nor locked, so what replaces them must not be. */
static void closed_mappings_are_not_locked(void)
{
    pin_and_map();
    if (mlockall(MCL_FUTURE) != 0)
        return; /* not allowed to */
    long before = status_kib("VmLck");
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_COMPARE(status_kib("VmLck") - before, <, (long)(SIZE / 1024 / 2));
    check_reserved(GONE);
    CHECK(munlockall() == 0);
}

/* The kernel limits the number of mappings, so closed ones merge after the first 1,000. */
static void closed_mappings_merge(void)
{
    long usual = 3000;
    int before = mappings();

    for (long i = rounds(usual); i > 0; i--) {
        pin_and_map();
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    int more = mappings() - before;
    if (more >= 1200) {
        fprintf(stderr, "%ld closed mappings are %d mappings of the kernel\n", rounds(usual), more);
        exit(1);
    }
    check_reserved(rounds(usual) < 1000 ? GONE : SIGSEGV);
}

int main(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    if (gpu_is_emulated()) /* CUDA's own threads open files, and it does not survive a refusal. */
        addresses_stay_reserved_without_descriptors();

    g = open_driver();
    pin_and_map();
    CHECK_OK(gdr_unpin_buffer(g, handle));
    check_reserved(GONE);
    closed_mappings_are_not_locked();
    closed_mappings_merge();
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("closed_mappings");
}
