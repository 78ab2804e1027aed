/*
 * Helps programs to call functions that a library does not export. Such a program runs as `program LIBRARY OFFSET...`,
 * with the offsets of the functions in the library, and prints a line for each test that passes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <gdrapi.h>

#define CHECK(condition) ((condition) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

enum { SIZE = GPU_PAGE_SIZE };

/* Loads the library, and stores the functions' addresses in the order of the offsets. Returns the library's address. */
static char *load(char **argv, char **functions, int count)
{
    struct link_map *loaded;
    void *library = dlopen(argv[1], RTLD_NOW);

    CHECK(library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &loaded) == 0);
    for (int i = 0; i < count; i++)
        functions[i] = (char *)loaded->l_addr + strtoul(argv[2 + i], NULL, 16);
    return (char *)loaded->l_addr;
}

/* Allocates GPU memory, and returns the address of a whole page in it. */
static CUdeviceptr gpu_page(void)
{
    CUdeviceptr address;
    CUcontext context;

    CHECK(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS && cuMemAlloc(&address, 2 * SIZE) == CUDA_SUCCESS);
    return (address + SIZE - 1) & GPU_PAGE_MASK;
}
