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

static void present(void)
{
    CUmemoryPool standard, pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUdeviceptr a, b;

    CUDA(cuDeviceGetDefaultMemPool(&standard, 0));
    CUDA(cuMemAllocAsync(&a, 1000, NULL));
    CUDA(cuMemsetD8Async(a, 1, 1000, NULL));
    CHECK_EQUAL(pointer_attribute(a, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE), (uintptr_t)standard);
    CHECK_EQUAL(pointer_attribute(a, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE), 0);

    CUDA(cuMemPoolCreate(&pool, &props));
    CUDA(cuMemAllocFromPoolAsync(&b, 500, pool, NULL));
    CHECK_EQUAL(pointer_attribute(b, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE), (uintptr_t)pool);
    CUDA(cuMemFreeAsync(b, NULL));
    CHECK_EQUAL(cuMemFreeAsync(b, NULL), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemAllocFromPoolAsync(&b, 0, pool, NULL));
    CHECK_EQUAL(b, 0);
    CUDA(cuMemFreeAsync(0, NULL));
    CUDA(cuMemPoolDestroy(pool));
    CHECK_EQUAL(cuMemAllocFromPoolAsync(&b, 500, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(a));
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK_EQUAL(cuMemPoolCreate(&pool, &props), CUDA_ERROR_INVALID_VALUE);
}

int main(int count, char **arguments)
{
    (void)arguments;
    gpu_start(0);
    if (count > 1)
        absent();
    else
        present();
    return passed("cuda_pools");
}
