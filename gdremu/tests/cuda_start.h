/* The beginning of most CUDA programs, and calls that must succeed. */
#ifndef CUDA_START_H
#define CUDA_START_H

#include "check.h"
#include "cuda_driver.h"

#define CHECK_CUDA(call) CHECK_EQUAL(call, CUDA_SUCCESS)

/* Makes the primary context of a device current. */
static inline CUcontext start(CUdevice device)
{
    CUcontext context;

    CHECK_CUDA(cuInit(0));
    CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CUDA(cuCtxSetCurrent(context));
    return context;
}

static inline CUdeviceptr allocated(size_t size)
{
    CUdeviceptr address;

    CHECK_CUDA(cuMemAlloc(&address, size));
    return address;
}

static inline size_t free_bytes(void)
{
    size_t free_now, total;

    CHECK_CUDA(cuMemGetInfo(&free_now, &total));
    return free_now;
}

static inline int device_attribute(CUdevice device, int attribute)
{
    int value = -7;

    CHECK_CUDA(cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device));
    return value;
}

/* An attribute of at most 8 bytes. */
static inline uint64_t pointer_attribute(CUdeviceptr address, int attribute)
{
    uint64_t value = 0;

    CHECK_CUDA(cuPointerGetAttribute(&value, (CUpointer_attribute)attribute, address));
    return value;
}

#endif
