/* CUDA does not work in a child of a process that has called cuInit, and works in one of a process that has not. */
#include "cuda_start.h"

static CUdeviceptr address;

static void fresh(void)
{
    start(0);
    CHECK_EQUAL(cuMemAlloc(&address, 100), CUDA_SUCCESS);
}

static void inherited(void)
{
    CUcontext context;
    int number;
    char byte;

    CHECK_EQUAL(cuDriverGetVersion(&number), CUDA_SUCCESS);
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuMemcpyDtoH(&byte, address, 1), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuMemFree(address), CUDA_ERROR_NOT_INITIALIZED);
}

int main(void)
{
    int number;

    CHECK_EQUAL(cuDriverGetVersion(&number), CUDA_SUCCESS);
    in_child(fresh);
    start(0);
    CHECK_EQUAL(cuMemAlloc(&address, 100), CUDA_SUCCESS);
    in_child(inherited);
    CHECK_EQUAL(cuMemsetD8(address, 1, 100), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(address), CUDA_SUCCESS);
    puts("ok cuda_fork");
    return 0;
}
