/* Three GPUs: each has its memory, and copies go between them. */
#include "cuda_start.h"

int main(void)
{
    CUcontext first = start(0), second = start(1);
    char ids[3][16], in[4] = "";
    CUdeviceptr a, b;
    size_t before, after, total;
    int number = 0, device = -1;

    CHECK_EQUAL(cuDeviceGetCount(&number), CUDA_SUCCESS);
    CHECK_EQUAL(number, 3);
    for (number = 0; number < 3; number++)
        CHECK_EQUAL(cuDeviceGetPCIBusId(ids[number], 16, number), CUDA_SUCCESS);
    CHECK(strcmp(ids[0], ids[1]) != 0 && strcmp(ids[1], ids[2]) != 0);
    CHECK_EQUAL(cuDeviceGetByPCIBusId(&device, ids[2]), CUDA_SUCCESS);
    CHECK_EQUAL(device, 2);

    CHECK_EQUAL(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSetCurrent(first), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&a, 4), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxSetCurrent(second), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
    CHECK_EQUAL(after, before);
    CHECK_EQUAL(cuMemAlloc(&b, 4), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a), CUDA_SUCCESS);
    CHECK_EQUAL(device, 0);
    CHECK_EQUAL(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, b), CUDA_SUCCESS);
    CHECK_EQUAL(device, 1);

    CHECK_EQUAL(cuDeviceCanAccessPeer(&number, 0, 1), CUDA_SUCCESS);
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(cuDeviceCanAccessPeer(&number, 1, 1), CUDA_SUCCESS);
    CHECK_EQUAL(number, 0);
    CHECK_EQUAL(cuCtxEnablePeerAccess(first, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CHECK_EQUAL(cuMemcpyHtoD(a, "abc", 4), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyPeer(b, second, a, first, 4), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(in, b, 4), CUDA_SUCCESS);
    CHECK_STRING(in, "abc");
    CHECK_EQUAL(cuCtxDisablePeerAccess(first), CUDA_SUCCESS);
    CHECK_EQUAL(cuCtxDisablePeerAccess(first), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    puts("ok cuda_gpus");
    return 0;
}
