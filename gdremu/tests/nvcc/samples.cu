// GPU kernels of the kinds that CUDA's samples have: a histogram with shared atomics, a sorting network of a block.
#include <algorithm>
#include <cstring>

#include "check.cuh"

enum { PARTS = 4, PART = 512, VALUES = PARTS * PART, THREADS = 128, BINS = 64 };

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

    CUDA(cudaMemcpy(on_gpu, values, sizeof(values), cudaMemcpyHostToDevice));
    count<<<3, THREADS, BINS * sizeof(unsigned)>>>(reinterpret_cast<unsigned *>(on_gpu), bins);
    CUDA(cudaMemcpy(counts, bins, sizeof(counts), cudaMemcpyDeviceToHost));
    CHECK(memcmp(counts, expected, sizeof(counts)) == 0);

    memcpy(sorted, values, sizeof(values));
    for (int part = 0; part < VALUES; part += PART)
        std::sort(sorted + part, sorted + part + PART);
    network<<<PARTS, THREADS>>>(on_gpu);
    CUDA(cudaMemcpy(result, on_gpu, sizeof(values), cudaMemcpyDeviceToHost));
    CHECK(memcmp(result, sorted, sizeof(sorted)) == 0);
    puts("ok");
    return 0;
}
