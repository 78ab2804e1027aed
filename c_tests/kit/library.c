#include "library.h"

#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

#define UNTOUCHED 0x5a

gdr_t open_driver(void)
{
    gdr_t g = gdr_open();

    CHECK(g != NULL);
    return g;
}

gdr_mh_t pin(gdr_t g, CUdeviceptr address, size_t size)
{
    gdr_mh_t handle = {0};

    CHECK_OK(gdr_pin_buffer(g, (unsigned long)address, size, 0, 0, &handle));
    CHECK(handle.h != 0);
    return handle;
}

void *map(gdr_t g, gdr_mh_t handle, size_t size)
{
    void *va = NULL;

    CHECK_OK(gdr_map(g, handle, &va, size));
    CHECK(va != NULL);
    return va;
}

void unmap_and_unpin(gdr_t g, gdr_mh_t handle, void *va, size_t size)
{
    CHECK_OK(gdr_unmap(g, handle, va, size));
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

gdr_info_t info_of(gdr_t g, gdr_mh_t handle)
{
    gdr_info_t info;

    memset(&info, 0xee, sizeof(info));
    CHECK_OK(gdr_get_info_v2(g, handle, &info));
    return info;
}

int flag_of(gdr_t g, gdr_mh_t handle)
{
    int flag = -1;

    CHECK_OK(gdr_get_callback_flag(g, handle, &flag));
    return flag;
}

void check_handle_refused(gdr_t g, gdr_mh_t handle, int error)
{
    unsigned char untouched[64], out[64];

    memset(untouched, UNTOUCHED, sizeof(untouched));
    memset(out, UNTOUCHED, sizeof(out));
    CHECK_ERROR(gdr_get_info_v2(g, handle, (gdr_info_v2_t *)(void *)out), error);
    CHECK_ERROR(gdr_get_info(g, handle, (gdr_info_v2_t *)(void *)out), error);
    CHECK_ERROR(gdr_get_callback_flag(g, handle, (int *)(void *)out), error);
    CHECK_ERROR(gdr_map(g, handle, (void **)(void *)out, GPU_PAGE_SIZE), error);
    CHECK_ERROR(gdr_map_v2(g, handle, (void **)(void *)out, GPU_PAGE_SIZE, GDR_MAP_FLAG_REQ_WC_MAPPING), error);
    CHECK_ERROR(gdr_unmap(g, handle, out, sizeof(out)), error);
    CHECK_ERROR(gdr_unpin_buffer(g, handle), error);
    CHECK_BYTES(out, untouched, sizeof(out));
}

void check_copies_refused(gdr_mh_t handle, int error)
{
    unsigned char untouched[16], out[16], other[16] = {0};

    memset(untouched, UNTOUCHED, sizeof(untouched));
    memset(out, UNTOUCHED, sizeof(out));
    for (size_t size = 0; size <= sizeof(out); size += 8) {
        CHECK_ERROR(gdr_copy_to_mapping(handle, out, other, size), error);
        CHECK_ERROR(gdr_copy_from_mapping(handle, out, other, size), error);
    }
    CHECK_BYTES(out, untouched, sizeof(out));
}

void check_shows(gdr_mh_t handle, void *va, CUdeviceptr address, size_t size)
{
    static unsigned seed;
    unsigned own_seed = __atomic_fetch_add(&seed, 2, __ATOMIC_RELAXED);
    unsigned char *sent = malloc(size);
    unsigned char *seen = malloc(size);

    CHECK(sent != NULL && seen != NULL);
    fill(sent, size, own_seed);
    CHECK_OK(gdr_copy_to_mapping(handle, va, sent, size));
    gpu_read(seen, address, size);
    CHECK_BYTES(seen, sent, size);
    fill(sent, size, own_seed + 1);
    gpu_write(address, sent, size);
    CHECK_OK(gdr_copy_from_mapping(handle, seen, va, size));
    CHECK_BYTES(seen, sent, size);
    free(sent);
    free(seen);
}

void check_works(gdr_t g, gdr_mh_t handle, size_t size)
{
    void *va = map(g, handle, size);

    CHECK_EQUAL(info_of(g, handle).mapped, 1);
    check_shows(handle, va, info_of(g, handle).va, size);
    CHECK_OK(gdr_unmap(g, handle, va, size));
}

int driver_is_at_least(gdr_t g, int major, int minor)
{
    int its_major = -1, its_minor = -1;

    CHECK_OK(gdr_driver_get_version(g, &its_major, &its_minor));
    return its_major > major || (its_major == major && its_minor >= minor);
}

static int attribute(gdr_t g, gdr_attr_t which)
{
    int value = -1;

    CHECK_OK(gdr_get_attribute(g, which, &value));
    CHECK(value == 0 || value == 1);
    return value;
}

int uses_dmabuf(gdr_t g)
{
    return attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP);
}

gdr_t open_dmabufs(void)
{
    gdr_t g = open_driver();

    if (!uses_dmabuf(g))
        waive("gdr_open chose gdrdrv");
    return g;
}

void require_gdrdrv(int minor)
{
    gdr_t g = open_driver();

    if (uses_dmabuf(g) || !driver_is_at_least(g, 2, minor))
        waive("the driver is not gdrdrv, or too old for this test");
    CHECK_OK(gdr_close(g));
}

size_t pin_page(gdr_t g)
{
    return uses_dmabuf(g) ? (size_t)sysconf(_SC_PAGESIZE) : GPU_PAGE_SIZE;
}

int is_persistent(gdr_t g)
{
    return attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING);
}

gdr_map_flags_t platform_flag(gdr_t g, gdr_mh_t handle)
{
    static const gdr_map_flags_t flags[GDR_MAPPING_TYPE_MAX] = {
        GDR_MAP_FLAG_DEFAULT, GDR_MAP_FLAG_REQ_WC_MAPPING, GDR_MAP_FLAG_REQ_CACHE_MAPPING,
        GDR_MAP_FLAG_REQ_DEVICE_MAPPING,
    };
    void *va = map(g, handle, 1);
    gdr_mapping_type_t type = info_of(g, handle).mapping_type;

    CHECK(type > GDR_MAPPING_TYPE_NONE && type < GDR_MAPPING_TYPE_MAX);
    CHECK_OK(gdr_unmap(g, handle, va, 1));
    return flags[type];
}
