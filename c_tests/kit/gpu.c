#include "gpu.h"

#define GPU_PAGE ((size_t)1 << 16)

int gpu_under_test;

void check_cuda(const char *file, int line, const char *function, const char *call, CUresult result)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    failed(file, line, function, "%s is %d (%s)", call, (int)result, name != NULL ? name : "unknown");
}

CUcontext gpu_start(CUdevice gpu)
{
    CUcontext context;
    CUdevice device;

    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, gpu));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));
    return context;
}

void gpu_init(void)
{
    gpu_start(gpu_under_test);
}

static int has_attribute(CUdevice_attribute attribute)
{
    int value = 0;

    return cuDeviceGetAttribute(&value, attribute, gpu_under_test) == CUDA_SUCCESS && value != 0;
}

size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

size_t round_down(size_t value, size_t unit)
{
    return value / unit * unit;
}

static void allocate(struct gpu_buffer *buffer, size_t size)
{
    buffer->size = round_up(size, GPU_PAGE);
    CUDA(cuMemAlloc(&buffer->allocation, buffer->size + GPU_PAGE - 1));
    buffer->address = round_up(buffer->allocation, GPU_PAGE);
}

static void create(struct gpu_buffer *buffer, size_t size)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu_under_test},
        .allocFlags.gpuDirectRDMACapable = 1,
    };
    const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granularity;

    if (!has_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        waive("the GPU has no virtual memory management (cuMemCreate)");
    if (!has_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        waive("memory from cuMemCreate cannot be pinned on this GPU");
    CUDA(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));

    buffer->size = round_up(size, granularity);
    buffer->reserved = 2 * buffer->size;
    CUDA(cuMemCreate(&buffer->handle, buffer->size, &prop, 0));
    CUDA(cuMemAddressReserve(&buffer->allocation, buffer->reserved, 0, 0, 0));
    CUDA(cuMemMap(buffer->allocation, buffer->size, 0, buffer->handle, 0));
    CUDA(cuMemSetAccess(buffer->allocation, buffer->size, &access, 1));
    buffer->address = buffer->allocation;
}

struct gpu_buffer gpu_alloc(enum gpu_memory kind, size_t size)
{
    struct gpu_buffer buffer = {.kind = kind};

    if (kind == MEM_CREATE)
        create(&buffer, size);
    else
        allocate(&buffer, size);
    return buffer;
}

struct gpu_buffer gpu_alloc_small(size_t size)
{
    struct gpu_buffer buffer = {.size = size};

    CUDA(cuMemAlloc(&buffer.allocation, size));
    buffer.address = buffer.allocation;
    return buffer;
}

void gpu_free(const struct gpu_buffer *buffer)
{
    if (buffer->kind == MEM_CREATE) {
        CUDA(cuMemUnmap(buffer->allocation, buffer->size));
        CUDA(cuMemAddressFree(buffer->allocation, buffer->reserved));
        CUDA(cuMemRelease(buffer->handle));
    } else {
        CUDA(cuMemFree(buffer->allocation));
    }
}

void gpu_read(void *destination, CUdeviceptr source, size_t size)
{
    CUDA(cuMemcpyDtoH(destination, source, size));
}

void gpu_write(CUdeviceptr destination, const void *source, size_t size)
{
    CUDA(cuMemcpyHtoD(destination, source, size));
    CUDA(cuCtxSynchronize()); /* A small cuMemcpyHtoD may return before the data has arrived. */
}

void fill(void *buffer, size_t size, unsigned seed)
{
    unsigned char *byte = buffer;
    uint32_t state = seed * 2654435761u + 1;

    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        byte[i] = (unsigned char)(state >> 24);
    }
}
