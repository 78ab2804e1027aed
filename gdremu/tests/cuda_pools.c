/* Stream-ordered allocation, on GPUs that have pools and (with the argument "none") on those that have not. */
#include "cuda_start.h"

static void absent(void)
{
    CUmemoryPool pool;
    CUdeviceptr address;
    int supported = -1;

    CHECK_EQUAL(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0), CUDA_SUCCESS);
    CHECK_EQUAL(supported, 0);
    CHECK_EQUAL(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(cuMemAllocAsync(&address, 100, NULL), CUDA_ERROR_NOT_SUPPORTED);
}

static unsigned long long used(CUmemoryPool pool)
{
    uint64_t bytes;

    CHECK_EQUAL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes), CUDA_SUCCESS);
    return bytes;
}

static void present(void)
{
    CUmemoryPool standard, pool, of;
    CUmemPoolProps props;
    CUdeviceptr a, b;
    uint64_t threshold = 12345, got;
    int rdma = -1;

    CHECK_EQUAL(cuDeviceGetDefaultMemPool(&standard, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuDeviceGetMemPool(&pool, 0), CUDA_SUCCESS);
    CHECK(pool == standard);
    CHECK_EQUAL(cuMemAllocAsync(&a, 1000, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(used(standard), 1000);
    CHECK_EQUAL(cuMemsetD8Async(a, 1, 1000, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a), CUDA_SUCCESS);
    CHECK(of == standard);
    CHECK_EQUAL(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, a), CUDA_SUCCESS);
    CHECK_EQUAL(rdma, 0);

    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK_EQUAL(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &got), CUDA_SUCCESS);
    CHECK_EQUAL(got, threshold);
    CHECK_EQUAL(cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAllocAsync(&b, 500, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(used(pool), 500);
    CHECK_EQUAL(cuMemFreeAsync(b, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFreeAsync(b, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(used(pool), 0);
    CHECK_EQUAL(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree(a), CUDA_SUCCESS);
    CHECK_EQUAL(used(standard), 0);
}

int main(int count, char **arguments)
{
    start(0);
    if (count > 1 && strcmp(arguments[1], "none") == 0)
        absent();
    else
        present();
    puts("ok cuda_pools");
    return 0;
}
