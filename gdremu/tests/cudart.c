/* The CUDA runtime, linked as programs are, with NVIDIA's libcudart, whose symbols have versions. */
#define _GNU_SOURCE
#include "cuda_values.h"
#include "tests.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#define CU_UUID_HAS_BEEN_DEFINED /* by cuda_driver.h */
#include <cuda_runtime_api.h>

/* The value that a function returns through a pointer. */
static int value_of(cudaError_t (*function)(int *))
{
    int value = -7;

    CUDA(function(&value));
    return value;
}

static size_t memory_left(void)
{
    size_t free_bytes, total;

    CUDA(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

TEST(devices)
{
    int device = 7, value;
    unsigned int flags;
    CUcontext context;
    char pci_id[32];

    CHECK_EQUAL(value_of(cudaDriverGetVersion), 13000);
    CHECK_EQUAL(value_of(cudaRuntimeGetVersion), CUDART_VERSION);
    CHECK_EQUAL(value_of(cudaGetDeviceCount), 2);
    CHECK_EQUAL(value_of(cudaGetDevice), 0);
    CHECK_EQUAL(cudaSetDevice(2), cudaErrorInvalidDevice);
    CUDA(cudaSetDevice(1));
    CHECK_EQUAL(value_of(cudaGetDevice), 1);
    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuCtxSetCurrent(context));
    CHECK_EQUAL(value_of(cudaGetDevice), 0);
    CUDA(cudaSetDevice(1));
    CUDA(cudaSetDeviceFlags(cudaDeviceScheduleYield));
    CUDA(cudaGetDeviceFlags(&flags));
    CHECK_EQUAL(flags & cudaDeviceScheduleMask, cudaDeviceScheduleYield);
    CUDA(cudaDeviceGetAttribute(&value, 75, 0));
    CHECK_EQUAL(value, 9);
    CUDA(cudaDeviceGetPCIBusId(pci_id, sizeof(pci_id), 1));
    CHECK_STRING(pci_id, "0000:2B:00.0");
    CUDA(cudaDeviceGetByPCIBusId(&device, pci_id));
    CHECK_EQUAL(device, 1);
    CUDA(cudaDeviceCanAccessPeer(&value, 0, 1));
    CHECK_EQUAL(value, 1);
    CUDA(cudaDeviceEnablePeerAccess(0, 0));
    CHECK_EQUAL(cudaDeviceEnablePeerAccess(0, 0), 704);
    CUDA(cudaDeviceDisablePeerAccess(0));
    CHECK_EQUAL(cudaDeviceDisablePeerAccess(0), 705);
}

/* Functions of the driver are those of the program's CUDA version, and this one has another argument since
   13.0. */
TEST(driver_entry_points)
{
    const char *name = CUDART_VERSION < 13000 ? "cuCtxGetDevice" : "cuCtxGetDevice_v2";
    cudaError_t (*entry_point)(const char *, void **, unsigned long long, int *);
    void *function = NULL;
    int status = -1;

    *(void **)&entry_point = dlsym(RTLD_DEFAULT, "cudaGetDriverEntryPoint");
    CHECK(entry_point != NULL);
    CUDA(entry_point("cuCtxGetDevice", &function, 0, &status));
    CHECK_EQUAL(status, 0);
    CHECK(function != NULL && function == dlsym(RTLD_DEFAULT, name));
}

/* As on an H200, the runtime makes the context again, and every retain has its release. */
TEST(reset_by_the_driver)
{
    CUcontext context;
    void *buffer;

    CUDA(cudaSetDevice(0));
    CUDA(cudaMalloc(&buffer, 64));
    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuDevicePrimaryCtxReset(0));
    CUDA(cuDevicePrimaryCtxRelease(0));
    CUDA(cudaSetDevice(0));
    CUDA(cudaMalloc(&buffer, 64));
    CUDA(cuDevicePrimaryCtxReset(0));
    CUDA(cudaMalloc(&buffer, 64));
    CUDA(cudaSetDevice(1));
    CUDA(cuDevicePrimaryCtxReset(1));
    CUDA(cudaSetDevice(0));
    CUDA(cudaDeviceEnablePeerAccess(1, 0));
}

TEST(properties)
{
    struct {
        struct cudaDeviceProp properties;
        unsigned char behind;
    } got;
    const struct cudaDeviceProp *properties = &got.properties;

    memset(&got, 0xee, sizeof(got));
    CUDA(cudaGetDeviceProperties(&got.properties, 0));
    CHECK_STRING(properties->name, "gdremu GPU");
    CHECK_EQUAL(properties->totalGlobalMem, 16ul << 30);
    CHECK(properties->major == 9 && properties->warpSize == 32 && properties->maxThreadsPerBlock == 1024);
    CHECK_EQUAL(properties->multiProcessorCount, 132);
    CHECK(properties->canMapHostMemory && properties->unifiedAddressing && properties->hostRegisterSupported);
    CHECK_EQUAL(properties->sharedMemPerBlockOptin, 227 << 10);
    CHECK_EQUAL(properties->gpuDirectRDMASupported, 1);
    CHECK(properties->maxThreadsPerMultiProcessor == 2048 && properties->l2CacheSize == 60 << 20);
    CHECK_EQUAL(properties->clusterLaunch, 1);
    CHECK_EQUAL(((const unsigned char *)properties)[sizeof(*properties) - 1], 0);
    CHECK_EQUAL(got.behind, 0xee);
    CHECK_EQUAL(cudaGetDeviceProperties(&got.properties, 5), cudaErrorInvalidDevice);
}

TEST(memory)
{
    size_t before = memory_left(), pitch;
    void *buffer, *none = &pitch;

    CUDA(cudaMalloc(&buffer, 2 << 20));
    CHECK_EQUAL(memory_left(), before - (2 << 20));
    CUDA(cudaFree(buffer));
    CHECK_EQUAL(memory_left(), before);
    CHECK_EQUAL(cudaFree(buffer), cudaErrorInvalidValue);
    CUDA(cudaFree(NULL));
    CUDA(cudaMalloc(&none, 0));
    CHECK(none == NULL);
    CUDA(cudaMallocManaged(&none, 0, cudaMemAttachGlobal));
    CHECK(none == NULL);
    CUDA(cudaMallocPitch(&none, &pitch, 0, 3));
    CHECK(none == NULL && pitch == 0);
    CHECK_EQUAL(cudaMalloc(&buffer, (16ul << 30) + 1), 2);
    CUDA(cudaMallocPitch(&buffer, &pitch, 100, 3));
    CHECK_EQUAL(pitch, 512);
    CUDA(cudaDeviceReset());
    CHECK_EQUAL(memory_left(), before);
    CUDA(cudaMalloc(&buffer, 1));
}

TEST(copies)
{
    char out[] = "from the host", in[sizeof(out)] = "";
    void *buffer;

    CUDA(cudaMalloc(&buffer, sizeof(out)));
    CUDA(cudaMemcpy(buffer, out, sizeof(out), cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(in, buffer, sizeof(out), cudaMemcpyDeviceToHost));
    CHECK_STRING(in, out);
    CUDA(cudaMemset(buffer, 'x', 4));
    CUDA(cudaMemcpy(in, buffer, sizeof(out), cudaMemcpyDefault));
    CHECK_STRING(in, "xxxx the host");
    CHECK_EQUAL(cudaMemcpy(in, buffer, sizeof(out), 5), cudaErrorInvalidMemcpyDirection);
    CHECK_EQUAL(cudaMemcpy(in, out, sizeof(out), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQUAL(cudaMemcpy(in, out, sizeof(out), cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    CHECK_EQUAL(cudaMemcpyAsync(buffer, out, sizeof(out), cudaMemcpyDeviceToDevice, NULL), cudaErrorInvalidValue);
    CUDA(cudaFree(buffer));
}

static void count(void *number)
{
    ++*(int *)number;
}

static atomic_int released;

static void wait_until_released(void *unused)
{
    (void)unused;
    while (!released)
        usleep(1000);
}

static void note_released(void *was_released)
{
    *(int *)was_released = released;
}

/* The event stays in a stream until `released`; the other stream must not come before. */
static void streams_wait_for_events(void)
{
    cudaStream_t first, second;
    cudaEvent_t event, end;
    int was_released = -1;
    float time = 0;

    CUDA(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&second, cudaStreamDefault));
    CUDA(cudaEventCreate(&event));
    CUDA(cudaEventCreate(&end));
    CUDA(cudaLaunchHostFunc(first, wait_until_released, NULL));
    CUDA(cudaStreamQuery(NULL));
    CUDA(cudaEventRecord(event, first));
    CUDA(cudaStreamWaitEvent(second, event, 0));
    CUDA(cudaLaunchHostFunc(second, note_released, &was_released));
    CHECK_EQUAL(cudaEventQuery(event), cudaErrorNotReady);
    CHECK_EQUAL(cudaStreamQuery(first), cudaErrorNotReady);
    CHECK_EQUAL(cudaPeekAtLastError(), 0);
    CHECK_EQUAL(cudaStreamQuery(NULL), cudaErrorNotReady); /* It waits for the second stream. */
    usleep(50000); /* for a second stream that does not wait */
    released = 1;
    CUDA(cudaStreamSynchronize(second));
    CHECK_EQUAL(was_released, 1);
    CUDA(cudaEventQuery(event));

    released = 0;
    CUDA(cudaLaunchHostFunc(first, wait_until_released, NULL));
    CUDA(cudaEventRecord(end, first));
    usleep(20000);
    released = 1;
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaEventElapsedTime(&time, event, end));
    CHECK(time >= 20); /* milliseconds */
}

TEST(streams)
{
    char out[] = "in a stream", in[sizeof(out)] = "";
    cudaEvent_t start, end, untimed;
    cudaStream_t stream;
    float time = -1;
    void *buffer;
    int calls = 0;

    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreate(&end));
    CUDA(cudaMallocAsync(&buffer, sizeof(out), stream));
    CUDA(cudaEventRecord(start, stream));
    CUDA(cudaMemcpyAsync(buffer, out, sizeof(out), cudaMemcpyHostToDevice, stream));
    CUDA(cudaMemsetAsync(buffer, 'y', 2, stream));
    CUDA(cudaMemcpyAsync(in, buffer, sizeof(out), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaLaunchHostFunc(stream, count, &calls));
    CUDA(cudaEventRecord(end, stream));
    CUDA(cudaStreamWaitEvent(NULL, end, 0));
    CUDA(cudaEventSynchronize(end));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamQuery(stream));
    CHECK_STRING(in, "yy a stream");
    CHECK_EQUAL(calls, 1);
    CUDA(cudaEventElapsedTime(&time, start, end));
    CHECK(time >= 0);
    CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    CUDA(cudaEventRecord(untimed, stream));
    CHECK_EQUAL(cudaEventElapsedTime(&time, start, untimed), cudaErrorInvalidResourceHandle);
    CUDA(cudaFreeAsync(buffer, stream));
    CUDA(cudaEventDestroy(start));
    CUDA(cudaEventDestroy(end));
    CUDA(cudaStreamDestroy(stream));
    CHECK_EQUAL(cudaStreamQuery(stream), 400);
    CHECK_EQUAL(cudaGetLastError(), 400);
    CUDA(cudaDeviceSynchronize());
    streams_wait_for_events();
}

TEST(pointers)
{
    struct cudaPointerAttributes attributes;
    void *device, *host, *pinned, *managed, *seen;
    unsigned int flags = 0;
    static char mine[4096], registered[4096];

    CUDA(cudaSetDevice(1));
    CUDA(cudaMalloc(&device, 100));
    CUDA(cudaHostAlloc(&host, 100, 0));
    CUDA(cudaMallocHost(&pinned, 100));
    CUDA(cudaMallocManaged(&managed, 100, 1));
    CUDA(cudaHostRegister(registered, sizeof(registered), 0));
    CUDA(cudaHostGetDevicePointer(&seen, (char *)host + 5, 0));
    CHECK(seen == (char *)host + 5);
    CUDA(cudaHostGetFlags(&flags, host));
    CHECK_EQUAL(flags & 2, 2); /* mapped */
    const struct {
        void *address;
        int type, device, has_device, has_host;
    } wanted[] = {
        {device, 2, 1, 1, 0},  {host, 1, 1, 1, 1},       {pinned, 1, 1, 1, 1},
        {managed, 3, 1, 1, 1}, {registered, 1, 1, 1, 1}, {mine, 0, -2, 0, 1},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        CUDA(cudaPointerGetAttributes(&attributes, wanted[i].address));
        CHECK_EQUAL(attributes.type, wanted[i].type);
        CHECK_EQUAL(attributes.device, wanted[i].device);
        CHECK(attributes.devicePointer == (wanted[i].has_device ? wanted[i].address : NULL));
        CHECK(attributes.hostPointer == (wanted[i].has_host ? wanted[i].address : NULL));
    }
    CHECK_EQUAL(cudaGetLastError(), 0);
    CUDA(cudaHostUnregister(registered));
    CUDA(cudaFreeHost(host));
    CUDA(cudaFree(managed));
    CUDA(cudaFree(device));
}

/* By the name for programs of any version. */
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
    CHECK_STRING(cudaGetErrorName(cudaErrorMisalignedAddress), "cudaErrorMisalignedAddress");
    CHECK_STRING(cudaGetErrorName(cudaErrorCooperativeLaunchTooLarge), "cudaErrorCooperativeLaunchTooLarge");
    CHECK_STRING(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal");
    CHECK_STRING(cudaGetErrorString(0), "no error");
    CHECK_STRING(cudaGetErrorName(cudaErrorStreamCaptureUnsupported), "cudaErrorStreamCaptureUnsupported");
    CHECK_STRING(cudaGetErrorName(12345), "unrecognized error code");
    CHECK_EQUAL(cudaGetSymbolAddress(&symbol, "no symbol"), cudaErrorInvalidSymbol);
    CHECK_STRING(cudaGetErrorString(cudaGetLastError()), "invalid device symbol");
}

/* Each thread has its own GPU and its own last error. */
static void *in_thread(void *buffer)
{
    CHECK_EQUAL(cudaGetLastError(), 0);
    CHECK_EQUAL(value_of(cudaGetDevice), 0);
    CUDA(cudaFree(buffer));
    return NULL;
}

TEST(threads)
{
    pthread_t thread;
    void *buffer;

    CUDA(cudaSetDevice(1));
    CUDA(cudaMalloc(&buffer, 100));
    CHECK_EQUAL(cudaSetDevice(9), cudaErrorInvalidDevice);
    CHECK_EQUAL(pthread_create(&thread, NULL, in_thread, buffer), 0);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK_EQUAL(cudaGetLastError(), cudaErrorInvalidDevice);
}

/* Another process fills the memory whose handle it reads. */
static void fill(int from)
{
    cudaIpcMemHandle_t handle;
    void *buffer;

    CHECK_EQUAL(read(from, &handle, sizeof(handle)), sizeof(handle));
    CUDA(cudaIpcOpenMemHandle(&buffer, handle, cudaIpcMemLazyEnablePeerAccess));
    CUDA(cudaMemset(buffer, 0x5a, 1000));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaIpcCloseMemHandle(buffer));
    exit(0);
}

TEST(memory_for_other_processes)
{
    cudaIpcMemHandle_t handle;
    unsigned char bytes[1000];
    int ends[2], status;
    void *buffer;

    CHECK_EQUAL(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0)
        fill(ends[0]);
    CUDA(cudaMalloc(&buffer, sizeof(bytes)));
    CUDA(cudaMemset(buffer, 0, sizeof(bytes)));
    CUDA(cudaIpcGetMemHandle(&handle, buffer));
    CHECK_EQUAL(write(ends[1], &handle, sizeof(handle)), sizeof(handle));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CUDA(cudaMemcpy(bytes, buffer, sizeof(bytes), cudaMemcpyDeviceToHost));
    CHECK(bytes[0] == 0x5a && bytes[999] == 0x5a);
}
