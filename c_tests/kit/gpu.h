/* Allocates GPU memory for the C tests, and accesses it by CUDA for comparisons. A CUDA error ends the program. */
#ifndef GPU_H
#define GPU_H

#include "check.h"
#include "../cuda_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ends the program unless the CUDA call succeeds. */
#define CUDA(call) check_cuda(HERE, #call, (call))
void check_cuda(const char *file, int line, const char *function, const char *call, CUresult result);

/* Makes the primary context of a GPU current in the calling thread. */
CUcontext gpu_start(CUdevice gpu);

/* Makes the context of the GPU with the number `gpu_under_test` current. The number is 0 unless a test sets it. */
void gpu_init(void);
extern int gpu_under_test;

enum gpu_memory {
    MEM_ALLOC, /* cuMemAlloc */
    MEM_CREATE /* cuMemCreate and cuMemMap */
};

struct gpu_buffer {
    CUdeviceptr address; /* the start of a GPU page, unless from gpu_alloc_small */
    size_t size;
    enum gpu_memory kind;
    CUdeviceptr allocation; /* the address that cuMemAlloc or cuMemAddressReserve returned */
    size_t reserved;        /* bytes of device addresses reserved for MEM_CREATE; the second half has no memory */
    CUmemGenericAllocationHandle handle;
};

size_t round_up(size_t value, size_t unit);
size_t round_down(size_t value, size_t unit);

/* Allocates at least `size` bytes that start at a GPU page. Waives the test if the GPU lacks this kind of memory. */
struct gpu_buffer gpu_alloc(enum gpu_memory kind, size_t size);

/* Allocates `size` bytes by cuMemAlloc. They need not start at a GPU page. */
struct gpu_buffer gpu_alloc_small(size_t size);

void gpu_free(const struct gpu_buffer *buffer);

/* These functions copy by CUDA. When they return, the copy is complete. */
void gpu_read(void *destination, CUdeviceptr source, size_t size);
void gpu_write(CUdeviceptr destination, const void *source, size_t size);

/* Fills the buffer with pseudorandom bytes, which depend on the seed. */
void fill(void *buffer, size_t size, unsigned seed);

#ifdef __cplusplus
}
#endif

#endif
