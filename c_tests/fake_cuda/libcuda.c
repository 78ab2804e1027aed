/*
 * A libcuda.so.1 for libcuda_load.c and tools/tests/doctor. It is too old for dma-bufs. cuInit returns the number in
 * the variable CU_INIT (34 is the result of CUDA's stub for linking), or hangs if the variable is "hang". The library
 * reports one GPU, which has no free memory. Only memory of cuMemAlloc can be pinned, or none if CU_RDMA is set.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fake_cuda_calls;

/* Lets a test stop a process inside libcuda. The variable FAKE_CUDA_GATE has the number of that process and two
   descriptors. The process writes a byte to the first descriptor, and waits for a byte from the second one. */
static void pass_gate(void)
{
    const char *gate = getenv("FAKE_CUDA_GATE");
    int pid, in, out;
    char byte = 0;

    if (gate != NULL && sscanf(gate, "%d %d %d", &pid, &in, &out) == 3 && pid == getpid())
        if (write(in, &byte, 1) != 1 || read(out, &byte, 1) != 1)
            abort();
}

int cuDriverGetVersion(int *version)
{
    __atomic_add_fetch(&fake_cuda_calls, 1, __ATOMIC_SEQ_CST);
    pass_gate();
    *version = 13000;
    return 0;
}

int cuInit(void)
{
    const char *answer = getenv("CU_INIT");

    if (answer == NULL)
        return 0;
    while (strcmp(answer, "hang") == 0)
        pause();
    return atoi(answer);
}

/* Defines a function that stores `value` through its first argument, and returns `code`. */
#define SETS(type, value, code, function)                                                                              \
    int function(type *out)                                                                                            \
    {                                                                                                                  \
        *out = value;                                                                                                  \
        return code;                                                                                                   \
    }

SETS(int, 1, 0, cuDeviceGetCount)
SETS(int, 0, 0, cuDeviceGet)
SETS(char, 0, 0, cuDeviceGetName)
SETS(size_t, (size_t)1 << 36, 0, cuDeviceTotalMem_v2)
SETS(void *, NULL, 2 /* out of memory */, cuDevicePrimaryCtxRetain)

int cuDeviceGetPCIBusId(char *address)
{
    strcpy(address, "0000:1B:00.0");
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute)
{
    *value = attribute == 116 && getenv("CU_RDMA") == NULL; /* the GPU supports GPUDirect RDMA */
    return 0;
}

/* Programs look up these functions, but do not call them. So the functions only return an error. */
int cuCtxSetCurrent(void)
{
    return 34;
}

int cuCtxSynchronize(void)
{
    return 34;
}
