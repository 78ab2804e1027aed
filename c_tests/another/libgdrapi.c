/*
 * A second implementation of libgdrapi.so.2, as plain as possible, for tests of libgdrx with a library that is not this
 * project's. Its functions for pins only send commands to /dev/gdrdrv, or call mmap. Copies are memcpy between full
 * fences. Handles are not checked.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../gdrdrv-c/gdrdrv_uapi.h"
#include "gdrapi.h"

struct buffer {
    uint64_t handle;
    void *va; /* NULL while not mapped */
    size_t size;
    struct buffer *next;
};

struct gdr {
    int fd;
    uint32_t version;
    struct buffer *buffers;
};

static struct buffer *buffer_of(gdr_mh_t handle)
{
    return (struct buffer *)handle.h;
}

static int command(gdr_t g, unsigned long number, void *argument)
{
    return ioctl(g->fd, number, argument) == 0 ? 0 : errno;
}

static int is_since(gdr_t g, uint32_t minor)
{
    return g->version >= (2u << MAJOR_VERSION_SHIFT | minor);
}

gdr_t gdr_open(void)
{
    struct gdrdrv_get_version version;
    gdr_t g = calloc(1, sizeof(*g));

    if (g == NULL)
        return NULL;
    g->fd = open(GDRDRV_DEVICE, O_RDWR | O_CLOEXEC);
    if (g->fd < 0 || command(g, GDRDRV_IOC_GET_VERSION, &version) != 0) {
        free(g);
        return NULL;
    }
    g->version = version.gdrdrv_version;
    return g;
}

int gdr_close(gdr_t g)
{
    while (g->buffers != NULL)
        gdr_unpin_buffer(g, (gdr_mh_t){(unsigned long)g->buffers});
    close(g->fd);
    free(g);
    return 0;
}

int gdr_pin_buffer(gdr_t g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space, gdr_mh_t *handle)
{
    size_t pages = (size + GPU_PAGE_SIZE - 1) & GPU_PAGE_MASK; /* drivers before 2.5 accept only whole pages */
    struct gdrdrv_pin_buffer a = {.addr = addr, .size = pages, .p2p_token = p2p_token, .va_space = va_space};
    struct buffer *buffer = calloc(1, sizeof(*buffer));
    int result = ENOMEM;

    if (buffer != NULL)
        result = addr % GPU_PAGE_SIZE == 0 ? command(g, GDRDRV_IOC_PIN_BUFFER, &a) : EINVAL;
    if (result != 0) {
        free(buffer);
        return result;
    }
    buffer->handle = a.handle;
    buffer->next = g->buffers;
    g->buffers = buffer;
    handle->h = (unsigned long)buffer;
    return 0;
}

int gdr_pin_buffer_v2(gdr_t g, unsigned long addr, size_t size, uint32_t flags, gdr_mh_t *handle)
{
    return flags == 0 ? gdr_pin_buffer(g, addr, size, 0, 0, handle) : EINVAL;
}

int gdr_unmap(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
    struct buffer *buffer = buffer_of(handle);

    (void)g, (void)va, (void)size;
    munmap(buffer->va, buffer->size);
    buffer->va = NULL;
    return 0;
}

int gdr_unpin_buffer(gdr_t g, gdr_mh_t handle)
{
    struct buffer *buffer = buffer_of(handle);
    struct gdrdrv_unpin_buffer a = {buffer->handle};
    struct buffer **link = &g->buffers;

    while (*link != buffer)
        link = &(*link)->next;
    *link = buffer->next;
    if (buffer->va != NULL)
        gdr_unmap(g, handle, buffer->va, buffer->size);
    free(buffer);
    return command(g, GDRDRV_IOC_UNPIN_BUFFER, &a);
}

int gdr_get_callback_flag(gdr_t g, gdr_mh_t handle, int *flag)
{
    struct gdrdrv_get_cb_flag a = {.handle = buffer_of(handle)->handle};
    int result = command(g, GDRDRV_IOC_GET_CB_FLAG, &a);

    if (result == 0)
        *flag = (int)a.flag;
    return result;
}

int gdr_get_info_v2(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info)
{
    struct gdrdrv_get_info old = {.handle = buffer_of(handle)->handle};
    struct gdrdrv_get_info_v2 a = {.handle = old.handle};
    int result;

    memset(info, 0, sizeof(*info));
    if (is_since(g, 4)) {
        result = command(g, GDRDRV_IOC_GET_INFO_V2, &a);
        info->mapping_type = (gdr_mapping_type_t)a.mapping_type;
    } else {
        result = command(g, GDRDRV_IOC_GET_INFO, &old);
        memcpy(&a, &old, offsetof(struct gdrdrv_get_info_v2, mapping_type));
        if (old.mapped)
            info->mapping_type = old.wc_mapping ? GDR_MAPPING_TYPE_WC : GDR_MAPPING_TYPE_CACHING;
    }
    info->va = a.va;
    info->mapped_size = a.mapped_size;
    info->page_size = a.page_size;
    info->mapped = info->mapping_type != GDR_MAPPING_TYPE_NONE;
    info->wc_mapping = info->mapping_type == GDR_MAPPING_TYPE_WC;
    return result;
}

int gdr_map_v2(gdr_t g, gdr_mh_t handle, void **va, size_t size, int flags)
{
    struct buffer *buffer = buffer_of(handle);
    struct gdrdrv_req_mapping_type a = {buffer->handle, (uint32_t)flags};
    off_t offset = (off_t)buffer->handle * sysconf(_SC_PAGESIZE);

    if (buffer->va != NULL)
        return EAGAIN;
    if (flags != GDR_MAP_FLAG_DEFAULT && command(g, GDRDRV_IOC_REQ_MAPPING_TYPE, &a) != 0)
        return errno;
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, g->fd, offset);
    if (mapped == MAP_FAILED)
        return errno;
    buffer->size = size;
    *va = buffer->va = mapped;
    return 0;
}

int gdr_map(gdr_t g, gdr_mh_t handle, void **va, size_t size)
{
    return gdr_map_v2(g, handle, va, size, GDR_MAP_FLAG_DEFAULT);
}

static int copy(void *destination, const void *source, size_t size)
{
    __sync_synchronize();
    memcpy(destination, source, size);
    __sync_synchronize();
    return 0;
}

int gdr_copy_to_mapping(gdr_mh_t handle, void *map_d_ptr, const void *h_ptr, size_t size)
{
    (void)handle;
    return copy(map_d_ptr, h_ptr, size);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *h_ptr, const void *map_d_ptr, size_t size)
{
    (void)handle;
    return copy(h_ptr, map_d_ptr, size);
}

void gdr_runtime_get_version(int *major, int *minor)
{
    *major = 2;
    *minor = 6;
}

int gdr_driver_get_version(gdr_t g, int *major, int *minor)
{
    *major = (int)(g->version >> MAJOR_VERSION_SHIFT);
    *minor = (int)(g->version & MINOR_VERSION_MASK);
    return 0;
}

int gdr_get_attribute(gdr_t g, gdr_attr_t attr, int *v)
{
    struct gdrdrv_get_attr a = {.attr = (uint32_t)attr};

    if (attr <= 0 || attr >= GDR_ATTR_MAX)
        return EINVAL;
    *v = is_since(g, 5) && command(g, GDRDRV_IOC_GET_ATTR, &a) == 0 ? (int)a.val : 0;
    return 0;
}

int gdr_get_mapping_type_string(gdr_mapping_type_t mapping_type, const char **pstr)
{
    (void)mapping_type;
    *pstr = "any";
    return 0;
}
