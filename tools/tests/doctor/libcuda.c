/*
 * A libcuda.so.1 whose cuInit returns the number in CU_INIT, as CUDA's stub for linking returns 34, or hangs if that is
 * "hang". It has one GPU, whose memory is full; only that of cuMemAlloc can be pinned.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(void)
{
    while (strcmp(getenv("CU_INIT"), "hang") == 0)
        pause();
    return atoi(getenv("CU_INIT"));
}

/* Functions that set what their first argument leads to, and succeed. */
#define SETS(type, value, function)                                                                                    \
    int function(type *out)                                                                                            \
    {                                                                                                                  \
        *out = value;                                                                                                  \
        return 0;                                                                                                      \
    }

SETS(int, 13000, cuDriverGetVersion)
SETS(int, 1, cuDeviceGetCount)
SETS(int, 0, cuDeviceGet)
SETS(char, 0, cuDeviceGetName)
SETS(size_t, (size_t)1 << 36, cuDeviceTotalMem_v2)

int cuDeviceGetPCIBusId(char *address)
{
    strcpy(address, "0000:1B:00.0");
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute)
{
    *value = attribute == 116; /* GPUDirect RDMA */
    return 0;
}

#define FAILS(code, function)                                                                                          \
    int function(void)                                                                                                 \
    {                                                                                                                  \
        return code;                                                                                                   \
    }

FAILS(2 /* out of memory */, cuDevicePrimaryCtxRetain)
FAILS(34 /* stub library */, cuCtxSetCurrent)
FAILS(34, cuCtxSynchronize)
