/* Functions that open /dev/gdrdrv, and send its commands. A function for one command returns 0 or an errno. */
#ifndef DRIVER_H
#define DRIVER_H

#include "check.h"
#include "fault.h"

#include "../../gdrdrv-c/gdrdrv_uapi.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define PARAMS "/proc/driver/gdrdrv/params"
#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define GPU_PAGE ((uint64_t)GDRDRV_GPU_PAGE_SIZE)

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

/* If these functions were inline, gcc would warn that callers use a result which is not set if the call fails. */
#define NOT_INLINE static __attribute__((noinline, unused))

NOT_INLINE int pin(int fd, uint64_t addr, uint64_t size, uint64_t *handle)
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

NOT_INLINE int map(int fd, uint64_t handle, size_t size, unsigned char **va)
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

/* Returns whether pins outlive a free of their memory. Returns 0 for gdrdrv before 2.5, which lacks the command. */
static inline int persistent(int fd)
{
    struct gdrdrv_get_attr a = {.attr = GDRDRV_ATTR_USE_PERSISTENT_MAPPING};
    int error = command(fd, GDRDRV_IOC_GET_ATTR, &a);

    if (error == ENOTTY)
        return 0;
    CHECK_OK(error);
    return (int)a.val;
}

#endif
