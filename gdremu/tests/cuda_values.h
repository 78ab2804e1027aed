/* Functions that get memory and values from CUDA. If CUDA returns an error, the test fails. */
#ifndef CUDA_VALUES_H
#define CUDA_VALUES_H

#include "kit/gpu.h"

static inline CUdeviceptr allocated(size_t size)
{
    CUdeviceptr address;

    CUDA(cuMemAlloc(&address, size));
    return address;
}

/* Maps memory of GPU 0 from cuMemCreate. `access` lists how GPUs may access it, and `rdma` makes it GPUDirect
   capable. */
static inline CUdeviceptr created(size_t size, unsigned char rdma, const CUmemAccessDesc *access, size_t count)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                .allocFlags.gpuDirectRDMACapable = rdma};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    CUDA(cuMemCreate(&handle, size, &prop, 0));
    CUDA(cuMemAddressReserve(&address, size, 0, 0, 0));
    CUDA(cuMemMap(address, size, 0, handle, 0));
    CUDA(cuMemSetAccess(address, size, access, count));
    return address;
}

/* Exports memory as a dma-buf, and returns the descriptor. */
static inline int exported(CUdeviceptr address, size_t size)
{
    int fd;

    CUDA(cuMemGetHandleForAddressRange(&fd, address, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    return fd;
}

static inline size_t free_bytes(void)
{
    size_t free_now, total;

    CUDA(cuMemGetInfo(&free_now, &total));
    return free_now;
}

static inline int device_attribute(CUdevice device, int attribute)
{
    int value = -7;

    CUDA(cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device));
    return value;
}

/* Reads an attribute of at most 8 bytes. */
static inline uint64_t pointer_attribute(CUdeviceptr address, int attribute)
{
    uint64_t value = 0;

    CUDA(cuPointerGetAttribute(&value, (CUpointer_attribute)attribute, address));
    return value;
}

/* Declares a test that runs in the primary context of GPU 0. The program must include tests.h. */
#define GPU_TEST(test)                                                                                                 \
    static void test##_on_gpu(void);                                                                                   \
    TEST(test)                                                                                                         \
    {                                                                                                                  \
        gpu_start(0);                                                                                                  \
        test##_on_gpu();                                                                                               \
    }                                                                                                                  \
    static void test##_on_gpu(void)

#define PTX(text) ".version 7.0\n.target sm_70\n.address_size 64\n" text

/* Loads PTX text into the current context, and returns a GPU kernel of it. */
static inline CUfunction loaded_kernel(const char *ptx, const char *name)
{
    CUfunction function;
    CUmodule module;

    CUDA(cuModuleLoadData(&module, ptx));
    CUDA(cuModuleGetFunction(&function, module, name));
    return function;
}

/* Launches a GPU kernel with one thread. */
static inline CUresult launched(CUfunction function, CUstream stream, void **parameters)
{
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

#endif
