// GPU kernels that gdremu refuses, and one that it runs.
#include "check.cuh"

__global__ void add(const float *a, const float *b, float *sum)
{
    sum[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}

__global__ void hello(int number)
{
    printf("hello %d\n", number);
}

__global__ void copy(const float *from, float *to)
{
    to[threadIdx.x] = from[threadIdx.x];
}

int main()
{
    float *a = host_memory<float>(32), *sum = host_memory<float>(32);

    for (int i = 0; i < 32; i++)
        a[i] = i + 0.5f;
    add<<<1, 32>>>(a, a, sum);
    CHECK(cudaGetLastError() == cudaErrorNoKernelImageForDevice);
    hello<<<1, 1>>>(7);
    hello<<<1, 1>>>(8);
    CHECK(cudaPeekAtLastError() == cudaErrorNoKernelImageForDevice);
    copy<<<1, 32>>>(a, sum);
    CHECK(cudaGetLastError() == cudaErrorNoKernelImageForDevice); // The last error stays after a call that succeeds.
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 32; i++)
        CHECK(sum[i] == a[i]);
    puts("ok");
    return 0;
}
