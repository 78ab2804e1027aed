/* /dev/gdrdrv for the tests of it, with one function per call, which returns 0 or an errno, and access to
   mappings. */
#ifndef DRIVER_H
#define DRIVER_H

#include "check.h"

#include "../../gdrdrv-c/gdrdrv_uapi.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define GPU_PAGE ((uint64_t)GDRDRV_GPU_PAGE_SIZE)

/* ---- The driver ---- */

static inline int driver_open(void)
{
    int fd = open(GDRDRV_DEVICE, O_RDWR | O_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

static inline int command(int fd, unsigned long number, void *argument)
{
    return ioctl(fd, number, argument) == 0 ? 0 : errno;
}

static inline int pin(int fd, uint64_t addr, uint64_t size, uint64_t *handle)
{
    struct gdrdrv_pin_buffer a = {.addr = addr, .size = size};
    int error = command(fd, GDRDRV_IOC_PIN_BUFFER, &a);

    if (error == 0)
        *handle = a.handle;
    return error;
}

static inline int unpin(int fd, uint64_t handle)
{
    struct gdrdrv_unpin_buffer a = {handle};

    return command(fd, GDRDRV_IOC_UNPIN_BUFFER, &a);
}

static inline int info(int fd, uint64_t handle, struct gdrdrv_get_info_v2 *info)
{
    memset(info, 0, sizeof(*info));
    info->handle = handle;
    return command(fd, GDRDRV_IOC_GET_INFO_V2, info);
}

static inline int callback_flag(int fd, uint64_t handle, uint32_t *flag)
{
    struct gdrdrv_get_cb_flag a = {.handle = handle};
    int error = command(fd, GDRDRV_IOC_GET_CB_FLAG, &a);

    if (error == 0)
        *flag = a.flag;
    return error;
}

static inline uint32_t flag_of(int fd, uint64_t handle)
{
    uint32_t flag = 77;

    CHECK_OK(callback_flag(fd, handle, &flag));
    return flag;
}

static inline int request_type(int fd, uint64_t handle, uint32_t type)
{
    struct gdrdrv_req_mapping_type a = {handle, type};

    return command(fd, GDRDRV_IOC_REQ_MAPPING_TYPE, &a);
}

static inline int map(int fd, uint64_t handle, size_t size, unsigned char **va)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(handle * PAGE));

    if (at == MAP_FAILED)
        return errno;
    *va = at;
    return 0;
}

static inline unsigned char *mapped(int fd, uint64_t handle, size_t size)
{
    unsigned char *va = NULL;

    CHECK_OK(map(fd, handle, size, &va));
    return va;
}

/* Returns whether pins outlive a free of their memory. Releases before 2.5 do not report it. */
static inline int persistent(int fd)
{
    struct gdrdrv_get_attr a = {.attr = GDRDRV_ATTR_USE_PERSISTENT_MAPPING};
    int error = command(fd, GDRDRV_IOC_GET_ATTR, &a);

    if (error == ENOTTY)
        return 0;
    CHECK_OK(error);
    return (int)a.val;
}

/* ---- Access to memory, from any thread ---- */

/* One of each for all files of a program. */
__attribute__((weak)) __thread sigjmp_buf touch_return;
__attribute__((weak)) __thread volatile sig_atomic_t touching;

/* A fault of anything but touch() ends the program. */
static void touch_failed(int number)
{
    if (touching)
        siglongjmp(touch_return, number);
    signal(number, SIG_DFL);
}

static inline void catch_faults(void)
{
    struct sigaction action = {.sa_handler = touch_failed, .sa_flags = SA_NODEFER};

    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

/* Reads a byte. Returns the signal that the access raised, or 0. */
__attribute__((noinline)) static int touch(const volatile unsigned char *address, unsigned char *value)
{
    int signal = sigsetjmp(touch_return, 0);

    touching = 1;
    if (signal == 0)
        *value = *address;
    touching = 0;
    return signal;
}

/* Every page of the range raises SIGBUS. */
#define CHECK_GONE(va, size) check_pages(__FILE__, __LINE__, va, size, SIGBUS, 0)

/* Every page of the range starts with this value. */
#define CHECK_SHOWS(va, size, value) check_pages(__FILE__, __LINE__, va, size, 0, value)

static inline void check_pages(const char *file, int line, const unsigned char *va, size_t size, int signal,
                               unsigned char value)
{
    size_t i;

    for (i = 0; i < size; i += PAGE) {
        unsigned char got = 0;
        int raised = touch(va + i, &got);

        if (raised == signal && (signal != 0 || got == value))
            continue;
        fprintf(stderr, "%s:%d: at %#zx: signal %d and value %#x, not %d and %#x\n", file, line, i, raised, got, signal,
                value);
        exit(1);
    }
}

#endif
