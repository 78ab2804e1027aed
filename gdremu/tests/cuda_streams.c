/* Tests of streams, events and host functions, without GPU kernels. */
#include <stdatomic.h>

#include "cuda_values.h"
#include "tests.h"

static void count(void *number)
{
    ++*(int *)number;
}

GPU_TEST(streams)
{
    CUstream stream;
    int calls = 0;

    CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA(cuLaunchHostFunc(stream, count, &calls));
    CHECK_EQUAL(cuLaunchHostFunc(stream, NULL, &calls), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuStreamSynchronize(stream));
    CUDA(cuLaunchHostFunc(NULL, count, &calls));
    CUDA(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    CHECK_EQUAL(calls, 2);
    CUDA(cuStreamDestroy(stream));
    CHECK_EQUAL(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                    CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
}

static atomic_int released;

/* A host function, which CUDA calls in the order of a stream. It may wait for another thread. Its call of CUDA must
   fail. */
static void wait_until_released(void *result)
{
    while (!released)
        usleep(1000);
    *(CUresult *)result = cuCtxSynchronize();
}

static void *release(void *unused)
{
    usleep(50000); /* long enough that a call that does not wait for `released` returns */
    released = 1;
    return unused;
}

/* Fills memory in the default stream, which first waits for the work of another stream. With SYNC_MEMOPS,
   cuMemsetD8 returns only when all this is done, otherwise at once. */
static void check_memset(CUdeviceptr buffer, int waits)
{
    CUresult result = CUDA_SUCCESS;
    pthread_t thread;
    CUstream stream;

    released = 0;
    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuLaunchHostFunc(stream, wait_until_released, &result));
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

GPU_TEST(memory_operations_wait_as_set)
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

GPU_TEST(events)
{
    CUevent start, end, untimed, foreign;
    CUcontext first, second;
    CUstream stream;
    float time;

    CHECK_EQUAL(cuEventCreate(&end, 4 /* INTERPROCESS, with timing */), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuEventCreate(&start, 0));
    CUDA(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
    CUDA(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    CHECK_EQUAL(cuEventElapsedTime(&time, start, end), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuEventRecord(start, NULL));
    CUDA(cuEventRecord(untimed, NULL));
    CUDA(cuEventRecord(end, NULL));
    CUDA(cuEventElapsedTime(&time, start, end));
    CHECK(time >= 0);
    CHECK_EQUAL(cuEventElapsedTime(&time, untimed, end), CUDA_ERROR_INVALID_HANDLE);

    /* Streams and events of another context are refused. */
    CUDA(cuCtxGetCurrent(&first));
    CHECK_EQUAL(cuCtxCreate(&second, 3, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuCtxCreate(&second, 0, 0));
    CUDA(cuStreamCreate(&stream, 0));
    CHECK_EQUAL(cuEventRecord(start, stream), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuEventCreate(&foreign, 0));
    CUDA(cuEventRecord(foreign, stream));
    CHECK_EQUAL(cuEventElapsedTime(&time, start, foreign), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuCtxDestroy(second));
    CUDA(cuCtxSetCurrent(first));
    CUDA(cuEventDestroy(start));
    CHECK_EQUAL(cuEventDestroy(start), CUDA_ERROR_INVALID_HANDLE);
}

/* Begins a capture of a stream. Then `call` must fail with this error, and must make the capture invalid. */
#define CHECK_CAPTURE(stream, mode, call, error)                                                                       \
    do {                                                                                                               \
        CUDA(cuStreamBeginCapture(stream, mode));                                                                      \
        CHECK_EQUAL(call, error);                                                                                      \
        CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);                        \
        CHECK(graph == NULL);                                                                                          \
    } while (0)

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority);
CUresult cuStreamIsCapturing(CUstream stream, int *status);

static int capture_status(CUstream stream)
{
    int status = -1;

    CUDA(cuStreamIsCapturing(stream, &status));
    return status;
}

/* The modes of a capture and of the thread decide which calls make the capture invalid. Work in its stream always makes
   it invalid, because gdremu captures no work. Work in the default stream does too: it would wait for `stream`. */
GPU_TEST(captures)
{
    enum { IMPLICIT = 906, UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED };
    const CUstreamCaptureMode GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL, RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureMode mode = RELAXED;
    CUdeviceptr buffer = allocated(1), other;
    CUstream stream, independent;
    CUcontext context;
    CUevent event;
    CUgraph graph;
    void *memory;

    CUDA(cuEventCreate(&event, 0));
    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuStreamCreateWithPriority(&independent, CU_STREAM_NON_BLOCKING, -1));
    CHECK_EQUAL(cuStreamBeginCapture(NULL, GLOBAL), UNSUPPORTED);
    CHECK_EQUAL(cuStreamBeginCapture(stream, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);

    CUDA(cuStreamBeginCapture(stream, GLOBAL));
    CHECK_EQUAL(cuStreamBeginCapture(stream, GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK(capture_status(stream) == 1 && capture_status(independent) == 0);
    CUDA(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQUAL(mode, GLOBAL);
    CUDA(cuMemHostAlloc(&memory, 1, 0));
    CUDA(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_EQUAL(mode, RELAXED);
    CUDA(cuStreamEndCapture(stream, &graph));

    CHECK_CAPTURE(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuMemFreeHost(memory), UNSUPPORTED);
    CHECK_CAPTURE(stream, RELAXED, cuStreamQuery(stream), UNSUPPORTED);
    CHECK_CAPTURE(stream, RELAXED, cuMemsetD8(buffer, 1, 1), IMPLICIT);
    CHECK_CAPTURE(stream, RELAXED, cuEventRecord(event, stream), UNSUPPORTED);
    CHECK_CAPTURE(stream, RELAXED, cuMemAllocAsync(&other, 1, stream), UNSUPPORTED);
    CHECK_CAPTURE(stream, RELAXED, cuCtxSynchronize(), UNSUPPORTED);

    CUDA(cuStreamBeginCapture(independent, RELAXED));
    CUDA(cuMemsetD8(buffer, 1, 1));
    CUDA(cuStreamQuery(stream));
    CUDA(cuMemFreeHost(memory));
    CUDA(cuStreamEndCapture(independent, &graph));

    /* A capture ends with its stream, and a stream ends with its context. */
    CUDA(cuStreamBeginCapture(stream, GLOBAL));
    CUDA(cuStreamDestroy(stream));
    CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_INVALID_HANDLE);
    CUDA(cuCtxSynchronize());
    CUDA(cuCtxCreate(&context, 0, 0));
    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuStreamBeginCapture(stream, GLOBAL));
    CUDA(cuCtxDestroy(context));
    CUDA(cuMemHostAlloc(&memory, 1, 0));
}
