/*
 * A libcuda.so.1 whose cuInit returns the number in CU_INIT, as CUDA's stub for linking returns 34, or hangs if that is
 * "hang". It has one GPU, whose memory is full; only that of cuMemAlloc can be pinned.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(unsigned flags)
{
    const char *init = getenv("CU_INIT");
    while (strcmp(init, "hang") == 0)
        pause();
    return flags + atoi(init);
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

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int number)
{
    *device = number;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    (void)device;
    strncpy(name, "GPU", size);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *size, int device)
{
    (void)device;
    *size = (size_t)1 << 36;
    return 0;
}

int cuDeviceGetPCIBusId(char *address, int size, int device)
{
    (void)device;
    strncpy(address, "0000:1B:00.0", size);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 116; /* GPUDirect RDMA */
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)context, (void)device;
    return 2; /* out of memory */
}

REFUSES(cuCtxSetCurrent)
REFUSES(cuCtxSynchronize)
