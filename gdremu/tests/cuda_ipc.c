/* Memory for other processes, and the flags of a context. The expected results are those of NVIDIA's driver 580 on an H200. */
#include "cuda_start.h"

typedef struct {
    char bytes[64];
} handle_t;

CUresult cuIpcGetMemHandle(handle_t *handle, CUdeviceptr address);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, handle_t handle, unsigned int flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr address);
CUresult cuMemPoolExportPointer(handle_t *export, CUdeviceptr address);
CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, handle_t *export);
CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, int type, unsigned long long flags);
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type, unsigned long long flags);
CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, void *library, const char *name);
CUresult cuCtxSetFlags(unsigned int flags);

enum { LEGACY_IPC_CAPABLE = 10 };

static int capable(CUdeviceptr address)
{
    int value = 7;

    CHECK_EQUAL(cuPointerGetAttribute(&value, (CUpointer_attribute)LEGACY_IPC_CAPABLE, address), CUDA_SUCCESS);
    return value;
}

int main(void)
{
    CUdeviceptr buffer, managed, opened = 0;
    handle_t handle, other;
    unsigned int flags = 0;
    CUmemoryPool pool;
    int fd;

    start(0);
    CHECK_EQUAL(cuMemAlloc(&buffer, 1000), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);

    CHECK_EQUAL(capable(buffer), 1);
    CHECK_EQUAL(capable(managed), 0);
    CHECK_EQUAL(cuIpcGetMemHandle(&handle, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(cuIpcGetMemHandle(&other, buffer + 999), CUDA_SUCCESS);
    CHECK_BYTES(handle.bytes, other.bytes, sizeof(handle.bytes));
    CHECK_EQUAL(cuIpcGetMemHandle(&other, managed), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuIpcGetMemHandle(NULL, buffer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuIpcOpenMemHandle_v2(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(cuIpcOpenMemHandle_v2(&opened, handle, 0), CUDA_ERROR_INVALID_VALUE);
    /* As if another process had made it. */
    handle.bytes[0] ^= 1;
    CHECK_EQUAL(cuIpcOpenMemHandle_v2(&opened, handle, 1), 205 /* MAP_FAILED */);
    CHECK_EQUAL(cuIpcCloseMemHandle(buffer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(opened, 0);

    CHECK_EQUAL(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemPoolExportToShareableHandle(&fd, pool, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemPoolImportFromShareableHandle(&pool, NULL, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemPoolExportPointer(&other, buffer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemPoolImportPointer(&opened, pool, &other), CUDA_ERROR_INVALID_VALUE);

    CHECK_EQUAL(cuCtxSetFlags(0x80), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxGetFlags(&flags), CUDA_SUCCESS);
    CHECK_EQUAL(flags, 0x80);
    CHECK_EQUAL(cuCtxSetFlags(0x1000), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuLibraryGetGlobal(&opened, NULL, NULL, "x"), CUDA_ERROR_INVALID_HANDLE);

    CHECK_EQUAL(cuMemFree(managed), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFreeHost(NULL), CUDA_SUCCESS);
    puts("ok cuda_ipc");
    return 0;
}
