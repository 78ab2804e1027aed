/* Helpers for tests that use the emulated device without libgdrapi. */
#ifndef DEVICE_H
#define DEVICE_H

#define _GNU_SOURCE

#include "kit/driver.h"
#include "cuda_values.h"

#include <stdbool.h>

/* Buffers of this size and larger ones begin at a multiple of the GPU page size. */
#define ALIGNED_SIZE (2ul << 20)

/* Checks that a call fails with exactly this errno. */
#define CHECK_FAILS(call, wanted)                                                                                      \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK((long)(call) == -1);                                                                                     \
        CHECK_EQUAL(errno, (wanted));                                                                                  \
    } while (0)

/* Allocates memory on GPU 0, and installs signal handlers, so that tests can check which accesses fault. */
static inline CUdeviceptr gpu_memory(size_t size)
{
    handle_faults();
    gpu_start(0);
    return allocated(size);
}

static inline uint64_t pinned(int fd, CUdeviceptr address, size_t size)
{
    uint64_t handle;

    CHECK_OK(pin(fd, address, size, &handle));
    return handle;
}

/* Returns what GET_INFO reports about a pin. Every release of gdrdrv has this command. */
static inline struct gdrdrv_get_info info_of(int fd, uint64_t handle)
{
    struct gdrdrv_get_info info = {.handle = handle};

    CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &info));
    return info;
}

static inline bool is_mapped(int fd, uint64_t handle)
{
    return info_of(fd, handle).mapped;
}

#endif
