/* Tests of GPU memory that is exported as dma-bufs which the CPU can map. These tests are not in c_tests, because the
   tests there also run with options of gdremu that permit no such dma-bufs. */
#include <sys/mman.h>

#include "cuda_values.h"
#include "tests.h"

enum { BLOCK = 2 << 20, PAGE = 4096 };

static CUresult dmabuf(int *fd, CUdeviceptr address, size_t size)
{
    return cuMemGetHandleForAddressRange(fd, address, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

static volatile unsigned char *mapped(int fd, size_t size, off_t offset)
{
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);

    CHECK(start != MAP_FAILED);
    return start;
}

static void unmap(volatile unsigned char *start, size_t size)
{
    CHECK_EQUAL(munmap((void *)start, size), 0);
}

GPU_TEST(maps_like_a_dmabuf)
{
    CUdeviceptr buffer = allocated(BLOCK);
    unsigned char byte;

    CUDA(cuMemsetD8(buffer, 7, BLOCK));
    int fd = exported(buffer + PAGE, 4 * PAGE);
    CHECK_EQUAL(lseek(fd, 0, SEEK_END), 4 * PAGE);
    volatile unsigned char *whole = mapped(fd, 4 * PAGE, 0), *part = mapped(fd, PAGE, 2 * PAGE);
    CHECK(whole[0] == 7 && part[0] == 7);
    whole[2 * PAGE + 5] = 8;
    CHECK_EQUAL(part[5], 8);
    CUDA(cuMemcpyDtoH(&byte, buffer + 3 * PAGE + 5, 1));
    CHECK_EQUAL(byte, 8);

    CHECK(mmap(NULL, 5 * PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 4 * PAGE) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK_EQUAL(close(fd), 0);
    unmap(part, PAGE);
    unmap(whole, 4 * PAGE);
    CUDA(cuMemFree(buffer));
}

GPU_TEST(keeps_memory_alive)
{
    size_t before = free_bytes();
    CUdeviceptr buffer = allocated(BLOCK);

    CUDA(cuMemsetD8(buffer, 9, BLOCK));
    int fd = exported(buffer, BLOCK);
    CUDA(cuMemFree(buffer));
    int copy = dup(fd);
    CHECK_EQUAL(close(fd), 0);
    volatile unsigned char *start = mapped(copy, BLOCK, 0);
    CHECK_EQUAL(close(copy), 0);
    unmap(start, BLOCK / 2);
    CHECK_EQUAL(start[BLOCK - 1], 9);
    CHECK_EQUAL(free_bytes(), before - BLOCK);
    /* Another mapping replaces the rest of the dma-buf's mapping. */
    char *rest = mmap((char *)start + BLOCK / 2, BLOCK / 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK_EQUAL(rest, (char *)start + BLOCK / 2);
    CHECK_EQUAL(free_bytes(), before);
    CHECK_EQUAL(munmap(rest, BLOCK / 2), 0);
}

/* Small buffers share a block of GPU memory. As on an H200, a range of a block can be exported if at least one byte of
   the range is in a buffer that is not freed. */
GPU_TEST(reaches_beyond_its_buffer)
{
    CUdeviceptr first = allocated(100), second = allocated(PAGE);
    int fd;

    CHECK_EQUAL(close(exported(first & ~65535ul, 65536)), 0);
    CHECK_EQUAL(close(exported(second & ~(BLOCK - 1ul), BLOCK)), 0);
    CUDA(cuMemFree(first));
    CUDA(cuMemFree(second));
    CHECK_EQUAL(dmabuf(&fd, second & ~(PAGE - 1ul), PAGE), CUDA_ERROR_INVALID_VALUE);
}

/* The address of a freed buffer can be used again when its dma-buf is closed and unmapped, as with NVIDIA's driver.
   If it stayed unused, a later buffer could begin inside a page of 64 KiB whose start is in no buffer. UCX, which
   registers whole pages, would then fail. */
GPU_TEST(closed_exports_release_their_addresses)
{
    CUdeviceptr buffer = allocated(100);

    for (int is_mapped = 0; is_mapped < 2; is_mapped++) {
        int fd = exported(buffer, PAGE);
        volatile unsigned char *start = is_mapped ? mapped(fd, PAGE, 0) : NULL;
        CUDA(cuMemFree(buffer));
        CHECK_EQUAL(close(fd), 0);
        if (is_mapped)
            unmap(start, PAGE);
        CHECK_EQUAL(allocated(100), buffer);
    }
    CUDA(cuMemFree(buffer));
}

/* As on an H200, memory that is not GPUDirect capable can be exported, too: memory of a pool, and VMM (virtual memory
   management) memory. UCX assumes that VMM memory can be registered if it can be exported. */
GPU_TEST(exports_all_kinds_of_memory)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = created(BLOCK, 0, &access, 1), pooled;

    CHECK_EQUAL(close(exported(address, BLOCK)), 0);
    CUDA(cuMemUnmap(address, BLOCK));
    CUDA(cuMemAllocAsync(&pooled, BLOCK, NULL));
    CHECK_EQUAL(pointer_attribute(pooled, 15 /* IS_GPU_DIRECT_RDMA_CAPABLE */), 0);
    CHECK_EQUAL(close(exported(pooled, BLOCK)), 0);
    CUDA(cuMemFree(pooled));
}

GPU_TEST(refuses)
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
    CHECK_EQUAL(fd, 123);
    CUDA(cuMemFree(managed));
    CUDA(cuMemFree(buffer));
}
