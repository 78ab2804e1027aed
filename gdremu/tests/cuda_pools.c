/* Stream-ordered allocation, on GPUs that have pools and (with the argument "none") on those that have not. */
#include "cuda_values.h"

static void absent(void)
{
    CUmemoryPool pool;
    CUdeviceptr address;

    CHECK_EQUAL(device_attribute(0, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 0);
    CHECK_EQUAL(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(cuMemAllocAsync(&address, 100, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static unsigned long long used(CUmemoryPool pool)
{
    uint64_t bytes;

    CUDA(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    return bytes;
}

static void limits_and_access(CUmemPoolProps props)
{
    CUmemAccessDesc access = {props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    CUmemoryPool pool;

    props.maxSize = 1;
    CUDA(cuMemPoolCreate(&pool, &props));
    CUDA(cuMemAllocFromPoolAsync(&address, 32 << 20, pool, NULL));
    CHECK_EQUAL(cuMemAllocFromPoolAsync(&address, 1, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CUDA(cuMemFreeAsync(address, NULL));
    CUDA(cuMemAllocFromPoolAsync(&address, 0, pool, NULL));
    CHECK_EQUAL(address, 0);
    CUDA(cuMemFreeAsync(0, NULL));
    CUDA(cuMemPoolSetAccess(pool, &access, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    CHECK_EQUAL(cuMemPoolSetAccess(pool, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CHECK_EQUAL(cuMemPoolSetAccess(pool, &access, 1), 101 /* INVALID_DEVICE */);
    CUDA(cuMemPoolDestroy(pool));
}

static void present(void)
{
    CUmemoryPool standard, pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdeviceptr a, b;
    uint64_t threshold = 12345, got;

    CUDA(cuDeviceGetDefaultMemPool(&standard, 0));
    CUDA(cuDeviceGetMemPool(&pool, 0));
    CHECK(pool == standard);
    CUDA(cuMemAllocAsync(&a, 1000, NULL));
    CHECK_EQUAL(used(standard), 1000);
    CUDA(cuMemsetD8Async(a, 1, 1000, NULL));
    CHECK_EQUAL(pointer_attribute(a, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE), (uintptr_t)standard);
    CHECK_EQUAL(pointer_attribute(a, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE), 0);

    CUDA(cuMemPoolCreate(&pool, &props));
    CUDA(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CUDA(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &got));
    CHECK_EQUAL(got, threshold);
    CUDA(cuDeviceSetMemPool(0, pool));
    CUDA(cuMemAllocAsync(&b, 500, NULL));
    CHECK_EQUAL(used(pool), 500);
    CUDA(cuMemFreeAsync(b, NULL));
    CHECK_EQUAL(cuMemFreeAsync(b, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(used(pool), 0);
    CUDA(cuMemPoolTrimTo(pool, 0));
    CUDA(cuMemPoolDestroy(pool));
    CHECK_EQUAL(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(a));
    CHECK_EQUAL(used(standard), 0);
    limits_and_access(props);
}

int main(int count, char **arguments)
{
    gpu_start(0);
    if (count > 1 && strcmp(arguments[1], "none") == 0)
        absent();
    else
        present();
    return passed("cuda_pools");
}
