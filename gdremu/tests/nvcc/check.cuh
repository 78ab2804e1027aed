// Checks and memory for the programs in this directory.
#pragma once
#include <cstdint>

#include "kit/check.h"

#define CUDA(call) check_cuda(HERE, #call, call)

static inline void check_cuda(const char *file, int line, const char *function, const char *call, cudaError_t result)
{
    if (result != cudaSuccess)
        failed(file, line, function, "%s is %s", call, cudaGetErrorName(result));
}

// Allocates memory that the CPU and GPU kernels reach at the same address.
template <typename T> T *host_memory(size_t count)
{
    void *memory;

    CUDA(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped));
    return static_cast<T *>(memory);
}

template <typename T> T *device_memory(size_t count)
{
    void *memory;

    CUDA(cudaMalloc(&memory, count * sizeof(T)));
    CUDA(cudaMemset(memory, 0, count * sizeof(T)));
    return static_cast<T *>(memory);
}
