/* Functions of the libcuda.so.1 of tests/nvidia_libcuda.c for tests. */
#ifndef NVIDIA_LIBCUDA_H
#define NVIDIA_LIBCUDA_H

#include "cuda_driver.h"

struct libcuda {
    int context;               /* a context is current */
    int retained;              /* primary contexts */
    int waits;                 /* for a context */
    int exportable;            /* the GPU makes memory that can be exported */
    int calls_of_alloc;        /* of cuMemAlloc and cuMemFree */
    int objects, mappings, reservations; /* alive */
    CUmemAllocationProp created;         /* the last object's */
    void *next_init;           /* what dlsym(RTLD_NEXT, "cuInit") finds, called in libcuda */
};

struct libcuda *libcuda(void);

#endif
