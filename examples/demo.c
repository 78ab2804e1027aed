/*
 * Copies to and from GPU memory through a mapping, in sizes from 1 byte to 16 MiB. Compares each copy with CUDA's view
 * of the memory, and prints how long it took.
 *
 * Exit status is 0 for success, 1 if a copy or a call failed, 2 without usable GPU or driver.
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
#define GUARD 64 /* bytes around each copy that must not change */

/* Seconds of measurement per size and direction, and limits for the number of copies. */
#define TIME_PER_CELL 0.03
#define MIN_ROUNDS 3
#define MAX_ROUNDS 1000

static gdr_mh_t pinned;
static CUdeviceptr gpu;         /* the buffer as CUDA sees it */
static unsigned char *mapping;  /* the buffer as the CPU sees it */
static unsigned char *host, *expected, *seen;

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

/* ---- Setting up ---- */

static void *buffer_of(size_t size)
{
    void *buffer = calloc(1, size);

    if (buffer == NULL)
        die(MISMATCH, "calloc", "out of memory");
    return buffer;
}

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

/* The first GPU page boundary in memory from cuMemAlloc, whose alignment is smaller. */
static CUdeviceptr aligned_gpu_memory(size_t size)
{
    CUdeviceptr memory;

    CUDA(cuMemAlloc(&memory, size + GPU_PAGE_SIZE - 1));
    return (memory + GPU_PAGE_OFFSET) & GPU_PAGE_MASK;
}

/* The --provider of gdremu, or NULL without it, since its functions for tests exist only under it. */
static const char *provider(void)
{
    const char *(*ask)(void);

    *(void **)&ask = dlsym(RTLD_DEFAULT, "gdremu_provider");
    return ask != NULL ? ask() : NULL;
}

static int is_emulated(void)
{
    return provider() != NULL && strcmp(provider(), "host") == 0;
}

static const char *kind_of_gpu(void)
{
    if (is_emulated())
        return "emulated GPU (gdremu)";
    return provider() != NULL ? "real GPU through gdremu's nvidia provider" : "real GPU";
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
    printf("GPU      %s: %s\n", name, kind_of_gpu());
    printf("library  libgdrapi %d.%d\n", library_major, library_minor);
    printf("driver   gdrdrv %d.%d\n", driver_major, driver_minor);
    printf("mapping  %s, %lu KiB\n\n", type, (unsigned long)(info.mapped_size >> 10));
}

/* ---- Checking ---- */

static void fill(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)((i * 2654435761u + seed * 40503u) >> 7);
}

/* The CPU writes; CUDA must see the bytes, and unchanged guards around them. */
static int write_arrives(size_t size, size_t gpu_offset, size_t host_offset)
{
    size_t window = size + 2 * GUARD;

    memset(expected, 0xee, window);
    CUDA(cuMemcpyHtoD(gpu, expected, window));
    CUDA(cuCtxSynchronize());
    fill(host, size + host_offset, (unsigned)(size + gpu_offset));
    memcpy(expected + gpu_offset, host + host_offset, size);
    GDR(gdr_copy_to_mapping(pinned, mapping + gpu_offset, host + host_offset, size));
    CUDA(cuMemcpyDtoH(seen, gpu, window));
    return memcmp(seen, expected, window) == 0;
}

/* CUDA writes; the CPU must read the bytes, and nothing around them. */
static int read_arrives(size_t size, size_t gpu_offset, size_t host_offset)
{
    size_t window = size + 2 * GUARD;

    fill(host, window, (unsigned)(size ^ gpu_offset) + 1);
    CUDA(cuMemcpyHtoD(gpu, host, window));
    CUDA(cuCtxSynchronize());
    memset(expected, 0xee, window);
    memset(seen, 0xee, window);
    memcpy(expected + host_offset, host + gpu_offset, size);
    GDR(gdr_copy_from_mapping(pinned, seen + host_offset, mapping + gpu_offset, size));
    return memcmp(seen, expected, window) == 0;
}

static int size_works(size_t size)
{
    /* Offsets on the GPU's and on the host's side. */
    static const size_t offsets[][2] = {{0, 0}, {1, 0}, {4, 3}, {8, 8}, {32, 17}, {63, 1}};

    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        if (!write_arrives(size, offsets[i][0], offsets[i][1]) || !read_arrives(size, offsets[i][0], offsets[i][1]))
            return 0;
    }
    return 1;
}

/* ---- Timing ---- */

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int by_value(const void *left, const void *right)
{
    double l = *(const double *)left, r = *(const double *)right;

    return (l > r) - (l < r);
}

static void copy_once(size_t size, int is_write)
{
    if (is_write)
        GDR(gdr_copy_to_mapping(pinned, mapping, host, size));
    else
        GDR(gdr_copy_from_mapping(pinned, seen, mapping, size));
}

/* Median time of a copy in seconds. */
static double time_of(size_t size, int is_write)
{
    static double times[MAX_ROUNDS];
    double end = now() + TIME_PER_CELL;
    int rounds = 0;

    copy_once(size, is_write);
    while (rounds < MAX_ROUNDS && (rounds < MIN_ROUNDS || now() < end)) {
        double start = now();

        copy_once(size, is_write);
        times[rounds++] = now() - start;
    }
    qsort(times, (size_t)rounds, sizeof(times[0]), by_value);
    return times[rounds / 2];
}

static const char *size_name(size_t size)
{
    static char name[32];

    if (size < 1024)
        sprintf(name, "%lu B", (unsigned long)size);
    else if (size < 1024 * 1024)
        sprintf(name, "%lu KiB", (unsigned long)(size >> 10));
    else
        sprintf(name, "%lu MiB", (unsigned long)(size >> 20));
    return name;
}

static int table(void)
{
    int all_work = 1;

    printf("%10s %12s %12s %12s %12s   %s\n", "size", "write us", "read us", "write GB/s", "read GB/s", "verified");
    for (size_t size = 1; size <= LARGEST; size *= 2) {
        int works = size_works(size);
        double write = time_of(size, 1), read = time_of(size, 0);

        printf("%10s %12.3f %12.3f %12.3f %12.3f   %s\n", size_name(size), write * 1e6, read * 1e6,
               (double)size / write * 1e-9, (double)size / read * 1e-9, works ? "yes" : "NO");
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
    host = buffer_of(size);
    expected = buffer_of(size);
    seen = buffer_of(size);
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
