/* A libgdrapi without a driver, which ends its process in the call that DIES_AT numbers, by a signal that none can catch. */
#include "gdrapi.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int descriptor = -1;
static unsigned long pinned;

/* Returns what the call does. */
static int step(void)
{
    static int calls;

    if (++calls == atoi(getenv("DIES_AT")))
        kill(getpid(), SIGKILL);
    return 0;
}

#define STEP(name, ...) int gdr_##name(__VA_ARGS__) { return step(); }
STEP(close, gdr_t g)
STEP(unpin_buffer, gdr_t g, gdr_mh_t handle)
STEP(get_callback_flag, gdr_t g, gdr_mh_t handle, int *flag)
STEP(driver_get_version, gdr_t g, int *major, int *minor)

/* Libraries before 2.4 have no gdr_get_info_v2. */
#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, uint64_t *info)
{
    info[0] = pinned; /* va */
    return step();
}

gdr_t gdr_open(void)
{
    step();
    return (gdr_t)(void *)&descriptor;
}

int gdr_pin_buffer(gdr_t g, unsigned long address, size_t size, uint64_t token, uint32_t va_space, gdr_mh_t *handle)
{
    handle->h = 1;
    pinned = address;
    return step();
}

int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)
{
    *va = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return step();
}
