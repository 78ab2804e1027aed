/*
 * Memory of the GPU under test, and CUDA's view of it, which every copy is compared with. A CUDA error ends the test.
 */
#ifndef SANITY_GPU_MEMORY_H
#define SANITY_GPU_MEMORY_H

#include "cuda_driver.h"
#include "test.h"

/* Ends the test as failed unless the CUDA call succeeds. */
#define CUDA(call) check_cuda(__FILE__, __LINE__, #call, (call))
void check_cuda(const char *file, int line, const char *call, CUresult result);

struct gpu_memory {
    CUdeviceptr address; /* a multiple of GPU_PAGE_SIZE, unless from gpu_alloc_small */
    size_t size;
    enum memory_kind kind;
    CUdeviceptr allocation; /* what CUDA returned */
    CUmemGenericAllocationHandle handle;
};

/* Makes the GPU's primary context current in the calling thread. Must be called before the functions below. */
void gpu_init(void);

/* Returns whether CPU and GPU share page tables over a coherent link. */
int gpu_is_coherent(void);

/* `size` bytes or more, in whole GPU pages, from the start of one. Waives the test where the GPU lacks that kind. */
struct gpu_memory gpu_alloc(enum memory_kind kind, size_t size);

/* `size` bytes as cuMemAlloc returns them, aligned to less than a GPU page. */
struct gpu_memory gpu_alloc_small(size_t size);

void gpu_free(const struct gpu_memory *memory);

/* Copies by CUDA; complete on return. */
void gpu_read(void *destination, CUdeviceptr source, size_t size);
void gpu_write(CUdeviceptr destination, const void *source, size_t size);

#endif
