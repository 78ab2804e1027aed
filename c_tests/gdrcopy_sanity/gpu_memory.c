#include "gpu_memory.h"

#include "gdrapi.h"

static CUdevice device;

void check_cuda(const char *file, int line, const char *call, CUresult result)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s:%d: %s is %d (%s)\n", file, line, call, (int)result, name != NULL ? name : "unknown");
    exit(1);
}

void gpu_init(void)
{
    CUcontext context;

    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, option_gpu));
    CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CUDA(cuCtxSetCurrent(context));
}

static int has_attribute(CUdevice_attribute attribute)
{
    int value = 0;

    return cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

int gpu_is_coherent(void)
{
    return has_attribute(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
}

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static void allocate(struct gpu_memory *memory, size_t size)
{
    memory->size = round_up(size, GPU_PAGE_SIZE);
    CUDA(cuMemAlloc(&memory->allocation, memory->size + GPU_PAGE_SIZE - 1));
    memory->address = round_up(memory->allocation, GPU_PAGE_SIZE);
}

static void create(struct gpu_memory *memory, size_t size)
{
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    size_t granularity;

    if (!has_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        waive_test("the GPU has no virtual memory management (cuMemCreate)");
    if (!has_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        waive_test("memory from cuMemCreate cannot be pinned on this GPU");
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    CUDA(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    memory->size = round_up(size, granularity);
    CUDA(cuMemCreate(&memory->handle, memory->size, &prop, 0));
    CUDA(cuMemAddressReserve(&memory->allocation, memory->size, 0, 0, 0));
    CUDA(cuMemMap(memory->allocation, memory->size, 0, memory->handle, 0));
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUDA(cuMemSetAccess(memory->allocation, memory->size, &access, 1));
    memory->address = memory->allocation;
}

struct gpu_memory gpu_alloc(enum memory_kind kind, size_t size)
{
    struct gpu_memory memory = {0};

    memory.kind = kind;
    if (kind == VMMALLOC)
        create(&memory, size);
    else
        allocate(&memory, size);
    return memory;
}

struct gpu_memory gpu_alloc_small(size_t size)
{
    struct gpu_memory memory = {0};

    memory.kind = CUMEMALLOC;
    memory.size = size;
    CUDA(cuMemAlloc(&memory.allocation, size));
    memory.address = memory.allocation;
    return memory;
}

void gpu_free(const struct gpu_memory *memory)
{
    if (memory->kind == VMMALLOC) {
        CUDA(cuMemUnmap(memory->allocation, memory->size));
        CUDA(cuMemRelease(memory->handle));
        CUDA(cuMemAddressFree(memory->allocation, memory->size));
    } else {
        CUDA(cuMemFree(memory->allocation));
    }
}

void gpu_read(void *destination, CUdeviceptr source, size_t size)
{
    CUDA(cuMemcpyDtoH(destination, source, size));
}

void gpu_write(CUdeviceptr destination, const void *source, size_t size)
{
    CUDA(cuMemcpyHtoD(destination, source, size));
    CUDA(cuCtxSynchronize()); /* small copies return before the data has arrived */
}
