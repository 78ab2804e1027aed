/* Calls that are injected faults, that gdremu does not have, of forked children, and of many threads. */
#include "cuda_values.h"
#include "tests.h"

/* Under --fault cuMemAlloc:2@2,cuDriverGetVersion:999, the second cuMemAlloc fails, cuDriverGetVersion always does. */
GPU_TEST(faults)
{
    int version;

    CUdeviceptr address = allocated(1);
    CHECK_EQUAL(cuMemAlloc(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CUDA(cuMemAlloc(&address, 1));
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

/* CUDA does not work in a child of a process that has called cuInit, and works in one of a process that has not. */
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

enum { THREADS = 8, ROUNDS = 64, LIVE = 4 };

static CUcontext context;

static void *work(void *argument)
{
    static const size_t sizes[LIVE] = {1, 5000, 65536, 3 << 20};
    unsigned char value = *(unsigned char *)argument;
    CUdeviceptr buffers[LIVE];

    CUDA(cuCtxSetCurrent(context));
    unsigned char *in = malloc(sizes[LIVE - 1]);
    CHECK(in != NULL);
    for (int round = 0; round < ROUNDS / (int)slowness(); round++) {
        for (int i = 0; i < LIVE; i++) {
            buffers[i] = allocated(sizes[i]);
            CUDA(cuMemsetD8(buffers[i], value, sizes[i]));
        }
        for (int i = 0; i < LIVE; i++) {
            if (i < LIVE - 1 || round % 16 == 0) {
                CUDA(cuMemcpyDtoH(in, buffers[i], sizes[i]));
                CHECK(in[0] == value && memcmp(in, in + 1, sizes[i] - 1) == 0);
            }
            CUDA(cuMemFree(buffers[i]));
        }
    }
    free(in);
    return NULL;
}

/* They allocate, fill, read back and free at once, and none sees another's memory. */
TEST(many_threads)
{
    unsigned char values[THREADS];
    pthread_t threads[THREADS];

    context = gpu_start(0);
    size_t before = free_bytes();
    for (int i = 0; i < THREADS; i++) {
        values[i] = (unsigned char)(i + 1);
        threads[i] = start_thread(work, &values[i]);
    }
    for (int i = 0; i < THREADS; i++)
        finish_thread(threads[i]);
    CHECK_EQUAL(free_bytes(), before);
}
