/*
 * Tests of mappings of adjacent GPU pages, which the kernel can map by huge pages. After any change to a part of a huge
 * page, the rest still gives access to the pin's memory, and loses that access when the pin ends. With emugpu's
 * parameter longest_run=65536, nearly all memory can be mapped by huge pages; with 100, only some.
 */
#include "device.h"
#include "process.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#define HUGE_PAGE (2ULL << 20)
#define SIZE (16 * HUGE_PAGE)

static struct gpu_memory memory;
static int fd;

/* Writes a different value to the start of each page of the memory. */
static void fill(void)
{
    for (size_t at = 0; at < SIZE; at += PAGE)
        *(size_t *)(void *)(memory.view + at) = at + 1;
}

/* Checks that reads from this part of a mapping return the values that fill() wrote from this offset on. */
static void check_shows(const unsigned char *va, size_t offset, size_t size)
{
    for (size_t at = 0; at < size; at += PAGE)
        CHECK_EQUAL(*(const volatile size_t *)(const void *)(va + at), offset + at + 1);
}

/* Returns how many bytes of page tables the process has. */
static size_t page_table_bytes(void)
{
    return (size_t)status_kib("VmPTE") << 10;
}

/* Returns the largest number of bytes that emugpu hands out as adjacent pages. */
static uint64_t longest_run(void)
{
    return strtoul(parameter("emugpu", "longest_run"), NULL, 10) * GPU_PAGE;
}

/* Returns whether the kernel and the module can map huge pages. */
static int can_be_huge(void)
{
    unsigned int major, minor;
    struct utsname system;

    CHECK(uname(&system) == 0);
    CHECK_EQUAL(sscanf(system.release, "%u.%u", &major, &minor), 2);
    return strstr(file_text(PARAMS), "flavor: opensource") != NULL && (major > 6 || (major == 6 && minor >= 12));
}

/* Maps all pages, and checks each. */
static unsigned char *mapped_and_read(uint64_t handle)
{
    unsigned char *va = mapped(fd, handle, SIZE);

    check_shows(va, 0, SIZE);
    return va;
}

static void page_tables_stay_small(void)
{
    uint64_t handle = pinned(fd, memory);
    size_t before = page_table_bytes();
    unsigned char *va = mapped_and_read(handle);
    size_t more = page_table_bytes() - before;

    if (longest_run() >= SIZE && can_be_huge())
        CHECK_COMPARE(more, <=, 4 * PAGE); /* only parts of huge pages need page tables, such as those at both ends */
    else if (longest_run() < HUGE_PAGE || !can_be_huge())
        CHECK_COMPARE(more, >=, SIZE / HUGE_PAGE * PAGE);
    CHECK(munmap(va, SIZE) == 0);
    CHECK_OK(unpin(fd, handle));
}

/* Returns how many page faults a read of the address takes. */
static long faults_of_read(const volatile unsigned char *va)
{
    struct rusage before, after;

    /* The first calls of getrusage() may have page faults themselves. */
    CHECK(getrusage(RUSAGE_THREAD, &before) == 0 && getrusage(RUSAGE_THREAD, &after) == 0);
    CHECK(getrusage(RUSAGE_THREAD, &before) == 0);
    (void)*va;
    CHECK(getrusage(RUSAGE_THREAD, &after) == 0);
    return after.ru_minflt - before.ru_minflt;
}

/* mmap fills no page table. A page fault fills the page table for all mapped pages in the 2 MiB around its address. */
static void mappings_need_few_page_faults(void)
{
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped(fd, handle, GPU_PAGE), *last = va + GPU_PAGE - PAGE;
    int in_two = (uintptr_t)va / HUGE_PAGE != (uintptr_t)last / HUGE_PAGE;

    CHECK_EQUAL(faults_of_read(va), 1);
    CHECK_EQUAL(faults_of_read(last), in_two);
    check_shows(va, 0, GPU_PAGE);
    CHECK(munmap(va, GPU_PAGE) == 0);
    CHECK_OK(unpin(fd, handle));
}

static void writes_arrive(void)
{
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped(fd, handle, SIZE);

    for (size_t at = 0; at < SIZE; at += PAGE)
        *(volatile size_t *)(void *)(va + at) = at + 2;
    for (size_t at = 0; at < SIZE; at += PAGE)
        CHECK_EQUAL(*(size_t *)(void *)(memory.view + at), at + 2);
    CHECK(munmap(va, SIZE) == 0);
    CHECK_OK(unpin(fd, handle));
    fill();
}

/* Parts of a huge page are unmapped, protected and moved. */
static void parts(void)
{
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped_and_read(handle), value;
    const size_t hole = 3 * HUGE_PAGE + 5 * PAGE, moving = 8 * HUGE_PAGE + 3 * PAGE;

    CHECK(munmap(va + hole, PAGE) == 0);
    check_shows(va, 0, hole);
    check_shows(va + hole + PAGE, hole + PAGE, SIZE - hole - PAGE);

    CHECK(mprotect(va, HUGE_PAGE + PAGE, PROT_READ) == 0);
    check_shows(va, 0, hole);
    CHECK(mprotect(va, HUGE_PAGE + PAGE, PROT_READ | PROT_WRITE) == 0);
    va[HUGE_PAGE / 2]++;
    va[HUGE_PAGE / 2]--;

    unsigned char *moved = mmap(NULL, 3 * HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(moved != MAP_FAILED);
    CHECK(mremap(va + moving, 3 * HUGE_PAGE, 3 * HUGE_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
    check_shows(moved, moving, 3 * HUGE_PAGE);
    CHECK_EQUAL(touch(va + moving, &value), SIGSEGV);
    check_shows(va + moving - HUGE_PAGE, moving - HUGE_PAGE, HUGE_PAGE);

    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, hole);
    CHECK_PAGES_GONE(va + hole + PAGE, moving - hole - PAGE);
    CHECK_PAGES_GONE(moved, 3 * HUGE_PAGE);
    CHECK(munmap(moved, 3 * HUGE_PAGE) == 0);
    CHECK(munmap(va, SIZE) == 0);
}

static void unpin_and_free(void)
{
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped_and_read(handle);

    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
    CHECK(munmap(va, SIZE) == 0);

    handle = pinned(fd, memory);
    va = mapped_and_read(handle);
    gpu_free(memory);
    if (pins_persist())
        check_shows(va, 0, SIZE);
    else
        CHECK_PAGES_GONE(va, SIZE);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
    CHECK(munmap(va, SIZE) == 0);
    memory = gpu_alloc(SIZE);
    fill();
}

static void *touch_all(void *mapping)
{
    const volatile unsigned char *va = mapping;

    for (size_t at = 0; at < SIZE; at += HUGE_PAGE)
        (void)va[at];
    return NULL;
}

/* One thread switches huge pages off and on for the process, while another accesses the same pages. */
static void small_pages_against_huge_ones(void)
{
    uint64_t handle = pinned(fd, memory);

    for (int round = 0; round < 400; round++) {
        unsigned char *va = mapped(fd, handle, SIZE);
        pthread_t thread = started_on(1, touch_all, va);

        for (size_t at = 0; at < SIZE; at += HUGE_PAGE) {
            CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
            (void)*(volatile unsigned char *)(va + at);
            CHECK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
            usleep(100);
        }
        finish_thread(thread);
        if (round % 100 == 0)
            check_shows(va, 0, SIZE);
        CHECK(munmap(va, SIZE) == 0);
    }
    CHECK_OK(unpin(fd, handle));
}

int main(void)
{
    handle_faults();
    fd = driver_open();
    memory = gpu_alloc(SIZE);
    fill();
    page_tables_stay_small();
    mappings_need_few_page_faults();
    writes_arrive();
    parts();
    unpin_and_free();
    small_pages_against_huge_ones();
    CHECK_EQUAL(page_tables(), 0);
    return passed("huge_pages");
}
