// The checks of every program.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(condition) check(condition, #condition, __FILE__, __LINE__)
#define CUDA(call) check_cuda(call, #call, __FILE__, __LINE__)

static inline void check(bool holds, const char *what, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
        exit(1);
    }
}

static inline void check_cuda(cudaError_t result, const char *what, const char *file, int line)
{
    if (result != cudaSuccess) {
        fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, cudaGetErrorName(result));
        exit(1);
    }
}

// Memory that the CPU and GPU kernels reach at the same address.
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
