/* GPU memory for the C tests, and CUDA's view of it, which every copy is compared with. */
#ifndef GPU_H
#define GPU_H

#include "check.h"
#include "cuda_driver.h"
#include "gdrapi.h"

/* Ends the program unless the CUDA call succeeds. */
#define CUDA(call) check_cuda(__FILE__, __LINE__, #call, (call))

static inline void check_cuda(const char *file, int line, const char *call, CUresult result)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s:%d: %s is %d (%s)\n", file, line, call, (int)result, name != NULL ? name : "unknown");
    exit(1);
}

/* Makes the first GPU's primary context current in the calling thread. */
static inline void gpu_init(void)
{
    CUdevice device;
    CUcontext context;

    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, 0));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));
}

enum gpu_memory {
    MEM_ALLOC, /* cuMemAlloc */
    MEM_CREATE /* cuMemCreate and cuMemMap */
};

struct gpu_buffer {
    CUdeviceptr address; /* a multiple of GPU_PAGE_SIZE */
    size_t size;
    enum gpu_memory kind;
    CUdeviceptr allocation; /* what cuMemAlloc returned, or the reserved range */
    size_t reserved;        /* bytes of device addresses reserved for MEM_CREATE; the second half has no memory */
    CUmemGenericAllocationHandle handle;
};

static inline size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static inline size_t round_down(size_t value, size_t unit)
{
    return value / unit * unit;
}

static inline struct gpu_buffer gpu_create(size_t size)
{
    struct gpu_buffer buffer;
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    size_t granularity;

    memset(&buffer, 0, sizeof(buffer));
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    CUDA(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));

    buffer.kind = MEM_CREATE;
    buffer.size = round_up(size, granularity);
    buffer.reserved = 2 * buffer.size;
    CUDA(cuMemCreate(&buffer.handle, buffer.size, &prop, 0));
    CUDA(cuMemAddressReserve(&buffer.allocation, buffer.reserved, 0, 0, 0));
    CUDA(cuMemMap(buffer.allocation, buffer.size, 0, buffer.handle, 0));
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUDA(cuMemSetAccess(buffer.allocation, buffer.size, &access, 1));
    buffer.address = buffer.allocation;
    return buffer;
}

/* At least `size` bytes of GPU memory that start on a GPU page. */
static inline struct gpu_buffer gpu_alloc(enum gpu_memory kind, size_t size)
{
    struct gpu_buffer buffer;

    if (kind == MEM_CREATE) {
        buffer = gpu_create(size);
    } else {
        memset(&buffer, 0, sizeof(buffer));
        buffer.kind = MEM_ALLOC;
        buffer.size = round_up(size, GPU_PAGE_SIZE);
        CUDA(cuMemAlloc(&buffer.allocation, buffer.size + GPU_PAGE_SIZE - 1));
        buffer.address = round_up(buffer.allocation, GPU_PAGE_SIZE);
    }
    return buffer;
}

static inline void gpu_free(struct gpu_buffer *buffer)
{
    if (buffer->kind == MEM_CREATE) {
        CUDA(cuMemUnmap(buffer->allocation, buffer->size));
        CUDA(cuMemAddressFree(buffer->allocation, buffer->reserved));
        CUDA(cuMemRelease(buffer->handle));
    } else {
        CUDA(cuMemFree(buffer->allocation));
    }
}

/* CUDA's view of the memory. */
static inline void gpu_read(void *destination, CUdeviceptr source, size_t size)
{
    CUDA(cuMemcpyDtoH(destination, source, size));
}

static inline void gpu_write(CUdeviceptr destination, const void *source, size_t size)
{
    CUDA(cuMemcpyHtoD(destination, source, size));
    CUDA(cuCtxSynchronize()); /* A small cuMemcpyHtoD may return before the data has arrived. */
}

/* ---- First and last steps of most tests ---- */

static inline gdr_mh_t pin(gdr_t g, CUdeviceptr address, size_t size)
{
    gdr_mh_t handle = {0};

    CHECK_OK(gdr_pin_buffer(g, (unsigned long)address, size, 0, 0, &handle));
    CHECK(handle.h != 0);
    return handle;
}

static inline void *map(gdr_t g, gdr_mh_t handle, size_t size)
{
    void *va = NULL;

    CHECK_OK(gdr_map(g, handle, &va, size));
    CHECK(va != NULL);
    return va;
}

static inline gdr_info_t info_of(gdr_t g, gdr_mh_t handle)
{
    gdr_info_t info;

    CHECK_OK(gdr_get_info_v2(g, handle, &info));
    return info;
}

/* ---- Properties of driver and platform ---- */

/* Whether gdrdrv is version 2.`minor` or later. */
static inline int driver_is_at_least(gdr_t g, int minor)
{
    int major_of_driver, minor_of_driver;

    CHECK_OK(gdr_driver_get_version(g, &major_of_driver, &minor_of_driver));
    return major_of_driver > 2 || minor_of_driver >= minor;
}

/* Whether GPU memory is mapped as a dma-buf, without gdrdrv. */
static inline int uses_dmabuf(gdr_t g)
{
    int value;

    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
    return value;
}

/* Unit that pins are rounded out to: the GPU page, or with dma-bufs the host page. */
static inline size_t pin_page(gdr_t g)
{
    return uses_dmabuf(g) ? (size_t)sysconf(_SC_PAGESIZE) : GPU_PAGE_SIZE;
}

/* Whether pinned memory outlives its cuMemFree. */
static inline int is_persistent(gdr_t g)
{
    int value;

    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    return value;
}

/* The flag for the type which this platform maps by default. */
static inline gdr_map_flags_t platform_flag(gdr_t g, gdr_mh_t handle)
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

/* ---- Test data ---- */

/* Bytes that differ from their neighbors and from those of another seed. */
static inline void fill(void *buffer, size_t size, unsigned seed)
{
    unsigned char *byte = (unsigned char *)buffer;
    uint32_t state = seed * 2654435761u + 1;
    size_t i;

    for (i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        byte[i] = (unsigned char)(state >> 24);
    }
}

#endif
