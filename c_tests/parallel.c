/*
 * GDRCOPY_THREADS: no threads unless it is set; then that many for a large copy, but no more than the copying thread
 * has CPUs. None is left after unloading, none in a forked child. Not linked with the library, so that it can be
 * unloaded.
 */

#include <sched.h>

#include "loaded.h"
#include "process.h"

#define LARGE (1UL << 20)
#define BUFFER (8UL << 20)

static struct loaded gdr;
static struct gpu_buffer buffer;
static gdr_t g;
static gdr_mh_t handle;
static unsigned char *va;
static unsigned char source[BUFFER], seen[BUFFER];

static void load_open_and_map(void)
{
    void *address = NULL;

    gdr = load_gdrapi("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
    g = gdr.open();
    CHECK(g != NULL);
    CHECK_OK(gdr.pin_buffer(g, (unsigned long)buffer.address, BUFFER, 0, 0, &handle));
    CHECK_OK(gdr.map(g, handle, &address, BUFFER));
    va = address;
}

/* Copies `size` bytes in both directions, with unaligned addresses, and compares with CUDA's view. */
static void copy_both_ways(size_t size, unsigned seed)
{
    fill(source, BUFFER, seed);
    CHECK_OK(gdr.copy_to_mapping(handle, va + 4, source + 1, size));
    gpu_read(seen, buffer.address + 4, size);
    CHECK_BYTES(seen, source + 1, size);
    memset(seen, 0, BUFFER);
    CHECK_OK(gdr.copy_from_mapping(handle, seen + 3, va + 4, size));
    CHECK_BYTES(seen + 3, source + 1, size);
    CHECK_EQUAL(seen[2], 0);
    CHECK_EQUAL(seen[3 + size], 0);
}

/* With GDRCOPY_THREADS=`asked` (NULL: unset), a large copy uses `threads` threads in all. */
static void check_threads(const char *asked, int threads)
{
    if (asked != NULL)
        CHECK(setenv("GDRCOPY_THREADS", asked, 1) == 0);
    else
        unsetenv("GDRCOPY_THREADS");
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, BUFFER);
    load_open_and_map();
    int before = process_threads();
    copy_both_ways(LARGE - 1, 1);
    CHECK_EQUAL(process_threads(), before);
    copy_both_ways(LARGE, 2);
    CHECK_EQUAL(process_threads(), before + threads - 1);
    copy_both_ways(BUFFER - 4, 3);
    copy_both_ways(3 * LARGE + 12345, 4);
    CHECK_EQUAL(process_threads(), before + threads - 1);
    CHECK_OK(gdr.close(g));
    CHECK(dlclose(gdr.library) == 0);
    /* Unless another library keeps it loaded. */
    if (dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_NOLOAD) == NULL)
        CHECK_EQUAL(process_threads(), before);
    gpu_free(&buffer);
}

static void one_thread_unless_asked_for(void)
{
    check_threads(NULL, 1);
}

static void one_thread(void)
{
    check_threads("1", 1);
}

static void four_threads_or_one_per_cpu(void)
{
    cpu_set_t cpus;
    int known = sched_getaffinity(0, sizeof(cpus), &cpus) == 0;

    CHECK(known || is_denied("sched_getaffinity"));
    check_threads("4", known && CPU_COUNT(&cpus) < 4 ? CPU_COUNT(&cpus) : 4);
}

static void one_thread_on_one_cpu(void)
{
    cpu_set_t cpus;
    int cpu = 0;

    if (is_denied("sched_getaffinity"))
        return; /* the library cannot know */
    CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
    while (!CPU_ISSET(cpu, &cpus))
        cpu++;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    CHECK(sched_setaffinity(0, sizeof(cpus), &cpus) == 0);
    check_threads("4", 1);
}

static void invalid_value_means_one_thread(void)
{
    check_threads("-4", 1);
}

/* Forked children have none of the helper threads. */
static void copy_in_a_child(void)
{
    int before = process_threads();

    CHECK_EQUAL(before, 1);
    CHECK_ERROR(gdr.copy_to_mapping(handle, va, source, LARGE), EACCES);
    g = gdr.open();
    CHECK(g != NULL);
    CHECK_OK(gdr.close(g));
    CHECK_EQUAL(process_threads(), before);
}

static void a_child_has_no_helpers(void)
{
    CHECK(setenv("GDRCOPY_THREADS", "3", 1) == 0);
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, BUFFER);
    load_open_and_map();
    copy_both_ways(BUFFER - 4, 5);
    in_child(copy_in_a_child);
    copy_both_ways(BUFFER - 4, 6);
    CHECK_OK(gdr.close(g));
    gpu_free(&buffer);
    /* Exits while the library is loaded and the helper threads wait. */
}

int main(void)
{
    in_child(one_thread_unless_asked_for);
    in_child(one_thread);
    in_child(four_threads_or_one_per_cpu);
    in_child(one_thread_on_one_cpu);
    in_child(invalid_value_means_one_thread);
    in_child(a_child_has_no_helpers);
    return passed("parallel");
}
