/* Memory and values from CUDA, by calls that must succeed. */
#ifndef CUDA_VALUES_H
#define CUDA_VALUES_H

#include "kit/gpu.h"

static inline CUdeviceptr allocated(size_t size)
{
    CUdeviceptr address;

    CUDA(cuMemAlloc(&address, size));
    return address;
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

/* An attribute of at most 8 bytes. */
static inline uint64_t pointer_attribute(CUdeviceptr address, int attribute)
{
    uint64_t value = 0;

    CUDA(cuPointerGetAttribute(&value, (CUpointer_attribute)attribute, address));
    return value;
}

#endif
