/*
 * Copies to and from GPU memory through a mapping, in sizes from 1 byte to 16 MiB. Compares each size with CUDA's view
 * of the memory, and prints how long a copy takes.
 *
 * The exit status is 0 for success, 1 if a copy or a call failed, and 2 without a usable GPU or driver.
 */

#include "cuda_driver.h"
#include "gdrapi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MISMATCH = 1, UNUSABLE = 2 };

#define LARGEST (16UL << 20)
#define COPIES 1000 /* copies per measurement; fewer if they are more than 16 MiB together */
#define UNALIGNED 3

static gdr_mh_t pinned;
static CUdeviceptr gpu;        /* the buffer as CUDA sees it */
static unsigned char *mapping; /* the buffer as the CPU sees it */
static unsigned char sent[LARGEST], seen[LARGEST];

static void die(int status, const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(status);
}

static void cuda(const char *call, CUresult result, int status_on_error)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    die(status_on_error, call, name != NULL ? name : "unknown CUDA error");
}

static void gdr(const char *call, int result)
{
    if (result != 0)
        die(MISMATCH, call, strerror(result));
}

#define CUDA(call) cuda(#call, (call), MISMATCH)
#define GDR(call) gdr(#call, (call))

static CUdevice open_gpu(void)
{
    CUdevice device = 0;
    CUcontext context;

    cuda("cuInit", cuInit(0), UNUSABLE);
    cuda("cuDeviceGet", cuDeviceGet(&device, 0), UNUSABLE);
    cuda("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device), UNUSABLE);
    CUDA(cuCtxSetCurrent(context));
    return device;
}

/* Allocates GPU memory, and returns the first GPU page boundary in it. cuMemAlloc need not return such an address. */
static CUdeviceptr aligned_gpu_memory(size_t size)
{
    CUdeviceptr memory;

    CUDA(cuMemAlloc(&memory, size + GPU_PAGE_SIZE - 1));
    return (memory + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
}

/* Returns the value of gdremu's option --provider, or "real" without gdremu. The function gdremu_provider exists only
   under gdremu. */
static const char *provider(void)
{
    const char *(*ask)(void);

    *(void **)&ask = dlsym(RTLD_DEFAULT, "gdremu_provider");
    return ask != NULL ? ask() : "real";
}

static int is_emulated(void)
{
    return strcmp(provider(), "host") == 0;
}

static void introduce(gdr_t g, CUdevice device)
{
    int library_major, library_minor, driver_major, driver_minor;
    const char *type;
    char name[256];
    gdr_info_t info;

    CUDA(cuDeviceGetName(name, sizeof(name), device));
    gdr_runtime_get_version(&library_major, &library_minor);
    GDR(gdr_driver_get_version(g, &driver_major, &driver_minor));
    GDR(gdr_get_info(g, pinned, &info));
    GDR(gdr_get_mapping_type_string(info.mapping_type, &type));
    printf("GPU      %s: %s\n", name, is_emulated() ? "emulated GPU (gdremu)" : "real GPU");
    if (!is_emulated() && strcmp(provider(), "real") != 0)
        printf("         through gdremu's provider %s\n", provider());
    printf("library  libgdrapi %d.%d\n", library_major, library_minor);
    printf("driver   gdrdrv %d.%d\n", driver_major, driver_minor);
    printf("mapping  %s, %lu KiB\n\n", type, (unsigned long)(info.mapped_size >> 10));
}

static void fill(unsigned char *bytes, size_t size, size_t seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 7);
}

/* Returns whether CUDA sees the bytes that the CPU writes, and the CPU reads the bytes that CUDA writes. */
static int size_works(size_t size)
{
    fill(sent, size, size);
    GDR(gdr_copy_to_mapping(pinned, mapping + UNALIGNED, sent, size));
    CUDA(cuMemcpyDtoH(seen, gpu + UNALIGNED, size));
    if (memcmp(seen, sent, size) != 0)
        return 0;
    fill(sent, size, size + 1);
    CUDA(cuMemcpyHtoD(gpu + UNALIGNED, sent, size));
    CUDA(cuCtxSynchronize()); /* A small cuMemcpyHtoD may return before the data has arrived. */
    GDR(gdr_copy_from_mapping(pinned, seen, mapping + UNALIGNED, size));
    return memcmp(seen, sent, size) == 0;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Returns the seconds that a copy takes: the shortest of five means, because other work of the CPU can add time. */
static double time_of(size_t size, int is_write)
{
    size_t copies = size * COPIES < LARGEST ? COPIES : LARGEST / size;
    double shortest = 0;

    for (int round = 0; round < 5; round++) {
        double start = now();

        for (size_t i = 0; i < copies; i++) {
            if (is_write)
                GDR(gdr_copy_to_mapping(pinned, mapping, sent, size));
            else
                GDR(gdr_copy_from_mapping(pinned, seen, mapping, size));
        }
        double mean = (now() - start) / (double)copies;
        if (round == 0 || mean < shortest)
            shortest = mean;
    }
    return shortest;
}

static int table(void)
{
    int all_work = 1;

    printf("%10s %12s %12s %12s %12s   %s\n", "bytes", "write us", "read us", "write GB/s", "read GB/s", "verified");
    for (size_t size = 1; size <= LARGEST; size *= 2) {
        int works = size_works(size);
        double write = time_of(size, 1), read = time_of(size, 0);

        printf("%10zu %12.3f %12.3f %12.3f %12.3f   %s\n", size, write * 1e6, read * 1e6, (double)size / write * 1e-9,
               (double)size / read * 1e-9, works ? "yes" : "NO");
        fflush(stdout);
        all_work &= works;
    }
    return all_work;
}

int main(void)
{
    size_t size = LARGEST + GPU_PAGE_SIZE;
    CUdevice device = open_gpu();
    gdr_t g = gdr_open();
    void *va;

    if (g == NULL)
        die(UNUSABLE, "gdr_open", "no usable gdrdrv; GDRCOPY_ENABLE_LOGGING=1 prints why");
    gpu = aligned_gpu_memory(size);
    GDR(gdr_pin_buffer(g, (unsigned long)gpu, size, 0, 0, &pinned));
    GDR(gdr_map(g, pinned, &va, size));
    mapping = va;

    introduce(g, device);
    int all_work = table();

    GDR(gdr_unmap(g, pinned, va, size));
    GDR(gdr_unpin_buffer(g, pinned));
    GDR(gdr_close(g));
    if (!all_work)
        die(MISMATCH, "demo", "copies do not match CUDA's view of the memory");
    printf("\nEvery copy matches CUDA's view of the memory.\n");
    if (is_emulated())
        printf("The times are of host memory, not of a GPU.\n");
    return 0;
}
