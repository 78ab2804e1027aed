/*
 * /dev/gdrdrv without any library: its commands as raw ioctls, and the emulated files around it.
 */
#ifndef RAW_H
#define RAW_H

#define _GNU_SOURCE

#include "check.h"
#include "cuda_driver.h"
#include "fault.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GPU_PAGE 65536ul
#define HOST_PAGE 4096ul

enum {
    PIN_BUFFER = 0xC028DA01,
    UNPIN_BUFFER = 0xC008DA02,
    GET_CB_FLAG = 0xC008DA03,
    GET_INFO = 0xC008DA04,
    GET_INFO_V2 = 0xC008DA05,
    GET_ATTR = 0xC008DA06,
    PIN_BUFFER_V2 = 0xC020DA07,
    REQ_MAPPING_TYPE = 0xC008DA08,
    GET_VERSION = 0xC008DAFF
};

struct pin_v1 {
    uint64_t addr, size, p2p_token;
    uint32_t va_space;
    uint64_t handle;
};

struct pin_v2 {
    uint64_t addr, size;
    uint32_t flags, pad;
    uint64_t handle;
};

struct info {
    uint64_t handle, va, mapped_size;
    uint32_t page_size, tsc_khz;
    uint64_t tm_cycles;
    uint32_t mapping_type, wc_mapping;
};

struct cb_flag {
    uint64_t handle;
    uint32_t flag;
};

struct mapping_type {
    uint64_t handle;
    uint32_t type;
};

struct version {
    uint32_t driver, minimum_api;
};

/* A call that must fail, with exactly that errno. */
#define CHECK_FAILS(call, wanted)                                                                  \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((long)(call) == -1);                                                                 \
        CHECK_EQUAL(errno, (wanted));                                                              \
    } while (0)

static inline int open_device(void)
{
    int fd = open("/dev/gdrdrv", O_RDWR | O_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

/* A context on GPU 0 and memory on it. */
static inline CUdeviceptr gpu_memory(size_t size)
{
    CUcontext context;
    CUdeviceptr address;

    CHECK_EQUAL(cuInit(0), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSetCurrent(context), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&address, size), CUDA_SUCCESS);
    return address;
}

/* Buffers of 2 MiB and more are aligned to GPU pages. */
#define ALIGNED_SIZE (2ul << 20)

static inline uint64_t pin(int fd, CUdeviceptr address, size_t size)
{
    struct pin_v1 argument = {.addr = address, .size = size};

    CHECK_EQUAL(ioctl(fd, PIN_BUFFER, &argument), 0);
    return argument.handle;
}

static inline void *map(int fd, uint64_t handle, size_t size)
{
    void *address =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(handle * HOST_PAGE));

    CHECK(address != MAP_FAILED);
    return address;
}

static inline int unpin(int fd, uint64_t handle)
{
    return ioctl(fd, UNPIN_BUFFER, &handle);
}

/* The type of a pin's mapping, 0 for none; by a command that every release has. */
static inline int mapped(int fd, uint64_t handle)
{
    struct info info = {.handle = handle};

    CHECK_EQUAL(ioctl(fd, GET_INFO, &info), 0);
    return (int)info.mapping_type;
}

static inline int flag(int fd, uint64_t handle)
{
    struct cb_flag argument = {.handle = handle, .flag = 77};

    CHECK_EQUAL(ioctl(fd, GET_CB_FLAG, &argument), 0);
    return (int)argument.flag;
}

/* Page tables pinned in all processes. */
static inline int refcount(void)
{
    int count = -1;
    FILE *file = fopen("/proc/driver/gdrdrv/nv_get_pages_refcount", "r");

    CHECK(file != NULL);
    CHECK_EQUAL(fscanf(file, "%d", &count), 1);
    fclose(file);
    return count;
}

/* gdremu's own answers. */
static inline void *gdremu(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    CHECK(found != NULL);
    return found;
}

static inline long pins(void)
{
    long (*ask)(void);

    *(void **)&ask = gdremu("gdremu_pins");
    return ask();
}

static inline const char *calls(void)
{
    const char *(*take)(void);

    *(void **)&take = gdremu("gdremu_calls_take");
    return take();
}

#endif
