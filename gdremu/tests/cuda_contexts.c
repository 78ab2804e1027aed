/* Tests of contexts: the current one of each thread, the objects that end with a context, and primary contexts. */

#include "cuda_values.h"
#include "tests.h"

static CUcontext current(void)
{
    CUcontext context;

    CUDA(cuCtxGetCurrent(&context));
    return context;
}

/* Declared here because cuda_driver.h declares only the functions that the C library's tests need. */
CUresult cuCtxGetExecAffinity(unsigned int *parameter, int type);

/* Tests cuCtxGetExecAffinity, because DPDK looks it up, and uses no GPU if it is missing. */
TEST(execution_affinity)
{
    unsigned int parameter[3] = {7, 7, 7};
    CUcontext context;

    CUDA(cuInit(0));
    CHECK_EQUAL(cuCtxGetExecAffinity(parameter, 0), CUDA_ERROR_INVALID_CONTEXT);
    CUDA(cuCtxCreate(&context, 0, 0));
    CHECK_EQUAL(cuCtxGetExecAffinity(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuCtxGetExecAffinity(parameter, 1), 224 /* CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY */);
    CUDA(cuCtxGetExecAffinity(parameter, 0));
    CHECK_EQUAL(parameter[0], 0);
    CHECK_EQUAL(parameter[1], 132);
    CHECK_EQUAL(parameter[2], 7);
    CUDA(cuCtxDestroy(context));
}

CUresult cuCtxGetFlags(unsigned int *flags);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags);

TEST(flags_of_primary_contexts)
{
    enum { YIELD = 2, BLOCKING_SYNC = 4 };
    unsigned int flags;
    CUcontext context;

    CUDA(cuInit(0));
    CHECK_EQUAL(cuDevicePrimaryCtxSetFlags_v2(0, YIELD | BLOCKING_SYNC), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuDevicePrimaryCtxSetFlags_v2(0, YIELD));
    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuCtxSetCurrent(context));
    CUDA(cuCtxGetFlags(&flags));
    CHECK_EQUAL(flags, YIELD);
    CUDA(cuDevicePrimaryCtxSetFlags_v2(0, BLOCKING_SYNC));
    CUDA(cuCtxGetFlags(&flags));
    CHECK_EQUAL(flags, BLOCKING_SYNC);
    CUDA(cuDevicePrimaryCtxRelease(0));
}

TEST(stack)
{
    CUcontext first, second, popped;
    CUdevice device = -1;
    unsigned int version = 0;

    CUDA(cuInit(0));
    CHECK(current() == NULL);
    CHECK_EQUAL(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
    CUDA(cuCtxCreate(&first, 0, 0));
    CHECK(current() == first);
    CUDA(cuCtxCreate(&second, 0, 0));
    CHECK(current() == second && second != first);
    CUDA(cuCtxGetDevice(&device));
    CHECK_EQUAL(device, 0);
    CUDA(cuCtxGetApiVersion(NULL, &version));
    CUDA(cuCtxSynchronize());

    CUDA(cuCtxPopCurrent(&popped));
    CHECK(popped == second && current() == first);
    CUDA(cuCtxSetCurrent(second));
    CHECK(current() == second);
    CUDA(cuCtxSetCurrent(NULL));
    CHECK(current() == NULL);
    CUDA(cuCtxPushCurrent(first));
    CUDA(cuCtxDestroy(first));
    CHECK(current() == NULL);
    CHECK_EQUAL(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT);
    CUDA(cuCtxDestroy(second));
    CHECK_EQUAL(cuCtxCreate(&first, 0, 7), CUDA_ERROR_INVALID_DEVICE);
}

static CUdeviceptr others[2];
static void *others_host;

static void *use_without_context(void *context)
{
    CUdeviceptr address;

    CHECK(current() == NULL);
    CHECK_EQUAL(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
    /* A thread without a context can free another thread's GPU memory, managed memory and host memory. */
    CUDA(cuMemFree(others[0]));
    CHECK_EQUAL(cuMemFree(others[0]), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(others[1]));
    CUDA(cuMemFreeHost(others_host));
    CUDA(cuCtxSetCurrent((CUcontext)context));
    CUDA(cuMemAlloc(&address, 1));
    return NULL;
}

TEST(threads)
{
    CUcontext context;

    CUDA(cuInit(0));
    CUDA(cuCtxCreate(&context, 0, 0));
    CUDA(cuMemAlloc(&others[0], 1));
    CUDA(cuMemAllocManaged(&others[1], 1, CU_MEM_ATTACH_GLOBAL));
    CUDA(cuMemHostAlloc(&others_host, 1, 0));
    in_thread(use_without_context, context);
    CHECK(current() == context);
    CUDA(cuCtxDestroy(context));
}

TEST(end_of_a_context)
{
    CUcontext context, other;
    CUdeviceptr address, kept;
    CUstream stream;
    CUevent event;
    void *host;

    CUDA(cuInit(0));
    CUDA(cuCtxCreate(&other, 0, 0));
    CUDA(cuMemAlloc(&kept, 100));
    CUDA(cuCtxCreate(&context, 0, 0));
    CUDA(cuMemAlloc(&address, 100));
    CUDA(cuMemHostAlloc(&host, 100, 0));
    CUDA(cuEventCreate(&event, 0));
    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuCtxDestroy(context));
    CHECK(current() == other);
    CHECK_EQUAL(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuCtxSetCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
    CUDA(cuMemFree(kept));
    CUDA(cuCtxDestroy(other));
}

TEST(primary)
{
    CUcontext first, second;
    CUdeviceptr address;
    unsigned int flags = 0;
    int active = -1;

    CUDA(cuInit(0));
    CHECK_EQUAL(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQUAL(active, 0);
    CUDA(cuDevicePrimaryCtxRetain(&first, 0));
    CUDA(cuDevicePrimaryCtxRetain(&second, 0));
    CHECK(first == second && current() == NULL);
    CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQUAL(active, 1);
    CHECK_EQUAL(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT);

    CUDA(cuCtxSetCurrent(first));
    CUDA(cuMemAlloc(&address, 100));
    CUDA(cuDevicePrimaryCtxRelease(0));
    CUDA(cuMemsetD8(address, 1, 100));
    CUDA(cuDevicePrimaryCtxRelease(0));
    CHECK_EQUAL(cuMemsetD8(address, 1, 100), CUDA_ERROR_CONTEXT_IS_DESTROYED);

    CUDA(cuDevicePrimaryCtxRetain(&first, 0));
    CUDA(cuCtxSetCurrent(first));
    CHECK_EQUAL(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuDevicePrimaryCtxReset(0));
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);

    /* As on an H200, the reset did not undo the retain above. After this one, the primary context is retained twice. */
    CUDA(cuDevicePrimaryCtxRetain(&first, 0));
    CUDA(cuDevicePrimaryCtxRelease(0));
    CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQUAL(active, 1);
    CUDA(cuDevicePrimaryCtxRelease(0));
    CUDA(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQUAL(active, 0);
    CHECK_EQUAL(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}
