/*
 * GPU memory cannot be mapped for execution, nor a mapping made executable. The kernel's other rights to a mapping are
 * documented in map.c. It is not grown, not inherited, not in a core dump.
 */

#include "device.h"

#include <sys/prctl.h>

#define SIZE (2 * GPU_PAGE)
#define OURS 0x11

/* The kernel's flags of the mapping at the address, as /proc/self/smaps shows them. */
static void flags_of(const unsigned char *va, char flags[128])
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[256], start[32];
    int found = 0;

    snprintf(start, sizeof(start), "%lx-", (unsigned long)va);
    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        found |= strncmp(line, start, strlen(start)) == 0;
        if (found && strncmp(line, "VmFlags:", 8) == 0)
            break;
    }
    CHECK(found);
    snprintf(flags, 128, "%.100s", line + 8);
    CHECK(fclose(maps) == 0);
}

int main(void)
{
    const int executable[] = {PROT_EXEC, PROT_READ | PROT_EXEC, PROT_WRITE | PROT_EXEC,
                              PROT_READ | PROT_WRITE | PROT_EXEC};
    const char *const has[] = {"rd", "wr", "sh", "mr", "mw", "io", "pf", "dc", "de", "dd"};
    struct gdrdrv_get_info_v2 i;
    struct gpu_memory memory;
    unsigned char *va;
    char flags[128];
    uint64_t handle;
    size_t at;
    int fd;

    drop_privileges();
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); /* so that smaps is readable */
    handle_faults();
    fd = driver_open();
    memory = gpu_alloc(SIZE);
    memset(memory.view, OURS, SIZE);
    handle = pinned(fd, memory);
    for (at = 0; at < sizeof(executable) / sizeof(executable[0]); at++) {
        CHECK(mmap(NULL, SIZE, executable[at], MAP_SHARED, fd, (off_t)(handle * PAGE)) == MAP_FAILED);
        CHECK_EQUAL(errno, EACCES);
        CHECK_OK(info(fd, handle, &i));
        CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
    }

    va = mapped(fd, handle, SIZE);
    flags_of(va, flags);
    for (at = 0; at < sizeof(has) / sizeof(has[0]); at++)
        CHECK(strstr(flags, has[at]) != NULL);
    CHECK(strstr(flags, " ex") == NULL && strstr(flags, " me") == NULL);
    for (at = 0; at < sizeof(executable) / sizeof(executable[0]); at++) {
        CHECK(mprotect(va, SIZE, executable[at]) != 0);
        CHECK_EQUAL(errno, EACCES);
        CHECK(mprotect(va + GPU_PAGE, PAGE, executable[at]) != 0);
        CHECK_EQUAL(errno, EACCES);
    }
    CHECK_PAGES(va, SIZE, OURS);
    CHECK(mprotect(va, SIZE, PROT_NONE) == 0);
    CHECK(mprotect(va, SIZE, PROT_READ | PROT_WRITE) == 0);
    va[SIZE - 1] = OURS + 1;
    CHECK_EQUAL(memory.view[SIZE - 1], OURS + 1);
    CHECK_OK(unpin(fd, handle));
    CHECK(munmap(va, SIZE) == 0);
    CHECK_EQUAL(page_tables(), 0);
    return passed("executable");
}
