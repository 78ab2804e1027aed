/* cuMemAlloc, copies, fills, host memory: what they do, and where they stop. */
#include <setjmp.h>
#include <signal.h>

#include "cuda_start.h"

static sigjmp_buf touched;
static volatile char byte_read; /* Valgrind drops reads whose result goes nowhere. */

static void on_fault(int signal)
{
    siglongjmp(touched, signal);
}

/* The signal that a read by the CPU raises, or 0. */
static int touch(CUdeviceptr address)
{
    int signal = sigsetjmp(touched, 1);

    if (signal == 0)
        byte_read = *(volatile char *)(uintptr_t)address;
    return signal;
}

static void addresses(void)
{
    CUdeviceptr buffers[40], large, base;
    size_t size, before, after, total, unaligned = 0, i;

    CHECK_EQUAL(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
    for (i = 0; i < 40; i++) {
        CHECK_EQUAL(cuMemAlloc(&buffers[i], 100 + 5000 * i), CUDA_SUCCESS);
        CHECK_EQUAL(buffers[i] % 512, 0);
        unaligned += buffers[i] % 65536 != 0;
        CHECK_EQUAL(touch(buffers[i]), SIGSEGV);
    }
    CHECK(unaligned > 20);
    CHECK_EQUAL(cuMemAlloc(&large, 3 << 20), CUDA_SUCCESS);
    CHECK_EQUAL(large % (2 << 20), 0);
    CHECK_EQUAL(cuMemGetAddressRange(&base, &size, large + 12345), CUDA_SUCCESS);
    CHECK(base == large && size == 3 << 20);
    CHECK_EQUAL(cuMemGetAddressRange(&base, NULL, buffers[3] + 15099), CUDA_SUCCESS);
    CHECK_EQUAL(base, buffers[3]);
    CHECK_EQUAL(cuMemGetAddressRange(&base, &size, 4096), CUDA_ERROR_NOT_FOUND);

    CHECK_EQUAL(cuMemFree(large + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree((uintptr_t)&size), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree(large), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(large), CUDA_ERROR_INVALID_VALUE);
    for (i = 0; i < 40; i++)
        CHECK_EQUAL(cuMemFree(buffers[i]), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
    CHECK_EQUAL(after, before);
    CHECK_EQUAL(cuMemAlloc(&large, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemAlloc(&large, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc(&large, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc(NULL, 1), CUDA_ERROR_INVALID_VALUE);
}

static void copies(void)
{
    enum { SIZE = 100000 };
    static unsigned char out[SIZE], in[SIZE];
    CUdeviceptr a, b;
    size_t i;

    for (i = 0; i < SIZE; i++)
        out[i] = (unsigned char)(i * 7 + i / 256);
    CHECK_EQUAL(cuMemAlloc(&a, SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&b, SIZE + 3), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyHtoD(a, out, SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoD(b + 3, a, SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(in, b + 3, SIZE), CUDA_SUCCESS);
    CHECK_BYTES(in, out, SIZE);
    memset(in, 0, SIZE);
    CHECK_EQUAL(cuMemcpyDtoHAsync(in, a, SIZE, NULL), CUDA_SUCCESS);
    CHECK_BYTES(in, out, SIZE);
    CHECK_EQUAL(cuMemcpy((uintptr_t)in, b + 4, 1000), CUDA_SUCCESS);
    CHECK_BYTES(in, out + 1, 1000);
    CHECK_EQUAL(cuMemcpyDtoD(b, b + 3, SIZE), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(in, b, SIZE), CUDA_SUCCESS);
    CHECK_BYTES(in, out, SIZE);

    CHECK_EQUAL(cuMemcpyHtoD(a + 1, out, SIZE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyDtoH(in, a + SIZE, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyDtoH(in, a - 1, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyHtoD((uintptr_t)in, out, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyDtoH(in, (uintptr_t)out, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyDtoH(in, a + SIZE, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoHAsync(in, a, 1, (CUstream)(uintptr_t)0x1234), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuMemFree(a), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(b), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(in, a, 1), CUDA_ERROR_INVALID_VALUE);
}

static void fills(void)
{
    unsigned char in[16];
    CUdeviceptr a;

    CHECK_EQUAL(cuMemAlloc(&a, 16), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemsetD8(a, 0x11, 16), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemsetD16(a + 2, 0x2233, 2), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemsetD32Async(a + 8, 0x44556677, 1, CU_STREAM_LEGACY), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(in, a, 16), CUDA_SUCCESS);
    CHECK_BYTES(in, "\x11\x11\x33\x22\x33\x22\x11\x11\x77\x66\x55\x44\x11\x11\x11\x11", 16);
    CHECK_EQUAL(cuMemsetD16(a + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD32(a + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD32(a, 0, 5), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD32(a, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD8((uintptr_t)in, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree(a), CUDA_SUCCESS);
}

static void host_memory(void)
{
    static char own[8192];
    CUdeviceptr device, managed, a;
    unsigned int flags;
    CUcontext context;
    char *host;
    void *void_host;

    CHECK_EQUAL(cuMemAlloc(&a, 8192), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemHostAlloc(&void_host, 5000, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    host = void_host;
    memset(host, 5, 5000);
    CHECK_EQUAL(cuMemHostGetDevicePointer(&device, host + 10, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoD(a, device, 4990), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoD(a, device, 4991), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemHostGetFlags(&flags, host), CUDA_SUCCESS);
    CHECK_EQUAL(flags, CU_MEMHOSTALLOC_DEVICEMAP);
    CHECK_EQUAL(cuMemFreeHost(host + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFreeHost(host), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);

    CHECK_EQUAL(cuMemHostRegister(own, sizeof own, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemHostRegister(own + 4096, 1, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK_EQUAL(cuMemHostUnregister(own + 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemHostUnregister(NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuCtxPopCurrent(&context), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemHostUnregister(own), CUDA_SUCCESS); /* Needs no context. */
    CHECK_EQUAL(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CHECK_EQUAL(cuCtxPushCurrent(context), CUDA_SUCCESS);

    CHECK_EQUAL(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    CHECK_EQUAL(touch(managed), 0);
    CHECK_EQUAL(cuMemsetD8(managed, 9, 4096), CUDA_SUCCESS);
    CHECK_EQUAL(*(char *)(uintptr_t)managed, 9);
    CHECK_EQUAL(cuMemFree(managed), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAllocManaged(&managed, 4096, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree(a), CUDA_SUCCESS);
}

int main(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_fault;
    CHECK_EQUAL(sigaction(SIGSEGV, &action, NULL), 0);
    start(0);
    addresses();
    copies();
    fills();
    host_memory();
    puts("ok cuda_buffers");
    return 0;
}
