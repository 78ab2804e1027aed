/* The CUDA runtime, linked as programs are: with NVIDIA's libcudart, whose symbols have versions. */
#define _GNU_SOURCE
#include "cuda_start.h"
#include "tests.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

typedef int cudaError_t;
typedef struct stream *cudaStream_t;
typedef struct event *cudaEvent_t;

struct attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDriverGetVersion(int *version);
#ifdef CUDA_12
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif
cudaError_t cudaGetDeviceProperties(void *properties, int device);
cudaError_t cudaMalloc(void **address, size_t size);
cudaError_t cudaMallocManaged(void **address, size_t size, unsigned int flags);
cudaError_t cudaMallocAsync(void **address, size_t size, cudaStream_t stream);
cudaError_t cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height);
cudaError_t cudaFree(void *address);
cudaError_t cudaFreeAsync(void *address, cudaStream_t stream);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total);
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, cudaStream_t stream);
cudaError_t cudaMemset(void *address, int value, size_t size);
cudaError_t cudaMemsetAsync(void *address, int value, size_t size, cudaStream_t stream);
cudaError_t cudaHostAlloc(void **address, size_t size, unsigned int flags);
cudaError_t cudaHostRegister(void *address, size_t size, unsigned int flags);
cudaError_t cudaHostUnregister(void *address);
cudaError_t cudaFreeHost(void *address);
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags);
cudaError_t cudaHostGetFlags(unsigned int *flags, void *host);
cudaError_t cudaPointerGetAttributes(struct attributes *attributes, const void *address);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *time, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaGetSymbolAddress(void **address, const void *symbol);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);

enum { INVALID_VALUE = 1, INVALID_SYMBOL = 13, INVALID_DIRECTION = 21, INVALID_DEVICE = 101, NOT_READY = 600 };
enum { TO_DEVICE = 1, TO_HOST = 2, DEFAULT = 4 };

/* What a function returns through a pointer. */
static int value_of(cudaError_t (*function)(int *))
{
    int value = -7;

    CHECK_CUDA(function(&value));
    return value;
}

static size_t memory_left(void)
{
    size_t free_bytes, total;

    CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

TEST(devices)
{
    int device = 7, value;
    char pci_id[32];

    CHECK_EQUAL(value_of(cudaDriverGetVersion), 13000);
    CHECK_EQUAL(value_of(cudaRuntimeGetVersion), 13000);
    CHECK_EQUAL(value_of(cudaGetDeviceCount), 2);
    CHECK_EQUAL(value_of(cudaGetDevice), 0);
    CHECK_EQUAL(cudaSetDevice(2), INVALID_DEVICE);
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_EQUAL(value_of(cudaGetDevice), 1);
    CHECK_CUDA(cudaDeviceGetAttribute(&value, 75, 0));
    CHECK_EQUAL(value, 9);
    CHECK_CUDA(cudaDeviceGetPCIBusId(pci_id, sizeof(pci_id), 1));
    CHECK_STRING(pci_id, "0000:2B:00.0");
    CHECK_CUDA(cudaDeviceGetByPCIBusId(&device, pci_id));
    CHECK_EQUAL(device, 1);
    CHECK_CUDA(cudaDeviceCanAccessPeer(&value, 0, 1));
    CHECK_EQUAL(value, 1);
    CHECK_CUDA(cudaDeviceEnablePeerAccess(0, 0));
    CHECK_EQUAL(cudaDeviceEnablePeerAccess(0, 0), 704);
    CHECK_CUDA(cudaDeviceDisablePeerAccess(0));
    CHECK_EQUAL(cudaDeviceDisablePeerAccess(0), 705);
}

/* As on an H200: the runtime makes the context again, and every retain has its release. */
TEST(reset_by_the_driver)
{
    CUcontext context;
    void *buffer;

    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaMalloc(&buffer, 64));
    CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CUDA(cuDevicePrimaryCtxReset(0));
    CHECK_CUDA(cuDevicePrimaryCtxRelease(0));
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaMalloc(&buffer, 64));
    CHECK_CUDA(cuDevicePrimaryCtxReset(0));
    CHECK_CUDA(cudaMalloc(&buffer, 64));
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cuDevicePrimaryCtxReset(1));
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaDeviceEnablePeerAccess(1, 0));
}

TEST(properties)
{
    enum { AT = 64 };
#ifdef CUDA_12
    enum { END = 1032, PROCESSORS = 388 };
#else
    enum { END = 1008, PROCESSORS = 384 };
#endif
    unsigned char bytes[AT + END + 1];
    size_t memory;
    int value;

    memset(bytes, 0xee, sizeof(bytes));
    CHECK_CUDA(cudaGetDeviceProperties(bytes + AT, 0));
    CHECK_STRING((char *)bytes + AT, "gdremu GPU");
    memcpy(&memory, bytes + AT + 288, sizeof(memory));
    CHECK_EQUAL(memory, 16ul << 30);
    memcpy(&value, bytes + AT + 360, sizeof(value));
    CHECK_EQUAL(value, 9);
    memcpy(&value, bytes + AT + PROCESSORS, sizeof(value));
    CHECK_EQUAL(value, 132);
    CHECK_EQUAL(bytes[AT - 1], 0xee);
    CHECK_EQUAL(bytes[AT + END - 1], 0);
    CHECK_EQUAL(bytes[AT + END], 0xee);
    CHECK_EQUAL(cudaGetDeviceProperties(bytes, 5), INVALID_DEVICE);
}

TEST(memory)
{
    size_t before = memory_left(), pitch;
    void *buffer, *none = &pitch;

    CHECK_CUDA(cudaMalloc(&buffer, 2 << 20));
    CHECK_EQUAL(memory_left(), before - (2 << 20));
    CHECK_CUDA(cudaFree(buffer));
    CHECK_EQUAL(memory_left(), before);
    CHECK_EQUAL(cudaFree(buffer), INVALID_VALUE);
    CHECK_CUDA(cudaFree(NULL));
    CHECK_CUDA(cudaMalloc(&none, 0));
    CHECK(none == NULL);
    CHECK_EQUAL(cudaMalloc(&buffer, (16ul << 30) + 1), 2);
    CHECK_CUDA(cudaMallocPitch(&buffer, &pitch, 100, 3));
    CHECK_EQUAL(pitch, 512);
    CHECK_CUDA(cudaDeviceReset());
    CHECK_EQUAL(memory_left(), before);
    CHECK_CUDA(cudaMalloc(&buffer, 1));
}

TEST(copies)
{
    char out[] = "from the host", in[sizeof(out)] = "";
    void *buffer;

    CHECK_CUDA(cudaMalloc(&buffer, sizeof(out)));
    CHECK_CUDA(cudaMemcpy(buffer, out, sizeof(out), TO_DEVICE));
    CHECK_CUDA(cudaMemcpy(in, buffer, sizeof(out), TO_HOST));
    CHECK_STRING(in, out);
    CHECK_CUDA(cudaMemset(buffer, 'x', 4));
    CHECK_CUDA(cudaMemcpy(in, buffer, sizeof(out), DEFAULT));
    CHECK_STRING(in, "xxxx the host");
    CHECK_EQUAL(cudaMemcpy(in, buffer, sizeof(out), 5), INVALID_DIRECTION);
    CHECK_CUDA(cudaFree(buffer));
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

    CHECK_CUDA(cudaStreamCreate(&first));
    CHECK_CUDA(cudaStreamCreate(&second));
    CHECK_CUDA(cudaEventCreate(&event));
    CHECK_CUDA(cudaEventCreate(&end));
    CHECK_CUDA(cudaLaunchHostFunc(first, wait_until_released, NULL));
    CHECK_CUDA(cudaEventRecord(event, first));
    CHECK_CUDA(cudaStreamWaitEvent(second, event, 0));
    CHECK_CUDA(cudaLaunchHostFunc(second, note_released, &was_released));
    CHECK_EQUAL(cudaEventQuery(event), NOT_READY);
    CHECK_EQUAL(cudaStreamQuery(first), NOT_READY);
    usleep(50000); /* for a second stream that does not wait */
    released = 1;
    CHECK_CUDA(cudaStreamSynchronize(second));
    CHECK_EQUAL(was_released, 1);
    CHECK_CUDA(cudaEventQuery(event));

    released = 0;
    CHECK_CUDA(cudaLaunchHostFunc(first, wait_until_released, NULL));
    CHECK_CUDA(cudaEventRecord(end, first));
    usleep(20000);
    released = 1;
    CHECK_CUDA(cudaEventSynchronize(end));
    CHECK_CUDA(cudaEventElapsedTime(&time, event, end));
    CHECK(time >= 20); /* milliseconds */
}

TEST(streams)
{
    char out[] = "in a stream", in[sizeof(out)] = "";
    cudaEvent_t start, end;
    cudaStream_t stream;
    float time = -1;
    void *buffer;
    int calls = 0;

    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_CUDA(cudaEventCreate(&start));
    CHECK_CUDA(cudaEventCreate(&end));
    CHECK_CUDA(cudaMallocAsync(&buffer, sizeof(out), stream));
    CHECK_CUDA(cudaEventRecord(start, stream));
    CHECK_CUDA(cudaMemcpyAsync(buffer, out, sizeof(out), TO_DEVICE, stream));
    CHECK_CUDA(cudaMemsetAsync(buffer, 'y', 2, stream));
    CHECK_CUDA(cudaMemcpyAsync(in, buffer, sizeof(out), TO_HOST, stream));
    CHECK_CUDA(cudaLaunchHostFunc(stream, count, &calls));
    CHECK_CUDA(cudaEventRecord(end, stream));
    CHECK_CUDA(cudaStreamWaitEvent(NULL, end, 0));
    CHECK_CUDA(cudaEventSynchronize(end));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_CUDA(cudaStreamQuery(stream));
    CHECK_STRING(in, "yy a stream");
    CHECK_EQUAL(calls, 1);
    CHECK_CUDA(cudaEventElapsedTime(&time, start, end));
    CHECK(time >= 0);
    CHECK_CUDA(cudaFreeAsync(buffer, stream));
    CHECK_CUDA(cudaEventDestroy(start));
    CHECK_CUDA(cudaEventDestroy(end));
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_EQUAL(cudaStreamQuery(stream), 400);
    CHECK_CUDA(cudaDeviceSynchronize());
    streams_wait_for_events();
}

TEST(pointers)
{
    struct attributes attributes;
    void *device, *host, *managed, *seen;
    unsigned int flags = 0;
    static char mine[4096], registered[4096];

    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaMalloc(&device, 100));
    CHECK_CUDA(cudaHostAlloc(&host, 100, 0));
    CHECK_CUDA(cudaMallocManaged(&managed, 100, 1));
    CHECK_CUDA(cudaHostRegister(registered, sizeof(registered), 0));
    CHECK_CUDA(cudaHostGetDevicePointer(&seen, (char *)host + 5, 0));
    CHECK(seen == (char *)host + 5);
    CHECK_CUDA(cudaHostGetFlags(&flags, host));
    CHECK_EQUAL(flags & 2, 2); /* mapped */
    const struct {
        void *address;
        int type, device, has_device, has_host;
    } wanted[] = {
        {device, 2, 1, 1, 0}, {host, 1, 1, 1, 1}, {managed, 3, 1, 1, 1}, {registered, 1, 1, 1, 1}, {mine, 0, -2, 0, 1},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        CHECK_CUDA(cudaPointerGetAttributes(&attributes, wanted[i].address));
        CHECK_EQUAL(attributes.type, wanted[i].type);
        CHECK_EQUAL(attributes.device, wanted[i].device);
        CHECK(attributes.device_pointer == (wanted[i].has_device ? wanted[i].address : NULL));
        CHECK(attributes.host_pointer == (wanted[i].has_host ? wanted[i].address : NULL));
    }
    CHECK_EQUAL(cudaGetLastError(), 0);
    CHECK_CUDA(cudaHostUnregister(registered));
    CHECK_CUDA(cudaFreeHost(host));
    CHECK_CUDA(cudaFree(managed));
    CHECK_CUDA(cudaFree(device));
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
    CHECK_EQUAL(cudaSetDevice(9), INVALID_DEVICE);
    CHECK_EQUAL(cudaPeekAtLastError(), INVALID_DEVICE);
    CHECK_EQUAL(cudaGetLastError(), INVALID_DEVICE);
    CHECK_EQUAL(cudaGetLastError(), 0);
    CHECK_STRING(cudaGetErrorName(INVALID_DEVICE), "cudaErrorInvalidDevice");
    CHECK_STRING(cudaGetErrorName(716), "cudaErrorMisalignedAddress");
    CHECK_STRING(cudaGetErrorName(720), "cudaErrorCooperativeLaunchTooLarge");
    CHECK_STRING(cudaGetErrorString(INVALID_DEVICE), "invalid device ordinal");
    CHECK_STRING(cudaGetErrorString(0), "no error");
    CHECK_STRING(cudaGetErrorName(12345), "unrecognized error code");
    CHECK_EQUAL(cudaGetSymbolAddress(&symbol, "no symbol"), INVALID_SYMBOL);
    CHECK_STRING(cudaGetErrorString(cudaGetLastError()), "invalid device symbol");
}

/* Each thread has its own GPU and its own last error. */
static void *in_thread(void *buffer)
{
    CHECK_EQUAL(cudaGetLastError(), 0);
    CHECK_EQUAL(value_of(cudaGetDevice), 0);
    CHECK_CUDA(cudaFree(buffer));
    return NULL;
}

TEST(threads)
{
    pthread_t thread;
    void *buffer;

    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaMalloc(&buffer, 100));
    CHECK_EQUAL(cudaSetDevice(9), INVALID_DEVICE);
    CHECK_EQUAL(pthread_create(&thread, NULL, in_thread, buffer), 0);
    CHECK_EQUAL(pthread_join(thread, NULL), 0);
    CHECK_EQUAL(cudaGetLastError(), INVALID_DEVICE);
}
