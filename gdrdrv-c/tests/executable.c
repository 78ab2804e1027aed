/*
 * GPU memory cannot be mapped for execution, nor a mapping made executable. The kernel's other rights to a mapping are
 * documented in map.c. It is not grown, not inherited, not in a core dump.
 */

#include "device.h"
#include "process.h"

#include <sys/prctl.h>

#define SIZE (2 * GPU_PAGE)
#define OURS 0x11

int main(void)
{
    const int executable[] = {PROT_EXEC, PROT_READ | PROT_EXEC, PROT_WRITE | PROT_EXEC,
                              PROT_READ | PROT_WRITE | PROT_EXEC};
    const char *const has[] = {"rd", "wr", "sh", "mr", "mw", "io", "pf", "dc", "de", "dd"};
    struct gdrdrv_get_info_v2 i;

    drop_privileges();
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); /* so that smaps is readable */
    handle_faults();
    int fd = driver_open();
    struct gpu_memory memory = gpu_alloc(SIZE);
    memset(memory.view, OURS, SIZE);
    uint64_t handle = pinned(fd, memory);
    for (size_t at = 0; at < sizeof(executable) / sizeof(executable[0]); at++) {
        CHECK(mmap(NULL, SIZE, executable[at], MAP_SHARED, fd, (off_t)(handle * PAGE)) == MAP_FAILED);
        CHECK_EQUAL(errno, EACCES);
        CHECK_OK(info(fd, handle, &i));
        CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
    }

    unsigned char *va = mapped(fd, handle, SIZE);
    for (size_t at = 0; at < sizeof(has) / sizeof(has[0]); at++)
        CHECK(has_flag(va, has[at]));
    CHECK(!has_flag(va, " ex") && !has_flag(va, " me"));
    for (size_t at = 0; at < sizeof(executable) / sizeof(executable[0]); at++) {
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
