/* CUDA does not work in a child of a process that has called cuInit, and works in one of a process that has not. */
#include "cuda_start.h"

static CUdeviceptr address;

static void fresh(void)
{
    start(0);
    CHECK_CUDA(cuMemAlloc(&address, 100));
}

static void inherited(void)
{
    CUcontext context;
    int number;
    char byte;

    CHECK_CUDA(cuDriverGetVersion(&number));
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuMemcpyDtoH(&byte, address, 1), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuMemFree(address), CUDA_ERROR_NOT_INITIALIZED);
}

int main(void)
{
    int number;

    CHECK_CUDA(cuDriverGetVersion(&number));
    in_child(fresh);
    start(0);
    CHECK_CUDA(cuMemAlloc(&address, 100));
    in_child(inherited);
    CHECK_CUDA(cuMemsetD8(address, 1, 100));
    CHECK_CUDA(cuMemFree(address));
    return passed("cuda_fork");
}
