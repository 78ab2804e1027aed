/* Tests of calls with injected faults, of functions that gdremu does not have, and of calls in forked children. */
#include "cuda_values.h"
#include "tests.h"

/* With gdremu's options for this test, the second cuMemAlloc fails, cuMemFree fails from the second call on, and
   cuDriverGetVersion always fails. */
GPU_TEST(faults)
{
    int version;

    CUdeviceptr address = allocated(1);
    CHECK_EQUAL(cuMemAlloc(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CUDA(cuMemAlloc(&address, 1));
    CUDA(cuMemFree(0));
    CHECK_EQUAL(cuMemFree(0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree(0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuDriverGetVersion(&version), CUDA_ERROR_UNKNOWN);
    CHECK_EQUAL(cuDriverGetVersion(&version), CUDA_ERROR_UNKNOWN);
}

int cuMulticastCreate(void *handle, const void *properties);
int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind);
int cudaGetLastError(void);

TEST(missing_functions)
{
    char bytes[4] = "abc";

    for (int time = 0; time < 2; time++) {
        CHECK_EQUAL(cuMulticastCreate(NULL, NULL), 801);
        CHECK_EQUAL(cudaMemcpy2D(bytes, 1, bytes + 1, 1, 1, 1, 4), 801);
        CHECK_EQUAL(cudaGetLastError(), 801);
        CHECK_EQUAL(cudaGetLastError(), 0);
    }
    CHECK_EQUAL(bytes[0], 'a');
}

static CUdeviceptr address;

static void fresh(void)
{
    gpu_start(0);
    address = allocated(100);
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

/* CUDA fails in a child that is forked after cuInit, and works in a child that is forked before cuInit. */
TEST(forked_children)
{
    int number;

    CUDA(cuDriverGetVersion(&number));
    in_child(fresh);
    fresh();
    in_child(inherited);
    CUDA(cuMemsetD8(address, 1, 100));
    CUDA(cuMemFree(address));
}
