// Tests of launches with attributes, barriers of a grid, and the calls by which NVIDIA's library CUB gets the limits
// of a GPU kernel.
#include <cooperative_groups.h>

#include "check.cuh"

enum { BLOCKS = 8, THREADS = 128, VALUES = BLOCKS * THREADS };

__global__ void reverse(int *in, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    for (int round = 0; round < 3; round++) {
        in[i] = i * 3 + round;
        cooperative_groups::this_grid().sync();
        out[i] = in[VALUES - 1 - i] + 1;
        cooperative_groups::this_grid().sync();
    }
}

static void check_reversed(int *out)
{
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < VALUES; i++)
        CHECK(out[i] == (VALUES - 1 - i) * 3 + 3);
    CUDA(cudaMemset(out, 0, VALUES * sizeof(int)));
}

__global__ void add(int *sum, int value)
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
    sum[threadIdx.x] += value;
}

static cudaLaunchConfig_t config(unsigned blocks, unsigned threads, cudaLaunchAttribute *attributes, unsigned count)
{
    cudaLaunchConfig_t config = {};

    config.gridDim = blocks;
    config.blockDim = threads;
    config.attrs = attributes;
    config.numAttrs = count;
    return config;
}

int main()
{
    int *in = device_memory<int>(VALUES), *out = host_memory<int>(VALUES), value = 5, blocks = 0, threads = 0;
    void *grid_arguments[] = {&in, &out}, *add_arguments[] = {&out, &value};
    cudaLaunchAttribute attributes[3] = {};
    cudaFuncAttributes function = {};
    cudaKernel_t kernel;

    CUDA(cudaLaunchCooperativeKernel(reverse, BLOCKS, THREADS, grid_arguments));
    check_reversed(out);
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
    cudaLaunchConfig_t cooperative = config(BLOCKS, THREADS, attributes, 1);
    CUDA(cudaLaunchKernelExC(&cooperative, (const void *)reverse, grid_arguments));
    check_reversed(out);

    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributePriority;
    attributes[2].id = cudaLaunchAttributeClusterDimension;
    attributes[2].val.clusterDim = {1, 1, 1};
    cudaLaunchConfig_t dependent = config(1, 32, attributes, 3);
    CUDA(cudaLaunchKernelExC(&dependent, (const void *)add, add_arguments));
    CUDA(cudaLaunchKernelEx(&dependent, add, out, value));
    CUDA(cudaGetKernel(&kernel, (const void *)add));
    CUDA(cudaLaunchKernel((const void *)kernel, 1, 32, add_arguments, 0, 0));
    CUDA(cudaDeviceSynchronize());
    CHECK(out[31] == 15 && out[32] == 0);

    CUDA(cudaFuncGetAttributes(&function, add));
    CHECK(function.ptxVersion * 10 == __CUDA_ARCH_LIST__);
    CHECK(function.binaryVersion == 90 && function.maxThreadsPerBlock == 1024);
    CUDA(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, add));
    CHECK(threads == 1024 && blocks == 2 * 132);

    // gdremu refuses clusters of more than one block.
    attributes[2].val.clusterDim.x = 2;
    cudaLaunchConfig_t clusters = config(2, 32, attributes, 3);
    CHECK(cudaLaunchKernelExC(&clusters, (const void *)add, add_arguments) == cudaErrorNotSupported);
    puts("ok");
    return 0;
}
