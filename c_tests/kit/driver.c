#include "driver.h"

int driver_open(void)
{
    int fd = open(GDRDRV_DEVICE, O_RDWR | O_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

int command(int fd, unsigned long number, void *argument)
{
    return ioctl(fd, number, argument) == 0 ? 0 : errno;
}

int pin(int fd, uint64_t addr, uint64_t size, uint64_t *handle)
{
    struct gdrdrv_pin_buffer a = {.addr = addr, .size = size};
    int error = command(fd, GDRDRV_IOC_PIN_BUFFER, &a);

    if (error == 0)
        *handle = a.handle;
    return error;
}

int unpin(int fd, uint64_t handle)
{
    struct gdrdrv_unpin_buffer a = {handle};

    return command(fd, GDRDRV_IOC_UNPIN_BUFFER, &a);
}

int info(int fd, uint64_t handle, struct gdrdrv_get_info_v2 *info)
{
    memset(info, 0, sizeof(*info));
    info->handle = handle;
    return command(fd, GDRDRV_IOC_GET_INFO_V2, info);
}

int callback_flag(int fd, uint64_t handle, uint32_t *flag)
{
    struct gdrdrv_get_cb_flag a = {.handle = handle};
    int error = command(fd, GDRDRV_IOC_GET_CB_FLAG, &a);

    if (error == 0)
        *flag = a.flag;
    return error;
}

uint32_t flag_of(int fd, uint64_t handle)
{
    uint32_t flag = 77;

    CHECK_OK(callback_flag(fd, handle, &flag));
    return flag;
}

int request_type(int fd, uint64_t handle, uint32_t type)
{
    struct gdrdrv_req_mapping_type a = {handle, type};

    return command(fd, GDRDRV_IOC_REQ_MAPPING_TYPE, &a);
}

int map(int fd, uint64_t handle, size_t size, unsigned char **va)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(handle * PAGE));

    if (at == MAP_FAILED)
        return errno;
    *va = at;
    return 0;
}

unsigned char *mapped(int fd, uint64_t handle, size_t size)
{
    unsigned char *va = NULL;

    CHECK_OK(map(fd, handle, size, &va));
    return va;
}

int persistent(int fd)
{
    struct gdrdrv_get_attr a = {.attr = GDRDRV_ATTR_USE_PERSISTENT_MAPPING};
    int error = command(fd, GDRDRV_IOC_GET_ATTR, &a);

    if (error == ENOTTY)
        return 0;
    CHECK_OK(error);
    return (int)a.val;
}
