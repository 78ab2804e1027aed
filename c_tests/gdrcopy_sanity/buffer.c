#include "buffer.h"

#include <fcntl.h>

/* Linux's internal ENOTSUPP, which older releases of the library pass on. */
#define KERNEL_ENOTSUPP 524

/* ---- Connections ---- */

int descriptor_of(gdr_t g)
{
    int descriptor = *(const int *)(const void *)g;

    CHECK(uses_dmabuf(g) ? descriptor == -1 : fcntl(descriptor, F_GETFD) != -1);
    return descriptor;
}

/* ---- Pinning ---- */

gdr_mh_t pin_v2(gdr_t g, CUdeviceptr address, size_t size)
{
    gdr_mh_t handle = {0};

    CHECK_OK(gdr_pin_buffer_v2(g, (unsigned long)address, size, GDR_PIN_FLAG_DEFAULT, &handle));
    CHECK(handle.h != 0);
    return handle;
}

gdr_mh_t pin_force_pcie(gdr_t g, CUdeviceptr address, size_t size)
{
    gdr_mh_t handle = {0};
    int supported = -1;

    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &supported));
    int result = gdr_pin_buffer_v2(g, (unsigned long)address, size, GDR_PIN_FLAG_FORCE_PCIE, &handle);
    if (result == 0) {
        CHECK(supported || getenv("GDRCOPY_FORCE_PCIE_COMPAT") != NULL);
        CHECK(handle.h != 0);
        return handle;
    }
    CHECK(result == EINVAL || result == EOPNOTSUPP || result == KERNEL_ENOTSUPP);
    /* The flag is the reason for the refusal, because without it the same memory can be
       pinned. */
    CHECK_OK(gdr_unpin_buffer(g, pin_v2(g, address, size)));
    if (!supported)
        waive("the driver does not support GDR_PIN_FLAG_FORCE_PCIE");
    if (!gpu_is_coherent())
        waive("the GPU has only PCIe, so GDR_PIN_FLAG_FORCE_PCIE is refused");
    waive("the GPU driver refuses GDR_PIN_FLAG_FORCE_PCIE");
}

/* ---- Whole buffers ---- */

static void check_info(const struct buffer *buffer)
{
    gdr_info_t info = info_of(buffer->g, buffer->handle);

    CHECK_EQUAL(info.va, buffer->memory.address);
    CHECK_EQUAL(info.mapped_size, buffer->memory.size);
    CHECK(info.page_size == GPU_PAGE_SIZE || (uses_dmabuf(buffer->g) && info.page_size == sysconf(_SC_PAGESIZE)));
    CHECK_EQUAL(info.mapped, buffer->va != NULL);
    CHECK_EQUAL(info.wc_mapping, info.mapping_type == GDR_MAPPING_TYPE_WC);
    if (buffer->va != NULL)
        CHECK(info.mapping_type > GDR_MAPPING_TYPE_NONE && info.mapping_type < GDR_MAPPING_TYPE_MAX);
    else
        CHECK_EQUAL(info.mapping_type, GDR_MAPPING_TYPE_NONE);
}

struct buffer buffer_pin(gdr_t g, enum gpu_memory kind, size_t size, pin_function *pin)
{
    struct buffer buffer = {.memory = gpu_alloc(kind, size), .g = g};

    buffer.handle = pin(g, buffer.memory.address, buffer.memory.size);
    check_info(&buffer);
    return buffer;
}

void buffer_map(struct buffer *buffer)
{
    void *va = NULL;

    CHECK_OK(gdr_map(buffer->g, buffer->handle, &va, buffer->memory.size));
    CHECK(va != NULL);
    buffer->va = va;
    check_info(buffer);
}

void buffer_unmap(struct buffer *buffer)
{
    CHECK_OK(gdr_unmap(buffer->g, buffer->handle, buffer->va, buffer->memory.size));
    buffer->va = NULL;
    check_info(buffer);
}

void buffer_unpin(struct buffer *buffer)
{
    CHECK_OK(gdr_unpin_buffer(buffer->g, buffer->handle));
}

struct buffer buffer_pin_and_map(gdr_t g, enum gpu_memory kind, size_t size)
{
    struct buffer buffer = buffer_pin(g, kind, size, pin);

    buffer_map(&buffer);
    return buffer;
}

void buffer_drop(struct buffer *buffer)
{
    buffer_unmap(buffer);
    buffer_unpin(buffer);
    gpu_free(&buffer->memory);
}

/* ---- Contents ---- */

#define MOST_COMPARED (1UL << 20)

static size_t compared_size(const struct buffer *buffer)
{
    return buffer->memory.size < MOST_COMPARED ? buffer->memory.size : MOST_COMPARED;
}

static unsigned char *pattern_of(unsigned seed, size_t size)
{
    unsigned char *pattern = malloc(size);

    CHECK(pattern != NULL);
    fill(pattern, size, seed);
    return pattern;
}

void put_pattern(const struct buffer *buffer, unsigned seed)
{
    size_t size = compared_size(buffer);
    unsigned char *pattern = pattern_of(seed, size);

    CHECK_OK(gdr_copy_to_mapping(buffer->handle, buffer->va, pattern, size));
    free(pattern);
}

void check_pattern(const struct buffer *buffer, unsigned seed)
{
    size_t size = compared_size(buffer);
    unsigned char *pattern = pattern_of(seed, size), *seen = pattern_of(~seed, size);

    CHECK_OK(gdr_copy_from_mapping(buffer->handle, seen, buffer->va, size));
    CHECK_BYTES(seen, pattern, size);
    free(pattern);
    free(seen);
}

void check_views_agree(const struct buffer *buffer, unsigned seed)
{
    size_t size = compared_size(buffer);
    unsigned char *pattern = pattern_of(seed, size), *seen = pattern_of(~seed, size);

    put_pattern(buffer, seed);
    gpu_read(seen, buffer->memory.address, size);
    CHECK_BYTES(seen, pattern, size);

    fill(pattern, size, seed + 1);
    gpu_write(buffer->memory.address, pattern, size);
    check_pattern(buffer, seed + 1);
    free(pattern);
    free(seen);
}
