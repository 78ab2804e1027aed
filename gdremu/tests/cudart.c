/* Tests of the CUDA runtime. The program is linked with NVIDIA's libcudart, whose symbols have versions. */
#define _GNU_SOURCE
#include "cuda_values.h"
#include "tests.h"

#include <dlfcn.h>
#include <stdatomic.h>

#define CU_UUID_HAS_BEEN_DEFINED /* by cuda_driver.h */
#include <cuda_runtime_api.h>

#define CUDART(call) CHECK_EQUAL(call, cudaSuccess)

/* Calls a function, and returns the value that it stores through its pointer. */
static int value_of(cudaError_t (*function)(int *))
{
    int value = -7;

    CUDART(function(&value));
    return value;
}

static size_t memory_left(void)
{
    size_t free_bytes, total;

    CUDART(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

TEST(devices)
{
    int value, least, greatest;
    CUcontext context;
    char pci_id[32];

    CHECK_EQUAL(value_of(cudaDriverGetVersion), 13000);
    CHECK_EQUAL(value_of(cudaRuntimeGetVersion), CUDART_VERSION);
    CHECK_EQUAL(value_of(cudaGetDeviceCount), 2);
    CHECK_EQUAL(value_of(cudaGetDevice), 0);
    CHECK_EQUAL(cudaSetDevice(2), cudaErrorInvalidDevice);
    CUDART(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync | cudaDeviceMapHost));
    CHECK_EQUAL(cudaSetDeviceFlags(3), cudaErrorInvalidValue);
    CUDART(cudaSetDevice(1));
    CHECK_EQUAL(value_of(cudaGetDevice), 1);
    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuCtxSetCurrent(context));
    CHECK_EQUAL(value_of(cudaGetDevice), 0);
    CUDART(cudaDeviceGetAttribute(&value, 75, 0));
    CHECK_EQUAL(value, 9);
    CUDART(cudaDeviceGetPCIBusId(pci_id, sizeof(pci_id), 1));
    CHECK_STRING(pci_id, "0000:2B:00.0");
    CUDART(cudaDeviceGetByPCIBusId(&value, pci_id));
    CHECK_EQUAL(value, 1);
    CUDART(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0 && greatest < 0);
    CUDART(cudaDeviceCanAccessPeer(&value, 0, 1));
    CHECK_EQUAL(value, 1);
}

/* The runtime returns the function of the CUDA version that the program was built for. 13.0 changed cuCtxGetDevice. */
TEST(driver_entry_points)
{
    const char *name = CUDART_VERSION < 13000 ? "cuCtxGetDevice" : "cuCtxGetDevice_v2";
    cudaError_t (*entry_point)(const char *, void **, unsigned long long, int *);
    void *function = NULL, *by_version = NULL;
    int status = -1;

    *(void **)&entry_point = dlsym(RTLD_DEFAULT, "cudaGetDriverEntryPoint"); /* CUDA 13 does not declare it. */
    CUDART(entry_point("cuCtxGetDevice", &function, 0, &status));
    CHECK(status == 0 && function != NULL && function == dlsym(RTLD_DEFAULT, name));
    CUDART(cudaGetDriverEntryPointByVersion("cuCtxGetDevice", &by_version, 12000, 0, NULL));
    CHECK_EQUAL(by_version, dlsym(RTLD_DEFAULT, "cuCtxGetDevice"));
}

/* After each reset of the primary context by the driver API, the runtime makes the context again, as on an H200. */
TEST(reset_by_the_driver)
{
    CUcontext context;
    void *buffer;

    CUDART(cudaSetDevice(0));
    CUDART(cudaMalloc(&buffer, 64));
    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuDevicePrimaryCtxReset(0));
    CUDA(cuDevicePrimaryCtxRelease(0));
    CUDART(cudaSetDevice(0));
    CUDART(cudaMalloc(&buffer, 64));
    CUDA(cuDevicePrimaryCtxReset(0));
    CUDART(cudaMalloc(&buffer, 64));
}

TEST(properties)
{
    struct {
        struct cudaDeviceProp properties;
        unsigned char behind;
    } got;
    const struct cudaDeviceProp *properties = &got.properties;

    memset(&got, 0xee, sizeof(got));
    CUDART(cudaGetDeviceProperties(&got.properties, 0));
    CHECK_STRING(properties->name, "gdremu GPU");
    CHECK_EQUAL(properties->totalGlobalMem, 16ul << 30);
    CHECK(properties->major == 9 && properties->warpSize == 32 && properties->maxThreadsPerBlock == 1024);
    CHECK(properties->multiProcessorCount == 132 && properties->l2CacheSize == 60 << 20);
    CHECK(properties->canMapHostMemory && properties->unifiedAddressing && properties->hostRegisterSupported);
    CHECK(properties->sharedMemPerBlockOptin == 227 << 10 && properties->maxThreadsPerMultiProcessor == 2048);
    CHECK(properties->gpuDirectRDMASupported && properties->clusterLaunch);
    CHECK_EQUAL(((const unsigned char *)properties)[sizeof(*properties) - 1], 0);
    CHECK_EQUAL(got.behind, 0xee);
    CHECK_EQUAL(cudaGetDeviceProperties(&got.properties, 5), cudaErrorInvalidDevice);
}

TEST(memory)
{
    size_t before = memory_left();
    void *buffer, *none = &before, *host, *seen;

    CUDART(cudaMalloc(&buffer, 2 << 20));
    CHECK_EQUAL(memory_left(), before - (2 << 20));
    CUDART(cudaFree(buffer));
    CHECK_EQUAL(cudaFree(buffer), cudaErrorInvalidValue);
    CUDART(cudaMalloc(&none, 0));
    CHECK(none == NULL);
    none = &before;
    CUDART(cudaMallocManaged(&none, 0, cudaMemAttachGlobal));
    CHECK(none == NULL);
    CUDART(cudaMallocHost(&host, 100));
    CUDART(cudaHostGetDevicePointer(&seen, (char *)host + 5, 0));
    CHECK_EQUAL(seen, (char *)host + 5);
    CUDART(cudaFreeHost(host));
    CUDART(cudaMalloc(&buffer, 100));
    CUDART(cudaDeviceReset());
    CHECK_EQUAL(memory_left(), before);
}

TEST(pointers)
{
    struct cudaPointerAttributes attributes;
    void *device, *host, *managed;
    char mine;

    CUDART(cudaSetDevice(1));
    CUDART(cudaMalloc(&device, 100));
    CUDART(cudaMallocHost(&host, 100));
    CUDART(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal));
    const struct {
        void *address;
        int type, device, has_device, has_host;
    } wanted[] = {{device, 2, 1, 1, 0}, {host, 1, 1, 1, 1}, {managed, 3, 1, 1, 1}, {&mine, 0, -2, 0, 1}};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        CUDART(cudaPointerGetAttributes(&attributes, wanted[i].address));
        CHECK_EQUAL(attributes.type, wanted[i].type);
        CHECK_EQUAL(attributes.device, wanted[i].device);
        CHECK_EQUAL(attributes.devicePointer, (wanted[i].has_device ? wanted[i].address : NULL));
        CHECK_EQUAL(attributes.hostPointer, (wanted[i].has_host ? wanted[i].address : NULL));
    }
    CHECK_EQUAL(cudaGetLastError(), 0);
}

TEST(copies)
{
    char out[] = "from the host", in[sizeof(out)] = "";
    void *buffer, *other;

    CUDART(cudaMalloc(&buffer, sizeof(out)));
    CUDART(cudaMalloc(&other, sizeof(out)));
    CUDART(cudaMemcpy(other, out, sizeof(out), cudaMemcpyHostToDevice));
    CUDART(cudaMemcpyPeer(buffer, 0, other, 0, sizeof(out)));
    CUDART(cudaMemset(buffer, 'x', 4));
    CUDART(cudaMemcpy(in, buffer, sizeof(out), cudaMemcpyDeviceToHost));
    CHECK_STRING(in, "xxxx the host");
    CHECK_EQUAL(cudaMemcpy(in, buffer, sizeof(out), 5), cudaErrorInvalidMemcpyDirection);
    const enum cudaMemcpyKind wrong[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice};
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(cudaMemcpy(in, out, sizeof(out), wrong[i]), cudaErrorInvalidValue);
        CHECK_EQUAL(cudaMemcpyAsync(in, out, sizeof(out), wrong[i], NULL), cudaErrorInvalidValue);
    }
    CUDART(cudaMemcpy(in, out, sizeof(out), cudaMemcpyDefault));
    CHECK_STRING(in, out);
}

static atomic_int released;

static void wait_until_released(void *unused)
{
    (void)unused;
    while (!released)
        usleep(1000);
}

/* cudaErrorNotReady, which reports unfinished work, does not become the thread's last error. */
TEST(streams)
{
    cudaStream_t stream;
    cudaEvent_t start, event;
    float milliseconds = -1;
    void *buffer;

    CUDART(cudaStreamCreate(&stream));
    CUDART(cudaEventCreate(&start));
    CUDART(cudaEventRecord(start, stream));
    CUDART(cudaStreamDestroy(stream));
    CUDART(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    CUDART(cudaStreamWaitEvent(stream, start, 0));
    CUDART(cudaEventCreateWithFlags(&event, cudaEventBlockingSync));
    CUDART(cudaMallocAsync(&buffer, 4, stream));
    CUDART(cudaLaunchHostFunc(stream, wait_until_released, NULL));
    CUDART(cudaMemsetAsync(buffer, 'y', 4, stream));
    CUDART(cudaFreeAsync(buffer, stream));
    CUDART(cudaEventRecord(event, stream));
    CHECK_EQUAL(cudaEventQuery(event), cudaErrorNotReady);
    CHECK_EQUAL(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK_EQUAL(cudaPeekAtLastError(), 0);
    released = 1;
    CUDART(cudaEventSynchronize(event));
    CUDART(cudaEventElapsedTime(&milliseconds, start, event));
    CHECK(milliseconds > 0);
    CUDART(cudaStreamSynchronize(stream));
    CUDART(cudaStreamDestroy(stream));
    CHECK_EQUAL(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
    CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

/* Loads the CUDA runtime by the file name without a version, which fits programs of every CUDA version. */
TEST(loaded)
{
    void *runtime = dlopen("libcudart.so", RTLD_NOW);
    cudaError_t (*get_device_count)(int *);

    CHECK(runtime != NULL);
    *(void **)&get_device_count = dlsym(runtime, "cudaGetDeviceCount");
    CHECK(get_device_count != NULL);
    CHECK_EQUAL(value_of(get_device_count), 2);
    CHECK_EQUAL(dlclose(runtime), 0);
}

TEST(errors)
{
    void *symbol;

    CHECK_EQUAL(cudaGetLastError(), 0);
    CHECK_EQUAL(cudaSetDevice(9), cudaErrorInvalidDevice);
    CHECK_EQUAL(cudaPeekAtLastError(), cudaErrorInvalidDevice);
    CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidDevice);
    CHECK_EQUAL(cudaGetLastError(), 0);
    CHECK_STRING(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
    CHECK_STRING(cudaGetErrorString(0), "no error");
    CHECK_STRING(cudaGetErrorName(12345), "unrecognized error code");
    CHECK_EQUAL(cudaGetSymbolAddress(&symbol, "no symbol"), cudaErrorInvalidSymbol);
    CHECK_STRING(cudaGetErrorString(cudaGetLastError()), "invalid device symbol");
}

/* Each thread has its own current GPU and its own last error. */
static void *free_in_thread(void *buffer)
{
    CHECK_EQUAL(cudaGetLastError(), 0);
    CHECK_EQUAL(value_of(cudaGetDevice), 0);
    CUDART(cudaFree(buffer));
    return NULL;
}

TEST(threads)
{
    void *buffer;

    CUDART(cudaSetDevice(1));
    CUDART(cudaMalloc(&buffer, 100));
    CHECK_EQUAL(cudaSetDevice(9), cudaErrorInvalidDevice);
    in_thread(free_in_thread, buffer);
    CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidDevice);
}
