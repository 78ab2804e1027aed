/*
 * Stands for aws-ofi-nccl, whose sources are in no registry, and makes its calls. As aws-ofi-nccl does, this program gets
 * all functions of the CUDA driver from the CUDA runtime, and those of libgdrapi by dlopen. It pins with FORCE_PCIE
 * where that is possible, and a thread adds to counters in GPU memory. Prints a line for each test that passes.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gdrapi.h>

#define CHECK(condition) ((condition) ? (void)0 : (printf("%s:%d: %s\n", __FILE__, __LINE__, #condition), exit(1)))

enum { COUNTERS = 64, ROUNDS = 10 };

static void *driver_function(const char *name)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;

    CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found) == cudaSuccess);
    CHECK(found == cudaDriverEntryPointSuccess && function != NULL);
    return function;
}

static void *library;

static void *library_function(const char *name)
{
    void *function = dlsym(library, name);

    CHECK(function != NULL);
    return function;
}

#define DRIVER(name) ((__typeof__(&name))driver_function(#name))
#define LIBRARY(name) ((__typeof__(&name))library_function(#name))

struct registration {
    gdr_t gdr;
    gdr_mh_t handle;
    volatile uint64_t *counters;
};

static void *add(void *argument)
{
    struct registration *registration = argument;

    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < COUNTERS; i++) {
            uint64_t value;
            LIBRARY(gdr_copy_from_mapping)(registration->handle, &value, (void *)&registration->counters[i], sizeof(value));
            value++;
            LIBRARY(gdr_copy_to_mapping)(registration->handle, (void *)&registration->counters[i], &value, sizeof(value));
        }
    return NULL;
}

int main(void)
{
    struct registration registration;
    int version, lib_major, lib_minor, driver_major, driver_minor, force_pcie = 0;
    uint64_t counters[COUNTERS];
    CUdeviceptr address;
    CUcontext context;
    gdr_info_t info;
    pthread_t worker;
    void *mapped;

    puts("test driver functions");
    CHECK(cudaFree(NULL) == cudaSuccess);
    CHECK(DRIVER(cuDriverGetVersion)(&version) == CUDA_SUCCESS && version >= 12000);
    CHECK(DRIVER(cuCtxGetCurrent)(&context) == CUDA_SUCCESS && context != NULL);
    puts("ok driver functions");

    puts("test registration");
    library = dlopen("libgdrapi.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    registration.gdr = LIBRARY(gdr_open)();
    CHECK(registration.gdr != NULL);
    LIBRARY(gdr_runtime_get_version)(&lib_major, &lib_minor);
    CHECK(LIBRARY(gdr_driver_get_version)(registration.gdr, &driver_major, &driver_minor) == 0);
    CHECK(cudaMalloc((void **)&address, 2 * GPU_PAGE_SIZE) == cudaSuccess);
    CUdeviceptr start = (address + GPU_PAGE_SIZE - 1) & GPU_PAGE_MASK;
    CHECK(DRIVER(cuMemsetD8)(start, 0, GPU_PAGE_SIZE) == CUDA_SUCCESS);
    if (lib_minor >= 5 && driver_minor >= 5)
        force_pcie = LIBRARY(gdr_pin_buffer_v2)(registration.gdr, start, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE,
                                                &registration.handle) == 0;
    if (!force_pcie)
        CHECK(LIBRARY(gdr_pin_buffer)(registration.gdr, start, GPU_PAGE_SIZE, 0, 0, &registration.handle) == 0);
    CHECK(LIBRARY(gdr_map)(registration.gdr, registration.handle, &mapped, GPU_PAGE_SIZE) == 0);
    CHECK(LIBRARY(gdr_get_info)(registration.gdr, registration.handle, &info) == 0);
    registration.counters = (volatile uint64_t *)((char *)mapped + (start - info.va));
    puts("ok registration");

    puts("test worker");
    CHECK(pthread_create(&worker, NULL, add, &registration) == 0 && pthread_join(worker, NULL) == 0);
    CHECK(DRIVER(cuMemcpyDtoH)(counters, start, sizeof(counters)) == CUDA_SUCCESS);
    for (int i = 0; i < COUNTERS; i++)
        CHECK(counters[i] == ROUNDS);
    puts("ok worker");

    puts("test deregistration");
    CHECK(LIBRARY(gdr_unmap)(registration.gdr, registration.handle, mapped, GPU_PAGE_SIZE) == 0);
    CHECK(LIBRARY(gdr_unpin_buffer)(registration.gdr, registration.handle) == 0);
    CHECK(LIBRARY(gdr_close)(registration.gdr) == 0);
    CHECK(cudaFree((void *)address) == cudaSuccess);
    puts("ok deregistration");
    return 0;
}
