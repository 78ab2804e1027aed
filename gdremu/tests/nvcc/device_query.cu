// What programs ask of each GPU before they use it.
#include <cstring>

#include "check.cuh"

int main()
{
    int driver, runtime, count, major, current;
    cudaDeviceProp properties;
    size_t free_bytes, total_bytes;
    char address[32];

    CUDA(cudaDriverGetVersion(&driver));
    CUDA(cudaRuntimeGetVersion(&runtime));
    CHECK(driver >= runtime && runtime >= 12000);
    CUDA(cudaGetDeviceCount(&count));
    CHECK(count > 0);
    for (int gpu = 0; gpu < count; gpu++) {
        int same = -1;

        CUDA(cudaSetDevice(gpu));
        CUDA(cudaGetDevice(&current));
        CHECK(current == gpu);
        CUDA(cudaGetDeviceProperties(&properties, gpu));
        CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
        CHECK(properties.major == major && properties.name[0] != '\0');
        CHECK(properties.maxThreadsPerBlock == 1024 && properties.warpSize == 32);
        CHECK(properties.canMapHostMemory && properties.unifiedAddressing);
        CUDA(cudaDeviceGetPCIBusId(address, sizeof(address), gpu));
        CUDA(cudaDeviceGetByPCIBusId(&same, address));
        CHECK(same == gpu);
        CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
        CHECK(free_bytes <= total_bytes && total_bytes == properties.totalGlobalMem);
    }
    CHECK(cudaSetDevice(count) == cudaErrorInvalidDevice);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
    CHECK(strcmp(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice") == 0);
    puts("ok");
    return 0;
}
