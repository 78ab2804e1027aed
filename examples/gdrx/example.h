/* Functions for the examples: they map GPU memory, and measure and print times. Programs can include cuda.h in place of
 * cuda_driver.h. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include "cuda_driver.h"
#include "gdrx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Ends the program unless the call returns 0. */
#define MUST(call) must(#call, (call))

static inline void must(const char *call, int result)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s: error %d\n", call, result);
    exit(1);
}

/* GPU memory, pinned and mapped. */
struct memory {
    CUdeviceptr address; /* for CUDA and GPU kernels */
    gdr_t g;
    gdr_mh_t handle;
    unsigned char *va; /* for gdr_copy_to_mapping and gdr_copy_from_mapping */
    struct gdrx_map map;
};

static inline struct memory map_memory(size_t size)
{
    struct memory memory;
    CUcontext context;
    void *va;

    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&memory.address, size));
    memory.g = gdr_open();
    if (memory.g == NULL) {
        fprintf(stderr, "gdr_open: no driver\n");
        exit(2);
    }
    MUST(gdr_pin_buffer(memory.g, (unsigned long)memory.address, size, 0, 0, &memory.handle));
    MUST(gdr_map(memory.g, memory.handle, &va, size));
    MUST(gdrx_attach(&memory.map, memory.g, memory.handle, va, size));
    memory.va = va;
    return memory;
}

static inline void unmap_memory(struct memory *memory)
{
    MUST(gdr_unpin_buffer(memory->g, memory->handle));
    MUST(gdr_close(memory->g));
    MUST(cuMemFree(memory->address));
}

static inline double nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Returns a number below `limit` that looks random. */
static inline size_t any_number(size_t limit)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % limit;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Prints the median time of the rounds, per item. */
static inline void print_time(const char *what, double *times, size_t rounds, size_t items)
{
    qsort(times, rounds, sizeof(*times), compare_times);
    printf("%-28s %8.1f ns\n", what, times[rounds / 2] / (double)items);
}

#endif
