/*
 * Tests of write-combining on x86, where the kernel gives a page the memory type that its physical range is reserved
 * with. Each contiguous run of a mapped pin must be reserved as write-combining, and no reservation may outlast its
 * pin. A pin can also be mapped if another driver has reserved its range with other types (emugpu's parameter `mixed`).
 */

#include "device.h"

#include <sys/mount.h>

#define SIZE (16 * GPU_PAGE)

static int fd;

/* Returns the number of ranges that the kernel lists as write-combining. */
static int reserved(void)
{
    FILE *list = fopen("/sys/kernel/debug/x86/pat_memtype_list", "r");
    char line[128];
    int count = 0;

    CHECK(list != NULL); /* a kernel built without CONFIG_X86_PAT does not have the file */
    while (fgets(line, sizeof(line), list))
        count += strstr(line, "write-combining") != NULL;
    fclose(list);
    return count;
}

static unsigned char *last_page;
static int reserved_before;

/*
 * Waits until the pin's range is not reserved as write-combining any more. No page may be accessible then, because the
 * next reservation could change the page's type.
 */
static void *watch_for_pages_without_reservation(void *unused)
{
    unsigned char value;

    while (reserved() != reserved_before)
        ;
    CHECK_EQUAL(touch(last_page, &value), SIGBUS);
    return unused;
}

/* All pages must be unmapped before the reservation of their memory type ends. The pin is large, so that its unpinning
   takes long, and a thread has time to find pages that are still mapped then. */
static void reservations_outlast_pages(void)
{
    struct gpu_memory memory = gpu_leave_free(GPU_PAGE);
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped(fd, handle, memory.size), value;

    for (uint64_t at = 0; at < memory.size; at += GPU_PAGE)
        CHECK(touch(va + at, &value) == 0);
    last_page = va + memory.size - PAGE;
    pthread_t watcher = start_thread(watch_for_pages_without_reservation, NULL);
    CHECK_OK(unpin(fd, handle));
    pthread_join(watcher, NULL);
    CHECK(munmap(va, memory.size) == 0);
    gpu_free(memory);
}

/* Another driver has reserved a part of the range as uncached. gdrdrv maps all pages, and keeps none reserved. */
static void pages_that_another_driver_has_reserved(void)
{
    struct gpu_memory memory = gpu_leave_free(0);
    uint64_t handle = pinned(fd, memory);
    unsigned char *va = mapped(fd, handle, memory.size);
    struct gdrdrv_get_info_v2 i;

    CHECK_EQUAL(reserved(), reserved_before);
    CHECK_OK(info(fd, handle, &i));
    CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_WC);
    CHECK_PAGES(va, memory.size, 0);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, memory.size);
    CHECK(munmap(va, memory.size) == 0);
    gpu_free(memory);
}

int main(void)
{
    struct gpu_memory memory = gpu_alloc(SIZE);
    int before;

    CHECK(mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL) == 0 || errno == EBUSY);
    fd = driver_open();
    reserved_before = before = reserved();

    uint64_t handle = pinned(fd, memory);
    CHECK_EQUAL(reserved(), before);
    unsigned char *va = mapped(fd, handle, SIZE);
    int while_mapped = reserved();
    CHECK(while_mapped > before && while_mapped <= before + (int)(SIZE / GPU_PAGE));

    /* The pin's pages stay reserved as write-combining after munmap. The next mapping does not reserve them again. */
    CHECK(munmap(va, SIZE) == 0);
    CHECK_EQUAL(reserved(), while_mapped);
    va = mapped(fd, handle, GPU_PAGE);
    CHECK_EQUAL(reserved(), while_mapped);
    CHECK_OK(unpin(fd, handle));
    CHECK(munmap(va, GPU_PAGE) == 0);
    CHECK_EQUAL(reserved(), before);

    handle = pinned(fd, memory);
    va = mapped(fd, handle, SIZE);
    CHECK_EQUAL(reserved(), while_mapped);
    gpu_free(memory);
    CHECK_EQUAL(reserved(), persistent(fd) ? while_mapped : before);
    CHECK(close(fd) == 0);
    CHECK(munmap(va, SIZE) == 0);
    CHECK_EQUAL(reserved(), before);

    /* This pin has a single contiguous run of pages. */
    fd = driver_open();
    memory = gpu_alloc(GPU_PAGE);
    handle = pinned(fd, memory);
    for (int i = 0; i < 2; i++) {
        va = mapped(fd, handle, GPU_PAGE - PAGE * (size_t)i);
        CHECK_EQUAL(reserved(), before + 1);
        CHECK(munmap(va, GPU_PAGE) == 0);
        CHECK_EQUAL(reserved(), before + 1);
    }
    CHECK_OK(unpin(fd, handle));
    CHECK_EQUAL(reserved(), before);
    gpu_free(memory);

    handle_faults();
    if (gpu_has("mixed"))
        pages_that_another_driver_has_reserved();
    else
        reservations_outlast_pages();
    CHECK(close(fd) == 0);
    return passed("memory_types");
}
