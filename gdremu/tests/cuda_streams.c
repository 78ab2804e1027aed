/* Streams, events and host functions, without kernels. */
#include <stdatomic.h>

#include "cuda_values.h"

static void count(void *number)
{
    ++*(int *)number;
}

static void streams(void)
{
    int calls = 0, default_calls = 0;
    CUstream stream;

    CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA(cuLaunchHostFunc(stream, count, &calls));
    CUDA(cuLaunchHostFunc(NULL, count, &default_calls));
    CHECK_EQUAL(cuLaunchHostFunc(stream, NULL, &calls), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuStreamSynchronize(stream));
    CUDA(cuStreamSynchronize(NULL));
    CHECK(calls == 1 && default_calls == 1);
    CUDA(cuStreamQuery(stream));
    CUDA(cuStreamDestroy(stream));
    CHECK_EQUAL(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    CHECK_EQUAL(cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
}

static atomic_int released;

/* A host function, which may wait for its caller and may not call CUDA. */
static void wait_until_released(void *result)
{
    while (!released)
        usleep(1000);
    *(CUresult *)result = cuCtxSynchronize();
}

static void *release(void *unused)
{
    usleep(50000); /* for a call that does not wait */
    released = 1;
    return unused;
}

/* A fill behind the work of another stream. It waits for itself only with SYNC_MEMOPS. */
static void check_memset(CUdeviceptr buffer, int waits)
{
    CUresult result = CUDA_SUCCESS;
    pthread_t thread;
    CUstream stream;

    released = 0;
    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuLaunchHostFunc(stream, wait_until_released, &result));
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    if (waits)
        thread = start_thread(release, NULL);
    CUDA(cuMemsetD8(buffer, 1, 1));
    CHECK_EQUAL(released, waits);
    released = 1;
    CUDA(cuStreamDestroy(stream));
    CUDA(cuCtxSynchronize());
    CHECK_EQUAL(result, CUDA_ERROR_NOT_PERMITTED);
    if (waits)
        finish_thread(thread);
}

CUresult cuCtxSetFlags(unsigned int flags);

static void memory_operations_wait_as_set(void)
{
    CUdeviceptr buffer = allocated(1), other = allocated(1);
    unsigned int on = 1;

    check_memset(buffer, 0);
    CUDA(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer));
    check_memset(buffer, 1);
    check_memset(other, 0);
    CHECK_EQUAL(cuCtxSetFlags(0x1000), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuCtxSetFlags(0x80 /* SYNC_MEMOPS */));
    check_memset(other, 1);
    CUDA(cuCtxSetFlags(0));
}

static void events(void)
{
    CUevent start, end, untimed, foreign;
    CUcontext first, second;
    CUstream stream;
    float time = -1;

    CHECK_EQUAL(cuEventCreate(&end, 4 /* INTERPROCESS, with timing */), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuEventCreate(&start, 0));
    CUDA(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
    CUDA(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    CHECK_EQUAL(cuEventElapsedTime(&time, start, end), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuEventRecord(start, NULL));
    CUDA(cuEventRecord(untimed, NULL));
    CUDA(cuEventRecord(end, NULL));
    CUDA(cuEventQuery(end));
    CUDA(cuEventElapsedTime(&time, start, end));
    CHECK(time >= 0);
    CHECK_EQUAL(cuEventElapsedTime(&time, untimed, end), CUDA_ERROR_INVALID_HANDLE);

    /* Those of another context. */
    CUDA(cuCtxGetCurrent(&first));
    CHECK_EQUAL(cuCtxCreate(&second, 3, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuCtxCreate(&second, 0, 0));
    CUDA(cuStreamCreate(&stream, 0));
    CHECK_EQUAL(cuEventRecord(start, stream), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuEventCreate(&foreign, 0));
    CUDA(cuEventRecord(foreign, stream));
    CUDA(cuStreamSynchronize(stream));
    CHECK_EQUAL(cuEventElapsedTime(&time, start, foreign), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuCtxDestroy(second));
    CUDA(cuCtxSetCurrent(first));
    CUDA(cuEventDestroy(start));
    CHECK_EQUAL(cuEventDestroy(start), CUDA_ERROR_INVALID_HANDLE);
}

/* The modes of a capture and of the thread decide which calls endanger it. */
static void captures(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream stream, other;
    CUgraph graph;
    void *memory;

    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CHECK_EQUAL(cuStreamBeginCapture(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQUAL(cuStreamBeginCapture(stream, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);

    CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK_EQUAL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    CUDA(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUDA(cuMemHostAlloc(&memory, 1, 0));
    CUDA(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUDA(cuStreamEndCapture(stream, &graph));

    CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_EQUAL(cuMemFreeHost(memory), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == NULL);
    CUDA(cuMemFreeHost(memory));

    CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUDA(cuStreamQuery(other));
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUDA(cuStreamDestroy(stream));
    CUDA(cuCtxSynchronize());
    CUDA(cuStreamDestroy(other));
}

/* Work in the default stream would wait for a blocking stream. Work of the stream itself is not captured. */
static void captures_end_by_work(void)
{
    enum { IMPLICIT = 906, UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED };
    CUdeviceptr buffer = allocated(1), other;
    CUcontext context;
    CUstream stream;
    CUevent event;
    CUgraph graph;
    void *memory;

    CUDA(cuEventCreate(&event, 0));
    CUDA(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 4; i++) {
        CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK_EQUAL(i == 0   ? cuMemsetD8(buffer, 1, 1) - IMPLICIT
                    : i == 1 ? cuEventRecord(event, stream) - UNSUPPORTED
                    : i == 2 ? cuMemAllocAsync(&other, 1, stream) - UNSUPPORTED
                             : cuCtxSynchronize() - UNSUPPORTED,
                    0);
        CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    CUDA(cuStreamDestroy(stream));
    CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUDA(cuMemsetD8(buffer, 1, 1));
    CUDA(cuStreamEndCapture(stream, &graph));
    CUDA(cuStreamDestroy(stream));

    CUDA(cuCtxCreate(&context, 0, 0));
    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUDA(cuCtxDestroy(context));
    CUDA(cuMemHostAlloc(&memory, 1, 0));
    CUDA(cuMemFreeHost(memory));
}

int main(void)
{
    gpu_start(0);

    streams();
    memory_operations_wait_as_set();
    events();
    captures();
    captures_end_by_work();
    CUDA(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                           CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
    return passed("cuda_streams");
}
