/* Tests of cuMemAlloc, copies, fills and host memory. */
#include <sys/mman.h>

#include "cuda_values.h"
#include "kit/fault.h"
#include "tests.h"

GPU_TEST(addresses)
{
    CUdeviceptr buffers[40], base;
    size_t size, before = free_bytes(), unaligned = 0;

    for (size_t i = 0; i < 40; i++) {
        buffers[i] = allocated(100 + 5000 * i);
        CHECK_EQUAL(buffers[i] % 512, 0);
        unaligned += buffers[i] % 65536 != 0;
        CHECK_EQUAL(fault_at((void *)(uintptr_t)buffers[i]), SIGSEGV);
    }
    CHECK_COMPARE(unaligned, >, 20);
    CUdeviceptr large = allocated(3 << 20);
    CHECK_EQUAL(large % (2 << 20), 0);
    CUDA(cuMemGetAddressRange(&base, &size, large + 12345));
    CHECK(base == large && size == 3 << 20);
    CUDA(cuMemGetAddressRange(&base, NULL, buffers[3] + 15099));
    CHECK_EQUAL(base, buffers[3]);
    CHECK_EQUAL(cuMemGetAddressRange(&base, &size, 4096), CUDA_ERROR_NOT_FOUND);

    CHECK_EQUAL(cuMemFree(large + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree((uintptr_t)&size), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(large));
    CUDA(cuMemFree(0));
    CHECK_EQUAL(cuMemFree(large), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < 40; i++)
        CUDA(cuMemFree(buffers[i]));
    CHECK_EQUAL(free_bytes(), before);
    CHECK_EQUAL(cuMemAlloc(&large, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemAlloc(&large, (16ul << 30) + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc(&large, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc(NULL, 1), CUDA_ERROR_INVALID_VALUE);
}

GPU_TEST(copies)
{
    enum { SIZE = 100000 };
    static unsigned char out[SIZE], in[SIZE];
    CUdeviceptr a = allocated(SIZE), b = allocated(SIZE + 3);
    size_t i;

    for (i = 0; i < SIZE; i++)
        out[i] = (unsigned char)(i * 7 + i / 256);
    CUDA(cuMemcpyHtoD(a, out, SIZE));
    CUDA(cuMemcpyDtoD(b + 3, a, SIZE));
    CUDA(cuMemcpyDtoH(in, b + 3, SIZE));
    CHECK_BYTES(in, out, SIZE);
    memset(in, 0, SIZE);
    CUDA(cuMemcpyDtoHAsync(in, a, SIZE, NULL));
    CHECK_BYTES(in, out, SIZE);
    CUDA(cuMemcpy((uintptr_t)in, b + 4, 1000));
    CHECK_BYTES(in, out + 1, 1000);
    CUDA(cuMemcpyDtoD(b, b + 3, SIZE));
    CUDA(cuMemcpyDtoH(in, b, SIZE));
    CHECK_BYTES(in, out, SIZE);

    CHECK_EQUAL(cuMemcpyHtoD(a + 1, out, SIZE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyDtoH(in, a + SIZE, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyDtoH(in, a - 1, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyHtoD((uintptr_t)in, out, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyDtoH(in, (uintptr_t)out, 1), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemcpyDtoH(in, a + SIZE, 0));
    CHECK_EQUAL(cuMemcpyDtoHAsync(in, a, 1, (CUstream)(uintptr_t)0x1234), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuMemFree(a));
    CUDA(cuMemFree(b));
    CHECK_EQUAL(cuMemcpyDtoH(in, a, 1), CUDA_ERROR_INVALID_VALUE);
}

GPU_TEST(fills)
{
    CUdeviceptr a = allocated(16);
    unsigned char in[16];

    CUDA(cuMemsetD8(a, 0x11, 16));
    CUDA(cuMemsetD32(a + 4, 0x22332233, 1));
    CUDA(cuMemsetD8Async(a + 8, 0x77, 2, CU_STREAM_LEGACY));
    CUDA(cuMemcpyDtoH(in, a, 16));
    CHECK_BYTES(in, "\x11\x11\x11\x11\x33\x22\x33\x22\x77\x77\x11\x11\x11\x11\x11\x11", 16);
    CHECK_EQUAL(cuMemsetD32(a + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD32(a, 0, 5), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD32(a, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD8((uintptr_t)in, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(a));
}

GPU_TEST(host_memory)
{
    static char own[8192];
    CUdeviceptr device, managed, a = allocated(8192);
    CUcontext context;
    void *void_host;

    CUDA(cuMemHostAlloc(&void_host, 5000, CU_MEMHOSTALLOC_DEVICEMAP));
    char *host = void_host;
    memset(host, 5, 5000);
    CUDA(cuMemHostGetDevicePointer(&device, host + 10, 0));
    CUDA(cuMemcpyDtoD(a, device, 4990));
    CHECK_EQUAL(cuMemcpyDtoD(a, device, 4991), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemHostRegister(host, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFreeHost(host + 1), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFreeHost(host));
    CHECK_EQUAL(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);

    CUDA(cuMemHostRegister(own, sizeof own, 0));
    CHECK_EQUAL(cuMemHostRegister(own + 4096, 1, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_EQUAL(cuMemHostUnregister(own + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemHostUnregister(NULL), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuCtxPopCurrent(&context));
    CUDA(cuMemHostUnregister(own)); /* This call needs no context. */
    CHECK_EQUAL(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CUDA(cuCtxPushCurrent(context));
    CUDA(cuMemHostAlloc(&void_host, 0, 0));
    CHECK(void_host == NULL);
    CUDA(cuMemFreeHost(NULL));

    /* CUDA refuses to register memory that the program may not write or, with READ_ONLY, not read. */
    host = mmap(NULL, sizeof own, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(host != MAP_FAILED);
    CHECK_EQUAL(cuMemHostRegister(host, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemHostRegister(host, 1, CU_MEMHOSTREGISTER_IOMEMORY), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemHostRegister(host, 1, CU_MEMHOSTREGISTER_READ_ONLY));
    CUDA(cuMemHostUnregister(host));
    CHECK_EQUAL(munmap(host + 4096, 4096), 0);
    CHECK_EQUAL(cuMemHostRegister(host, 4097, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_ERROR_INVALID_VALUE);

    CUDA(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQUAL(fault_at((void *)(uintptr_t)managed), 0);
    CUDA(cuMemsetD8(managed, 9, 4096));
    CHECK_EQUAL(*(char *)(uintptr_t)managed, 9);
    CUDA(cuMemFree(managed));
    CHECK_EQUAL(cuMemAllocManaged(&managed, 4096, 3), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(a));
}

/* Tests stream-ordered allocation. The argument, if there is one, says that gdremu's options give the GPUs no memory
   pools. */
GPU_TEST(pools)
{
    int present = arguments[0] == NULL;
    CUdeviceptr a, b;

    CHECK_EQUAL(device_attribute(0, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), present);
    if (!present) {
        CHECK_EQUAL(cuMemAllocAsync(&a, 100, NULL), CUDA_ERROR_NOT_SUPPORTED);
        return;
    }
    allocated(1000); /* Pool memory must not come from the block of GPU memory that this buffer is in. */
    CUDA(cuMemAllocAsync(&a, 1000, NULL));
    CUDA(cuMemsetD8Async(a, 1, 1000, NULL));
    CHECK(pointer_attribute(a, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) != 0);
    CHECK_EQUAL(pointer_attribute(a, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE), 0);
    CUDA(cuMemAllocAsync(&b, 500, NULL));
    CUDA(cuMemFreeAsync(b, NULL));
    CHECK_EQUAL(cuMemFreeAsync(b, NULL), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemAllocAsync(&b, 0, NULL));
    CHECK_EQUAL(b, 0);
    CUDA(cuMemFreeAsync(0, NULL));
    CUDA(cuMemFree(a));
}
