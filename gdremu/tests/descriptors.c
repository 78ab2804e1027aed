/*
 * Programs that have no descriptor left. "before" is from before their first call of CUDA, "after" once GPU memory
 * is pinned and mapped. Calls then succeed or fail, and succeed again with free descriptors.
 */
#define _GNU_SOURCE

#include "cuda_values.h"

#include "kit/driver.h"

#include <sys/resource.h>

#define SIZE (2ul << 20)
#define CUDA_ERROR_OPERATING_SYSTEM 304

/* All descriptors of the process except the standard streams. */
static int held[1024], holds;

static void hold_all(void)
{
    const struct rlimit few = {1024, 1024};

    CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    while ((held[holds] = dup(2)) >= 0)
        holds++;
    CHECK_EQUAL(errno, EMFILE);
}

static void free_all(void)
{
    while (holds > 0)
        close(held[--holds]);
}

static CUresult allocate_and_use(void)
{
    char out[] = "written", in[sizeof(out)] = "";
    CUdeviceptr buffer;
    CUresult result = cuMemAlloc(&buffer, SIZE);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemcpyHtoD(buffer, out, sizeof(out));
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoH(in, buffer, sizeof(in));
    if (result == CUDA_SUCCESS)
        result = cuMemsetD8(buffer, 7, SIZE);
    if (result == CUDA_SUCCESS)
        CHECK_STRING(in, out);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
    return result;
}

static CUresult export(CUdeviceptr buffer)
{
    int fd = -1;
    CUresult result = cuMemGetHandleForAddressRange(&fd, buffer, SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

    if (result == CUDA_SUCCESS)
        close(fd);
    return result;
}

static CUresult host_memory(void)
{
    void *host;
    CUresult result = cuMemHostAlloc(&host, SIZE, 0);

    return result == CUDA_SUCCESS ? cuMemFreeHost(host) : result;
}

static CUresult stream(void)
{
    CUstream stream;
    CUresult result = cuStreamCreate(&stream, 0);

    return result == CUDA_SUCCESS ? cuStreamDestroy(stream) : result;
}

static void before(void)
{
    hold_all();
    CHECK_EQUAL(open(GDRDRV_DEVICE, O_RDWR), -1);
    CHECK_EQUAL(errno, EMFILE);
    CHECK(fopen("/proc/driver/gdrdrv/params", "r") == NULL);
    CHECK_EQUAL(errno, EMFILE);
    gpu_start(0);
    CHECK_EQUAL(allocate_and_use(), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(host_memory(), CUDA_SUCCESS);
    CHECK_EQUAL(stream(), CUDA_SUCCESS);
    free_all();
    CHECK_EQUAL(allocate_and_use(), CUDA_SUCCESS);
    int fd = driver_open();
    close(fd);
}

static void after(int is_traditional)
{
    uint64_t handle;
    CUdeviceptr buffer;

    gpu_start(0);
    CHECK_EQUAL(cuMemAlloc(&buffer, SIZE), CUDA_SUCCESS);
    uint64_t page = buffer;
    int fd = driver_open();
    CHECK_OK(pin(fd, page, SIZE, &handle));
    unsigned char *va = mapped(fd, handle, SIZE);
    handle_faults();
    hold_all();
    CHECK_EQUAL(allocate_and_use(), CUDA_SUCCESS);
    CHECK_EQUAL(host_memory(), CUDA_SUCCESS);
    CHECK_EQUAL(export(buffer), CUDA_ERROR_OPERATING_SYSTEM);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
    if (is_traditional)
        CHECK(touch(va, &(unsigned char){0}) != 0);
    else
        CHECK_EQUAL(touch(va, &(unsigned char){0}), 0);
    CHECK_OK(unpin(fd, handle));
    CHECK(touch(va, &(unsigned char){0}) != 0);
    CHECK_EQUAL(munmap(va, SIZE), 0);
    CHECK_EQUAL(close(fd), 0);
    free_all();
    CHECK_EQUAL(allocate_and_use(), CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "before") == 0)
        before();
    else
        after(argc > 2);
    return passed("descriptors");
}
