/* Three GPUs: each has its memory, and copies go between them. */
#include "cuda_start.h"

int main(void)
{
    CUcontext first = start(0), second = start(1);
    char ids[3][16], in[4] = "";
    CUdeviceptr a, b;
    size_t before;
    int number = 0, device = -1;

    CHECK_CUDA(cuDeviceGetCount(&number));
    CHECK_EQUAL(number, 3);
    for (number = 0; number < 3; number++)
        CHECK_CUDA(cuDeviceGetPCIBusId(ids[number], 16, number));
    CHECK(strcmp(ids[0], ids[1]) != 0 && strcmp(ids[1], ids[2]) != 0);
    CHECK_CUDA(cuDeviceGetByPCIBusId(&device, ids[2]));
    CHECK_EQUAL(device, 2);

    before = free_bytes();
    CHECK_CUDA(cuCtxSetCurrent(first));
    a = allocated(4);
    CHECK_CUDA(cuCtxSetCurrent(second));
    CHECK_EQUAL(free_bytes(), before);
    b = allocated(4);
    CHECK_EQUAL(pointer_attribute(a, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
    CHECK_EQUAL(pointer_attribute(b, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);

    CHECK_CUDA(cuDeviceCanAccessPeer(&number, 0, 1));
    CHECK_EQUAL(number, 1);
    CHECK_CUDA(cuDeviceCanAccessPeer(&number, 1, 1));
    CHECK_EQUAL(number, 0);
    CHECK_CUDA(cuCtxEnablePeerAccess(first, 0));
    CHECK_EQUAL(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CHECK_CUDA(cuMemcpyHtoD(a, "abc", 4));
    CHECK_CUDA(cuMemcpyPeer(b, second, a, first, 4));
    CHECK_CUDA(cuMemcpyDtoH(in, b, 4));
    CHECK_STRING(in, "abc");
    CHECK_CUDA(cuCtxDisablePeerAccess(first));
    CHECK_EQUAL(cuCtxDisablePeerAccess(first), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    return passed("cuda_gpus");
}
