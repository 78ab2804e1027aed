/* Contexts: which one is current where, what ends with them, primary contexts and how long they live. */
#include <pthread.h>

#include "check.h"
#include "cuda_driver.h"

static CUcontext current(void)
{
    CUcontext context;

    CHECK_EQUAL(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
}

/* cuda_driver.h has what the C library's tests need. */
CUresult cuCtxGetExecAffinity(unsigned int *parameter, int type);

static void execution_affinity(void)
{
    unsigned int parameter[3] = {7, 7, 7};
    CUcontext context;

    CHECK_EQUAL(cuCtxGetExecAffinity(parameter, 0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(cuCtxCreate(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxGetExecAffinity(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuCtxGetExecAffinity(parameter, 1), 224 /* CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY */);
    CHECK_EQUAL(cuCtxGetExecAffinity(parameter, 0), CUDA_SUCCESS);
    CHECK_EQUAL(parameter[0], 0);
    CHECK_EQUAL(parameter[1], 132);
    CHECK_EQUAL(parameter[2], 7);
    CHECK_EQUAL(cuCtxDestroy(context), CUDA_SUCCESS);
}

static void stack(void)
{
    CUcontext first, second, popped;
    CUdevice device = -1;
    unsigned int version = 0;

    CHECK(current() == NULL);
    CHECK_EQUAL(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(cuCtxCreate(&first, 0, 0), CUDA_SUCCESS);
    CHECK(current() == first);
    CHECK_EQUAL(cuCtxCreate(&second, 0, 0), CUDA_SUCCESS);
    CHECK(current() == second && second != first);
    CHECK_EQUAL(cuCtxGetDevice(&device), CUDA_SUCCESS);
    CHECK_EQUAL(device, 0);
    CHECK_EQUAL(cuCtxGetApiVersion(NULL, &version), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);

    CHECK_EQUAL(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    CHECK(popped == second && current() == first);
    CHECK_EQUAL(cuCtxSetCurrent(second), CUDA_SUCCESS);
    CHECK(current() == second);
    CHECK_EQUAL(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    CHECK(current() == NULL);
    CHECK_EQUAL(cuCtxPushCurrent(first), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxDestroy(first), CUDA_SUCCESS);
    CHECK(current() == NULL);
    CHECK_EQUAL(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(cuCtxDestroy(second), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxCreate(&first, 0, 7), CUDA_ERROR_INVALID_DEVICE);
}

static CUdeviceptr others[2];
static void *others_host;

static void *in_thread(void *context)
{
    CUdeviceptr address;

    CHECK(current() == NULL);
    CHECK_EQUAL(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
    /* What another thread made, and managed memory, can be freed without a context. */
    CHECK_EQUAL(cuMemFree(others[0]), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(others[0]), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree(others[1]), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFreeHost(others_host), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSetCurrent((CUcontext)context), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&address, 1), CUDA_SUCCESS);
    return NULL;
}

static void threads(void)
{
    CUcontext context;
    pthread_t thread;

    CHECK_EQUAL(cuCtxCreate(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&others[0], 1), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAllocManaged(&others[1], 1, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemHostAlloc(&others_host, 1, 0), CUDA_SUCCESS);
    CHECK_EQUAL(pthread_create(&thread, NULL, in_thread, context), 0);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK(current() == context);
    CHECK_EQUAL(cuCtxDestroy(context), CUDA_SUCCESS);
}

static void end_of_a_context(void)
{
    CUcontext context, other;
    CUdeviceptr address, kept;
    CUevent event;
    void *host;

    CHECK_EQUAL(cuCtxCreate(&other, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&kept, 100), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxCreate(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&address, 100), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemHostAlloc(&host, 100, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventCreate(&event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxDestroy(context), CUDA_SUCCESS);
    CHECK(current() == other);
    CHECK_EQUAL(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuMemFree(kept), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxDestroy(other), CUDA_SUCCESS);
}

static void primary(void)
{
    CUcontext first, second;
    CUdeviceptr address;
    unsigned int flags = 0;
    int active = -1;

    CHECK_EQUAL(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    CHECK_EQUAL(active, 0);
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&second, 0), CUDA_SUCCESS);
    CHECK(first == second && current() == NULL);
    CHECK_EQUAL(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    CHECK_EQUAL(active, 1);
    CHECK_EQUAL(flags, CU_CTX_SCHED_YIELD);
    CHECK_EQUAL(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT);

    CHECK_EQUAL(cuCtxSetCurrent(first), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&address, 100), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemsetD8(address, 1, 100), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemsetD8(address, 1, 100), CUDA_ERROR_CONTEXT_IS_DESTROYED);

    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSetCurrent(first), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);

    /* A reset leaves it as often retained as it was (H200). */
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&first, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    CHECK_EQUAL(active, 1);
    CHECK_EQUAL(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
    CHECK_EQUAL(active, 0);
    CHECK_EQUAL(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
}

int main(void)
{
    CHECK_EQUAL(cuInit(0), CUDA_SUCCESS);
    execution_affinity();
    stack();
    threads();
    end_of_a_context();
    primary();
    puts("ok cuda_contexts");
    return 0;
}
