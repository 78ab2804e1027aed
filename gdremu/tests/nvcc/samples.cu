// GPU kernels of the kinds that CUDA's samples have. Several streams copy beside GPU kernels. A histogram has shared
// atomics. A sorting network sorts parts.
#include <algorithm>
#include <cstring>

#include "check.cuh"

enum { STREAMS = 4, PART = 512, VALUES = STREAMS * PART, THREADS = 128, BINS = 64 };

__global__ void scale(int *data, int factor, int rounds)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    for (int round = 0; round < rounds; round++)
        data[i] = data[i] * factor + round;
}

// Each stream copies its part to the GPU, changes it, and copies it back.
static void streams(const int *values)
{
    int *on_host = host_memory<int>(VALUES), *on_gpu = device_memory<int>(VALUES);
    cudaStream_t stream[STREAMS];
    cudaEvent_t start, end;
    float milliseconds;

    memcpy(on_host, values, VALUES * sizeof(int));
    CUDA(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
    CUDA(cudaEventRecord(start, 0));
    for (int i = 0; i < STREAMS; i++) {
        int *part = on_gpu + i * PART;

        CUDA(cudaStreamCreate(&stream[i]));
        CUDA(cudaMemcpyAsync(part, on_host + i * PART, PART * sizeof(int), cudaMemcpyHostToDevice, stream[i]));
        scale<<<PART / THREADS, THREADS, 0, stream[i]>>>(part, i + 2, 3);
        CUDA(cudaMemcpyAsync(on_host + i * PART, part, PART * sizeof(int), cudaMemcpyDeviceToHost, stream[i]));
    }
    CUDA(cudaEventRecord(end, 0));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&milliseconds, start, end));
    for (int i = 0; i < VALUES; i++) {
        int expected = values[i];

        for (int round = 0; round < 3; round++)
            expected = expected * (i / PART + 2) + round;
        CHECK(on_host[i] == expected);
    }
}

__global__ void count(const unsigned *data, unsigned *bins)
{
    extern __shared__ unsigned of_block[];

    if (threadIdx.x < BINS)
        of_block[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < VALUES; i += gridDim.x * blockDim.x)
        atomicAdd(&of_block[data[i] % BINS], 1u);
    __syncthreads();
    if (threadIdx.x < BINS)
        atomicAdd(&bins[threadIdx.x], of_block[threadIdx.x]);
}

// Sorts all values of a block by a bitonic network.
__global__ void network(int *values)
{
    __shared__ int shared[PART];

    for (int i = threadIdx.x; i < PART; i += blockDim.x)
        shared[i] = values[blockIdx.x * PART + i];
    for (int size = 2; size <= PART; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < PART / 2; i += blockDim.x) {
                int low = 2 * i - (i & (stride - 1));
                bool ascending = (low & size) == 0 || size == PART;

                if ((shared[low] > shared[low + stride]) == ascending) {
                    int value = shared[low];

                    shared[low] = shared[low + stride];
                    shared[low + stride] = value;
                }
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < PART; i += blockDim.x)
        values[blockIdx.x * PART + i] = shared[i];
}

int main()
{
    static int values[VALUES], sorted[VALUES];
    int *on_gpu = device_memory<int>(VALUES), result[VALUES];
    unsigned *bins = device_memory<unsigned>(BINS), counts[BINS] = {}, expected[BINS] = {};
    uint32_t state = 1;

    for (int i = 0; i < VALUES; i++) {
        state = state * 1664525 + 1013904223;
        values[i] = (int)(state >> 8) % 1000;
        expected[(unsigned)values[i] % BINS]++;
    }
    streams(values);

    CUDA(cudaMemcpy(on_gpu, values, sizeof(values), cudaMemcpyHostToDevice));
    count<<<3, THREADS, BINS * sizeof(unsigned)>>>(reinterpret_cast<unsigned *>(on_gpu), bins);
    CUDA(cudaMemcpy(counts, bins, sizeof(counts), cudaMemcpyDeviceToHost));
    CHECK(memcmp(counts, expected, sizeof(counts)) == 0);

    memcpy(sorted, values, sizeof(values));
    for (int part = 0; part < VALUES; part += PART)
        std::sort(sorted + part, sorted + part + PART);
    network<<<STREAMS, THREADS>>>(on_gpu);
    CUDA(cudaMemcpy(result, on_gpu, sizeof(values), cudaMemcpyDeviceToHost));
    CHECK(memcmp(result, sorted, sizeof(sorted)) == 0);
    puts("ok");
    return 0;
}
