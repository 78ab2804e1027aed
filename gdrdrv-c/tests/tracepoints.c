/*
 * Each pin, map, unpin and revocation is an event of gdrdrv's tracepoints, with the pin's owner and range. A build for
 * the proprietary GPU driver has no tracepoints.
 */
#include "device.h"

#include <sys/mount.h>

#define TRACING "/sys/kernel/tracing"
#define EVENTS TRACING "/events/gdrdrv/enable"

/* Returns the number of events with this name about this range and this process. */
static int events(const char *name, struct gpu_memory memory)
{
    FILE *file = fopen(TRACING "/trace", "r");
    char line[512], owner[32], range[80];
    int count = 0;

    CHECK(file != NULL);
    snprintf(owner, sizeof(owner), " pid=%d ", getpid());
    snprintf(range, sizeof(range), " va=%#lx size=%lu\n", (unsigned long)memory.va, (unsigned long)memory.size);
    while (fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, name) != NULL && strstr(line, owner) != NULL && strstr(line, range) != NULL;
    CHECK(fclose(file) == 0);
    return count;
}

static void check_events(struct gpu_memory memory, int pins, int maps, int unpins, int revocations)
{
    CHECK_EQUAL(events(" gdrdrv_pin: ", memory), pins);
    CHECK_EQUAL(events(" gdrdrv_map: ", memory), maps);
    CHECK_EQUAL(events(" gdrdrv_unpin: ", memory), unpins);
    CHECK_EQUAL(events(" gdrdrv_revoke: ", memory), revocations);
}

int main(void)
{
    struct gpu_memory memory = gpu_alloc(3 * GPU_PAGE);
    int fd = driver_open(), persist = pins_persist();

    if (access(EVENTS, F_OK) != 0)
        CHECK(mount("tracefs", TRACING, "tracefs", 0, NULL) == 0 || errno == EBUSY || errno == ENODEV || errno == ENOENT);
    if (access(EVENTS, F_OK) != 0)
        waive("gdrdrv has no tracepoints here");
    CHECK(close(open(TRACING "/trace", O_WRONLY | O_TRUNC)) == 0);
    write_text(EVENTS, "1");

    uint64_t handle = pinned(fd, memory);
    check_events(memory, 1, 0, 0, 0);
    CHECK(munmap(mapped(fd, handle, memory.size), memory.size) == 0);
    check_events(memory, 1, 1, 0, 0);
    CHECK_OK(unpin(fd, handle));
    check_events(memory, 1, 1, 1, 0);
    CHECK_ERROR(unpin(fd, handle), EINVAL);
    (void)pinned(fd, memory);
    gpu_free(memory);
    check_events(memory, 2, 1, 1, !persist);
    CHECK(close(fd) == 0);
    check_events(memory, 2, 1, 2, !persist);

    write_text(EVENTS, "0");
    return passed("tracepoints");
}
