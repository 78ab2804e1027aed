/*
 * Tests that the dma-buf backend needs no functions of libcuda except those that NVIDIA's libgdrapi 2.6 looks up,
 * because replacements of libcuda may have no others. If a function is missing, only the calls that use the function
 * fail, and the log names the function.
 */

#include "cuda_lookup.h"
#include "kit/library.h"
#include "logged.h"

#include <sys/mman.h>

/* The functions of libcuda that NVIDIA's libgdrapi 2.6 looks up. */
static const char *const needed[] = {
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuPointerGetAttribute",
    "cuMemGetHandleForAddressRange",
    "cuGetErrorName",
    "cuGetErrorString",
};
#define NEEDED (sizeof(needed) / sizeof(needed[0]))

enum step { OPEN, PIN, NONE };

static const char *hidden;
static struct gpu_buffer buffer;
static enum step failing;

static void *only_needed(const char *name, void *found)
{
    for (size_t i = 0; i < NEEDED; i++)
        if (strcmp(name, needed[i]) == 0)
            return hidden != NULL && strcmp(name, hidden) == 0 ? NULL : found;
    return NULL;
}

static void *all_but_hidden(const char *name, void *found)
{
    return hidden != NULL && strcmp(name, hidden) == 0 ? NULL : found;
}

/* Opens, pins, maps and copies, and stores in `failing` which step failed first. */
static void use_buffer(void)
{
    gdr_t g = gdr_open();
    gdr_mh_t handle;
    uint64_t sent = 7, seen = 0;

    failing = OPEN;
    if (g == NULL)
        return;
    failing = PIN;
    if (gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, &handle) == 0) {
        failing = NONE;
        void *va = map(g, handle, GPU_PAGE_SIZE);
        CHECK_OK(gdr_copy_to_mapping(handle, va, &sent, sizeof(sent)));
        CHECK_OK(gdr_copy_from_mapping(handle, &seen, va, sizeof(seen)));
        CHECK_EQUAL(seen, sent);
        CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
        (void)map(g, handle, GPU_PAGE_SIZE);
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    CHECK_OK(gdr_close(g));
}

/* cuMemCreate's memory has no context. A pin of it in a thread without one calls the most functions of libcuda. */
static void prepare(enum gpu_memory kind)
{
    gpu_init();
    buffer = gpu_alloc(kind, GPU_PAGE_SIZE);
    if (kind == MEM_CREATE)
        CUDA(cuCtxSetCurrent(NULL));
}

static void what_nvidias_library_looks_up_is_enough(void)
{
    lookup = only_needed;
    prepare(MEM_ALLOC);
    use_buffer();
    CHECK_EQUAL(failing, NONE);
    prepare(MEM_CREATE);
    use_buffer();
    CHECK_EQUAL(failing, NONE);
}

static enum step wanted;

static void missing_function_fails_only_what_uses_it(void)
{
    char line[100];

    lookup = all_but_hidden;
    prepare(MEM_CREATE);
    const char *log = log_of(use_buffer, "4");
    if (failing != wanted)
        fprintf(stderr, "without %s:\n%s", hidden, log);
    CHECK_EQUAL(failing, wanted);
    snprintf(line, sizeof(line), "libcuda has no %s:", hidden);
    if (wanted == NONE)
        CHECK_NOT_LOGGED(log, line);
    else
        CHECK_LOGGED(log, line);
}

/* A child opens the driver, and stores here which backend it got, and how many GPUs there are. If this process opened
   the driver, later children would inherit the library's pointers to functions of libcuda, and look up none. */
static struct {
    int uses_dmabuf, gpus;
} *found;

static void look(void)
{
    gdr_t g = open_driver();

    found->uses_dmabuf = uses_dmabuf(g);
    CHECK_OK(gdr_close(g));
    CUDA(cuInit(0));
    CUDA(cuDeviceGetCount(&found->gpus));
}

static enum step step_that_needs(const char *name)
{
    static const char *const at_open[] = {"cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute"};

    for (size_t i = 0; i < sizeof(at_open) / sizeof(at_open[0]); i++)
        if (strcmp(name, at_open[i]) == 0)
            return OPEN;
    if (strcmp(name, "cuPointerGetAttribute") == 0 && found->gpus == 1)
        return NONE; /* with one GPU, the library need not ask which GPU has the memory */
    return strncmp(name, "cuGetError", 10) == 0 ? NONE : PIN;
}

int main(void)
{
    static const char *const others[] = {
        "cuCtxGetDevice", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemFreeAsync", "cuMemHostAlloc", "cuMemFreeHost",
        "cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemHostGetDevicePointer_v2", "cuStreamCreate",
        "cuStreamDestroy_v2", "cuStreamQuery", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
        "cuThreadExchangeStreamCaptureMode",
    };

    found = mmap(NULL, sizeof(*found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(found != MAP_FAILED);
    in_child(look);
    if (!found->uses_dmabuf)
        waive("gdr_open chose gdrdrv");

    in_child(what_nvidias_library_looks_up_is_enough);
    for (size_t i = 0; i < NEEDED; i++) {
        hidden = needed[i];
        wanted = step_that_needs(hidden);
        in_child(missing_function_fails_only_what_uses_it);
    }
    wanted = NONE;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        hidden = others[i];
        in_child(missing_function_fails_only_what_uses_it);
    }
    return passed("dmabuf_functions");
}
