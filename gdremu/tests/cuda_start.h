/* The first lines of most CUDA programs. */
#ifndef CUDA_START_H
#define CUDA_START_H

#include "check.h"
#include "cuda_driver.h"

/* Makes the primary context of a device current. */
static inline CUcontext start(CUdevice device)
{
    CUcontext context;

    CHECK_EQUAL(cuInit(0), CUDA_SUCCESS);
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSetCurrent(context), CUDA_SUCCESS);
    return context;
}

#endif
