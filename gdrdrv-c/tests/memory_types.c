/*
 * Write-combining on x86: the kernel gives a page the memory type that its physical range is reserved with. Each
 * contiguous run of a mapped pin must be reserved as write-combining, and no reservation may outlast its pin.
 */

#include "device.h"

#include <sys/mount.h>

#define SIZE (16 * GPU_PAGE)

static int fd;

/* Ranges that the kernel lists as write-combining. */
static int reserved(void)
{
    FILE *list = fopen("/sys/kernel/debug/x86/pat_memtype_list", "r");
    char line[128];
    int count = 0;

    CHECK(list != NULL); /* if missing, this kernel was built without CONFIG_X86_PAT */
    while (fgets(line, sizeof(line), list))
        count += strstr(line, "write-combining") != NULL;
    fclose(list);
    return count;
}

int main(void)
{
    struct gpu_memory memory = gpu_alloc(SIZE);
    int before, while_mapped, i;
    uint64_t handle;
    unsigned char *va;

    CHECK(mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL) == 0 || errno == EBUSY);
    fd = driver_open();
    before = reserved();

    handle = pinned(fd, memory);
    CHECK_EQUAL(reserved(), before);
    va = mapped(fd, handle, SIZE);
    while_mapped = reserved();
    CHECK(while_mapped > before && while_mapped <= before + (int)(SIZE / GPU_PAGE));

    /*
     * The reservations stay for the next mapping, and are not duplicated; from Linux 6.16 on, the kernel adds one for
     * a mapping of a single run.
     */
    CHECK(munmap(va, SIZE) == 0);
    CHECK_EQUAL(reserved(), while_mapped);
    va = mapped(fd, handle, GPU_PAGE);
    CHECK(reserved() == while_mapped || reserved() == while_mapped + 1);
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

    /* One page: the kernel would also reserve its mapping. */
    fd = driver_open();
    memory = gpu_alloc(GPU_PAGE);
    handle = pinned(fd, memory);
    for (i = 0; i < 2; i++) {
        va = mapped(fd, handle, GPU_PAGE - PAGE * (size_t)i);
        CHECK(reserved() == before + 1 || reserved() == before + 2);
        CHECK(munmap(va, GPU_PAGE) == 0);
        CHECK_EQUAL(reserved(), before + 1);
    }
    CHECK_OK(unpin(fd, handle));
    CHECK_EQUAL(reserved(), before);
    CHECK(close(fd) == 0);
    return passed("memory_types");
}
