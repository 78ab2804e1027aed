/* Streams, events and host functions, without kernels. */
#include <stdatomic.h>

#include "cuda_start.h"

static void count(void *number)
{
    ++*(int *)number;
}

static void streams(void)
{
    int calls = 0, default_calls = 0;
    CUstream stream;

    CHECK_EQUAL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchHostFunc(stream, count, &calls), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchHostFunc(NULL, count, &default_calls), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchHostFunc(stream, NULL, &calls), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_EQUAL(calls, 1);
    CHECK_EQUAL(cuStreamSynchronize(NULL), CUDA_SUCCESS);
    CHECK_EQUAL(default_calls, 1);
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamDestroy(stream), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
}

static atomic_int released;

static void wait_until_released(void *unused)
{
    (void)unused;
    while (!released)
        usleep(1000);
}

static void host_functions_may_wait_for_their_caller(void)
{
    CUstream stream;

    CHECK_EQUAL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(cuLaunchHostFunc(stream, wait_until_released, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    released = 1;
    CHECK_EQUAL(cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamDestroy(stream), CUDA_SUCCESS);
}

static void events(void)
{
    CUevent start_event, end_event, untimed;
    float milliseconds = -1;

    CHECK_EQUAL(cuEventCreate(&start_event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventCreate(&end_event, CU_EVENT_BLOCKING_SYNC), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventElapsedTime(&milliseconds, start_event, end_event), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuEventRecord(start_event, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventRecord(untimed, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventRecord(end_event, NULL), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamWaitEvent(NULL, end_event, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventSynchronize(end_event), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventQuery(end_event), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventElapsedTime(&milliseconds, start_event, end_event), CUDA_SUCCESS);
    CHECK(milliseconds >= 0);
    CHECK_EQUAL(cuEventElapsedTime(&milliseconds, untimed, end_event), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQUAL(cuEventDestroy(start_event), CUDA_SUCCESS);
    CHECK_EQUAL(cuEventDestroy(start_event), CUDA_ERROR_INVALID_HANDLE);
}

static CUstreamCaptureStatus capture_status(CUstream stream)
{
    CUstreamCaptureStatus status;

    CHECK_EQUAL(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    return status;
}

static void captures(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream stream, other;
    CUgraph graph;
    void *memory;

    CHECK_EQUAL(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamBeginCapture(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQUAL(cuStreamBeginCapture(stream, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQUAL(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);

    CHECK_EQUAL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK_EQUAL(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_EQUAL(cuStreamQuery(other), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemHostAlloc(&memory, 1, 0), CUDA_SUCCESS);
    CHECK_EQUAL(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_EQUAL(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    CHECK_EQUAL(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    CHECK_EQUAL(cuGraphDestroy(graph), CUDA_SUCCESS);
    CHECK_EQUAL(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);

    CHECK_EQUAL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFreeHost(memory), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQUAL(capture_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CHECK_EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == NULL);
    CHECK_EQUAL(cuMemFreeHost(memory), CUDA_SUCCESS);

    CHECK_EQUAL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamQuery(other), CUDA_SUCCESS);
    CHECK_EQUAL(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_EQUAL(cuStreamDestroy(stream), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
    mode = 3;
    CHECK_EQUAL(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuStreamDestroy(other), CUDA_SUCCESS);
}

int main(void)
{
    start(0);

    streams();
    host_functions_may_wait_for_their_caller();
    events();
    captures();
    CHECK_EQUAL(cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                           CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER),
                CUDA_SUCCESS);
    puts("ok cuda_streams");
    return 0;
}
