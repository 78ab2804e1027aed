// Copies in several streams, in order behind events and host functions; host memory that the GPU shares.
#include <cstring>

#include "check.cuh"

enum { STREAMS = 4, SIZE = 1 << 20, ROUNDS = 8 };

static int calls;

static void CUDART_CB count(void *last)
{
    *static_cast<int *>(last) = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

static void copies_in_streams()
{
    cudaStream_t streams[STREAMS];
    cudaEvent_t start, end, passed[STREAMS];
    unsigned char *host[STREAMS], *gpu[STREAMS];
    float milliseconds = -1;
    int order[STREAMS];

    calls = 0;
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreate(&end));
    CUDA(cudaEventRecord(start));
    for (int i = 0; i < STREAMS; i++) {
        CUDA(cudaStreamCreateWithFlags(&streams[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
        CUDA(cudaEventCreateWithFlags(&passed[i], cudaEventDisableTiming));
        CUDA(cudaMallocHost(reinterpret_cast<void **>(&host[i]), 2 * SIZE));
        CUDA(cudaMallocAsync(reinterpret_cast<void **>(&gpu[i]), SIZE, streams[i]));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < STREAMS; i++) {
            memset(host[i], round * STREAMS + i, SIZE);
            CUDA(cudaMemsetAsync(gpu[i], 0xff, SIZE, streams[i]));
            CUDA(cudaMemcpyAsync(gpu[i], host[i], SIZE, cudaMemcpyHostToDevice, streams[i]));
            // Each stream passes what it got to the one behind it.
            if (i > 0) {
                CUDA(cudaStreamWaitEvent(streams[i], passed[i - 1], 0));
                CUDA(cudaMemcpyAsync(gpu[i], gpu[i - 1], SIZE / 2, cudaMemcpyDeviceToDevice, streams[i]));
            }
            CUDA(cudaEventRecord(passed[i], streams[i]));
            CUDA(cudaMemcpyAsync(host[i] + SIZE, gpu[i], SIZE, cudaMemcpyDeviceToHost, streams[i]));
            CUDA(cudaLaunchHostFunc(streams[i], count, &order[i]));
        }
        CUDA(cudaDeviceSynchronize());
        for (int i = 0; i < STREAMS; i++) {
            CUDA(cudaStreamQuery(streams[i]));
            CHECK(host[i][SIZE] == round * STREAMS && host[i][2 * SIZE - 1] == round * STREAMS + i);
            CHECK(order[i] > round * STREAMS && order[i] <= (round + 1) * STREAMS);
        }
    }
    CUDA(cudaEventRecord(end));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&milliseconds, start, end));
    CHECK(milliseconds >= 0);
    for (int i = 0; i < STREAMS; i++) {
        CUDA(cudaFreeAsync(gpu[i], streams[i]));
        CUDA(cudaStreamSynchronize(streams[i]));
        CUDA(cudaStreamDestroy(streams[i]));
        CUDA(cudaFreeHost(host[i]));
    }
}

static void zero_copy()
{
    static unsigned char own[SIZE];
    unsigned char *host, *device, *gpu;
    cudaPointerAttributes attributes;

    CUDA(cudaHostAlloc(reinterpret_cast<void **>(&host), SIZE, cudaHostAllocMapped));
    CUDA(cudaHostGetDevicePointer(reinterpret_cast<void **>(&device), host, 0));
    CUDA(cudaMalloc(reinterpret_cast<void **>(&gpu), SIZE));
    memset(host, 5, SIZE);
    CUDA(cudaMemcpy(gpu, device, SIZE, cudaMemcpyDefault));
    CUDA(cudaMemset(device, 6, SIZE));
    CUDA(cudaDeviceSynchronize());
    CHECK(host[0] == 6 && host[SIZE - 1] == 6);
    CUDA(cudaHostRegister(own, SIZE, cudaHostRegisterMapped));
    CUDA(cudaPointerGetAttributes(&attributes, own));
    CHECK(attributes.type == cudaMemoryTypeHost);
    CUDA(cudaMemcpy(own, gpu, SIZE, cudaMemcpyDeviceToHost));
    CHECK(own[0] == 5 && own[SIZE - 1] == 5);
    CUDA(cudaHostUnregister(own));
    CUDA(cudaPointerGetAttributes(&attributes, gpu));
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    CUDA(cudaFree(gpu));
    CUDA(cudaFreeHost(host));
}

int main()
{
    CUDA(cudaSetDeviceFlags(cudaDeviceScheduleYield));
    copies_in_streams();
    zero_copy();
    CUDA(cudaDeviceReset());
    copies_in_streams();
    puts("ok");
    return 0;
}
