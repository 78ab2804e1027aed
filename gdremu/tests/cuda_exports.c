/* Descriptors for GPU memory, as dma-bufs that are mapped ("mmap"), or only exported ("export"), or not even that
   ("no"). */
#include <sys/mman.h>

#include "cuda_values.h"

enum { BLOCK = 2 << 20, PAGE = 4096 };

static CUresult dmabuf(int *fd, CUdeviceptr address, size_t size)
{
    return cuMemGetHandleForAddressRange(fd, address, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

static unsigned char byte_at(CUdeviceptr address)
{
    unsigned char byte;

    CUDA(cuMemcpyDtoH(&byte, address, 1));
    return byte;
}

static void maps_like_a_dmabuf(void)
{
    CUdeviceptr buffer = allocated(BLOCK);
    int fd = -1;

    CUDA(cuMemsetD8(buffer, 7, BLOCK));
    CHECK_EQUAL(dmabuf(&fd, buffer + PAGE, 4 * PAGE), CUDA_SUCCESS);
    CHECK_EQUAL(lseek(fd, 0, SEEK_END), 4 * PAGE);
    volatile unsigned char *whole = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(whole != MAP_FAILED);
    volatile unsigned char *part = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 2 * PAGE);
    CHECK(part != MAP_FAILED);
    CHECK(whole[0] == 7 && part[0] == 7);
    whole[2 * PAGE + 5] = 8;
    CHECK_EQUAL(part[5], 8);
    CHECK_EQUAL(byte_at(buffer + 3 * PAGE + 5), 8);

    CHECK(mmap(NULL, 5 * PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 4 * PAGE) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(munmap((void *)part, PAGE), 0);
    CHECK_EQUAL(munmap((void *)whole, 4 * PAGE), 0);
    CUDA(cuMemFree(buffer));
}

static void keeps_memory_alive(void)
{
    size_t before = free_bytes();
    CUdeviceptr buffer = allocated(BLOCK);
    int fd;

    CUDA(cuMemsetD8(buffer, 9, BLOCK));
    CHECK_EQUAL(dmabuf(&fd, buffer, BLOCK), CUDA_SUCCESS);
    CUDA(cuMemFree(buffer));
    int copy = dup(fd);
    CHECK_EQUAL(close(fd), 0);
    volatile unsigned char *mapped = mmap(NULL, BLOCK, PROT_READ, MAP_SHARED, copy, 0);
    CHECK(mapped != MAP_FAILED);
    CHECK_EQUAL(close(copy), 0);
    CHECK_EQUAL(mapped[BLOCK - 1], 9);
    CHECK_EQUAL(free_bytes(), before - BLOCK);
    CHECK_EQUAL(munmap((void *)mapped, BLOCK / 2), 0);
    CHECK_EQUAL(mapped[BLOCK - 1], 9);
    CHECK_EQUAL(free_bytes(), before - BLOCK);
    /* The rest is mapped over. */
    char *rest = mmap((char *)mapped + BLOCK / 2, BLOCK / 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(rest == (char *)mapped + BLOCK / 2);
    CHECK_EQUAL(free_bytes(), before);
    CHECK_EQUAL(munmap(rest, BLOCK / 2), 0);
}

/* Small buffers share a block, so a range that is exported need only touch one of them, as on an H200. */
static void reaches_beyond_its_buffer(void)
{
    CUdeviceptr first = allocated(100), second = allocated(PAGE);
    int fd, other;

    CHECK_EQUAL(dmabuf(&fd, first & ~65535ul, 65536), CUDA_SUCCESS);
    CHECK_EQUAL(dmabuf(&other, second & ~(BLOCK - 1ul), BLOCK), CUDA_SUCCESS);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(close(other), 0);
    CUDA(cuMemFree(first));
    CUDA(cuMemFree(second));
    CHECK_EQUAL(dmabuf(&fd, second & ~(PAGE - 1ul), PAGE), CUDA_ERROR_INVALID_VALUE);
}

/* Like NVIDIA's driver, which reuses an address once its dma-buf is gone. UCX pins whole pages of 64 KiB, and the
   buffer at their start must be a live one. */
static void closed_exports_release_their_addresses(void)
{
    CUdeviceptr buffer = allocated(100);
    int fd;

    CHECK_EQUAL(dmabuf(&fd, buffer, PAGE), CUDA_SUCCESS);
    CUDA(cuMemFree(buffer));
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(allocated(100), buffer);

    CHECK_EQUAL(dmabuf(&fd, buffer, PAGE), CUDA_SUCCESS);
    void *mapped = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    CHECK_EQUAL(close(fd), 0);
    CUDA(cuMemFree(buffer));
    CHECK_EQUAL(munmap(mapped, PAGE), 0);
    CHECK_EQUAL(allocated(100), buffer);
    CUDA(cuMemFree(buffer));
}

/* An H200 also exports memory that is not GPUDirect capable. UCX takes VMM memory for registrable if it can be
   exported. */
static void exports_all_kinds_of_memory(void)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = created(BLOCK, &access, 1), pooled;
    int fd;

    CHECK_EQUAL(dmabuf(&fd, address, BLOCK), CUDA_SUCCESS);
    CHECK_EQUAL(close(fd), 0);
    CUDA(cuMemUnmap(address, BLOCK));
    CUDA(cuMemAddressFree(address, BLOCK));
    CUDA(cuMemAllocAsync(&pooled, BLOCK, NULL));
    CHECK_EQUAL(dmabuf(&fd, pooled, BLOCK), CUDA_SUCCESS);
    CHECK_EQUAL(close(fd), 0);
    CUDA(cuMemFree(pooled));
}

static void refuses(void)
{
    CUdeviceptr buffer = allocated(BLOCK), managed;
    int fd = 123;

    CHECK_EQUAL(dmabuf(&fd, buffer + 512, PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(dmabuf(&fd, buffer, PAGE + 512), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(dmabuf(&fd, buffer, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(dmabuf(&fd, buffer, BLOCK + PAGE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemGetHandleForAddressRange(&fd, buffer, PAGE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 8),
                CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemAllocManaged(&managed, BLOCK, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQUAL(dmabuf(&fd, managed, PAGE), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(managed));
    CUDA(cuMemFree(buffer));
    CHECK_EQUAL(fd, 123);
}

static void shareable_handles(void)
{
    const CUmemAllocationHandleType FD = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemGenericAllocationHandle handle, imported;
    size_t before = free_bytes();
    int fd;

    CUDA(cuMemCreate(&handle, BLOCK, &prop, 0));
    CHECK_EQUAL(cuMemExportToShareableHandle(&fd, handle, FD, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemRelease(handle));

    prop.requestedHandleTypes = FD;
    CUDA(cuMemCreate(&handle, BLOCK, &prop, 0));
    CUDA(cuMemExportToShareableHandle(&fd, handle, FD, 0));
    CUDA(cuMemRelease(handle));
    CUDA(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, FD));
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(imported, handle);
    CHECK_EQUAL(free_bytes(), before - BLOCK);
    CUDA(cuMemRelease(imported));
    CHECK_EQUAL(free_bytes(), before);
    CHECK_EQUAL(cuMemImportFromShareableHandle(&imported, (void *)0, FD), CUDA_ERROR_INVALID_VALUE);
}

static void exports_only(void)
{
    int fd;

    CHECK_EQUAL(dmabuf(&fd, allocated(BLOCK), BLOCK), CUDA_SUCCESS);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    CHECK_EQUAL(errno, 524);
}

static void none(void)
{
    int fd;

    CHECK_EQUAL(device_attribute(0, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), 0);
    CHECK_EQUAL(dmabuf(&fd, allocated(BLOCK), BLOCK), CUDA_ERROR_NOT_SUPPORTED);
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";

    gpu_start(0);
    if (strcmp(what, "mmap") == 0) {
        maps_like_a_dmabuf();
        keeps_memory_alive();
        reaches_beyond_its_buffer();
        closed_exports_release_their_addresses();
        exports_all_kinds_of_memory();
        refuses();
        shareable_handles();
    } else if (strcmp(what, "export") == 0) {
        exports_only();
    } else {
        none();
    }
    return passed("cuda_exports");
}
