/* Tests of memory that processes share. The expected results are those of NVIDIA's driver 580 on an H200. */
#include "cuda_values.h"

typedef struct {
    char bytes[64];
} handle_t;

CUresult cuIpcGetMemHandle(handle_t *handle, CUdeviceptr address);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, handle_t handle, unsigned int flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr address);

static int capable(CUdeviceptr address)
{
    return (int)pointer_attribute(address, 10 /* IS_LEGACY_CUDA_IPC_CAPABLE */);
}

enum { SIZE = 1000 };

static int ends[2]; /* the two ends of a pipe */

/* Runs in the child process, and opens the memory of the handle that it reads from the pipe. */
static void import(void)
{
    CUdeviceptr opened, again, base;
    unsigned char bytes[SIZE];
    handle_t handle;
    uint64_t id;
    size_t size;
    int fd;

    close(ends[1]);
    CHECK_EQUAL(read(ends[0], &handle, sizeof(handle)), (ssize_t)sizeof(handle));
    gpu_start(0);
    CHECK_EQUAL(cuIpcOpenMemHandle_v2(&opened, handle, 1), CUDA_ERROR_INVALID_VALUE); /* The buffer is freed. */
    CHECK_EQUAL(read(ends[0], &handle, sizeof(handle)), (ssize_t)sizeof(handle));
    CHECK_EQUAL(read(ends[0], &id, sizeof(id)), (ssize_t)sizeof(id));
    CHECK(pointer_attribute(allocated(1), 7 /* BUFFER_ID */) != id);
    CHECK_EQUAL(cuIpcOpenMemHandle_v2(&opened, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuIpcOpenMemHandle_v2(&opened, handle, 1));
    CUDA(cuIpcOpenMemHandle_v2(&again, handle, 1));
    CHECK_EQUAL(again, opened);
    CUDA(cuMemGetAddressRange(&base, &size, opened + 5));
    CHECK(base == opened && size == SIZE);
    CHECK_EQUAL(pointer_attribute(opened, 7 /* BUFFER_ID */), id);
    CHECK_EQUAL(pointer_attribute(opened, 15 /* IS_GPU_DIRECT_RDMA_CAPABLE */), 0);
    CHECK_EQUAL(capable(opened), 0);
    CHECK_EQUAL(cuIpcGetMemHandle(&handle, opened), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemGetHandleForAddressRange(&fd, opened & ~4095ul, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                CUDA_ERROR_INVALID_VALUE);

    CUDA(cuMemcpyDtoH(bytes, opened, SIZE));
    CHECK(bytes[0] == 7 && bytes[SIZE - 1] == 7);
    CUDA(cuMemsetD8(opened + 10, 8, SIZE - 10));
    CHECK_EQUAL(cuMemFree(opened), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuIpcCloseMemHandle(opened));
    CUDA(cuMemcpyDtoH(bytes, opened, SIZE));
    CUDA(cuIpcCloseMemHandle(opened));
    CHECK_EQUAL(cuMemcpyDtoH(bytes, opened, SIZE), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuIpcCloseMemHandle(opened), CUDA_ERROR_INVALID_VALUE);
}

static void two_processes_share_a_buffer(pid_t child, CUdeviceptr buffer)
{
    unsigned char bytes[SIZE];
    handle_t handle;
    siginfo_t end;

    CUdeviceptr freed = allocated(SIZE);
    CUDA(cuIpcGetMemHandle(&handle, freed));
    CUDA(cuMemFree(freed));
    CHECK_EQUAL(allocated(SIZE), freed);
    CHECK_EQUAL(write(ends[1], &handle, sizeof(handle)), (ssize_t)sizeof(handle));

    CUDA(cuMemsetD8(buffer, 7, SIZE));
    CUDA(cuIpcGetMemHandle(&handle, buffer));
    uint64_t id = pointer_attribute(buffer, 7 /* BUFFER_ID */);
    CHECK_EQUAL(write(ends[1], &handle, sizeof(handle)), (ssize_t)sizeof(handle));
    CHECK_EQUAL(write(ends[1], &id, sizeof(id)), (ssize_t)sizeof(id));
    /* With WNOWAIT the ended child keeps its process id, so that no other process gets the id before the test ends. */
    CHECK_EQUAL(waitid(P_PID, (id_t)child, &end, WEXITED | WNOWAIT), 0);
    CUDA(cuMemcpyDtoH(bytes, buffer, SIZE));
    CHECK(bytes[9] == 7 && bytes[10] == 8 && bytes[SIZE - 1] == 8);
}

int main(void)
{
    CUdeviceptr pooled, managed, opened = 0;
    handle_t handle, other;

    CHECK_EQUAL(pipe(ends), 0);
    pid_t child = start_child(import); /* A child that is forked after cuInit cannot use CUDA. */
    gpu_start(0);
    allocated(1); /* This buffer is at the start of a block of GPU memory, so `buffer` is not. */
    CUdeviceptr buffer = allocated(SIZE);
    CUDA(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL));

    CHECK_EQUAL(capable(buffer), 1);
    CHECK_EQUAL(capable(managed), 0);
    CUDA(cuIpcGetMemHandle(&handle, buffer));
    CUDA(cuIpcGetMemHandle(&other, buffer + 999));
    CHECK_BYTES(handle.bytes, other.bytes, sizeof(handle.bytes));
    CHECK_EQUAL(cuIpcGetMemHandle(&other, managed), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuIpcGetMemHandle(NULL, buffer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuIpcOpenMemHandle_v2(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    CUDA(cuMemAllocAsync(&pooled, SIZE, NULL));
    CHECK_EQUAL(capable(pooled), 0);
    CHECK_EQUAL(cuIpcGetMemHandle(&other, pooled), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(pooled));
    two_processes_share_a_buffer(child, buffer);
    /* The handle contains the number of the exporting process. Replaces it by that of the child, which has ended. */
    uint64_t ended = (uint64_t)child;
    memcpy(handle.bytes, &ended, sizeof(ended));
    CHECK_EQUAL(cuIpcOpenMemHandle_v2(&opened, handle, 1), 205 /* MAP_FAILED */);
    CHECK_EQUAL(cuIpcCloseMemHandle(buffer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(opened, 0);
    finish_child(child);
    return passed("cuda_ipc");
}
