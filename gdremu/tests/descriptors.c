/*
 * Programs that have no descriptor left. "before" is from before their first call of CUDA, "after" once GPU memory
 * is pinned and mapped. Calls then succeed or fail, and succeed again with free descriptors.
 */
#include "device.h"

#include <sys/resource.h>

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

static CUresult allocate_and_fill(void)
{
    CUdeviceptr buffer;
    CUresult result = cuMemAlloc(&buffer, ALIGNED_SIZE);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemsetD8(buffer, 7, ALIGNED_SIZE);
    CUDA(cuMemFree(buffer));
    return result;
}

static void need_no_descriptor(void)
{
    CUstream stream;
    void *host;

    CUDA(cuMemHostAlloc(&host, ALIGNED_SIZE, 0));
    CUDA(cuMemFreeHost(host));
    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuStreamDestroy(stream));
}

static void before(void)
{
    hold_all();
    CHECK_FAILS(open(GDRDRV_DEVICE, O_RDWR), EMFILE);
    gpu_start(0);
    CHECK_EQUAL(allocate_and_fill(), CUDA_ERROR_OUT_OF_MEMORY);
    need_no_descriptor();
    free_all();
    CUDA(allocate_and_fill());
    close(driver_open());
}

static void after(bool is_traditional)
{
    CUdeviceptr buffer = gpu_memory(ALIGNED_SIZE);
    int fd = driver_open(), exported;
    uint64_t handle = pinned(fd, buffer, ALIGNED_SIZE);
    unsigned char *va = mapped(fd, handle, ALIGNED_SIZE), byte;

    hold_all();
    CUDA(allocate_and_fill());
    need_no_descriptor();
    CHECK_EQUAL(cuMemGetHandleForAddressRange(&exported, buffer, ALIGNED_SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                CUDA_ERROR_OPERATING_SYSTEM);
    CUDA(cuMemFree(buffer));
    CHECK_EQUAL(touch(va, &byte) != 0, is_traditional);
    CHECK_OK(unpin(fd, handle));
    CHECK(touch(va, &byte) != 0);
    CHECK_EQUAL(munmap(va, ALIGNED_SIZE), 0);
    CHECK_EQUAL(close(fd), 0);
    free_all();
    CUDA(allocate_and_fill());
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "before") == 0)
        before();
    else
        after(argc > 2);
    return passed("descriptors");
}
