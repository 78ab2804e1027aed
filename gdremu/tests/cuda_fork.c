/* CUDA does not work in a child of a process that has called cuInit, and works in one of a process that has not. */
#include "cuda_values.h"

static CUdeviceptr address;

static void fresh(void)
{
    gpu_start(0);
    CUDA(cuMemAlloc(&address, 100));
}

static void inherited(void)
{
    CUcontext context;
    int number;
    char byte;

    CUDA(cuDriverGetVersion(&number));
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuMemcpyDtoH(&byte, address, 1), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuMemFree(address), CUDA_ERROR_NOT_INITIALIZED);
}

int main(void)
{
    int number;

    CUDA(cuDriverGetVersion(&number));
    in_child(fresh);
    gpu_start(0);
    CUDA(cuMemAlloc(&address, 100));
    in_child(inherited);
    CUDA(cuMemsetD8(address, 1, 100));
    CUDA(cuMemFree(address));
    return passed("cuda_fork");
}
