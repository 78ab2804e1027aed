/* The first lines of most CUDA programs. */
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

#endif
