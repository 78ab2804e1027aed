/*
 * A libcuda.so.1 whose cuInit returns the number in CU_INIT, as CUDA's stub for linking returns 34.
 */
#include <stdlib.h>

int cuInit(unsigned flags)
{
    return flags + atoi(getenv("CU_INIT"));
}

#define REFUSES(function)                                                                                                    \
    int function(void)                                                                                                       \
    {                                                                                                                        \
        return 34; /* stub library */                                                                                        \
    }

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

REFUSES(cuDeviceGetCount)
REFUSES(cuDeviceGet)
REFUSES(cuDeviceGetName)
REFUSES(cuDeviceTotalMem_v2)
REFUSES(cuDeviceGetPCIBusId)
REFUSES(cuDeviceGetAttribute)
REFUSES(cuDevicePrimaryCtxRetain)
REFUSES(cuCtxSetCurrent)
REFUSES(cuCtxSynchronize)
