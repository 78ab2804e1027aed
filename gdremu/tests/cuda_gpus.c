/* Three GPUs, each with its memory, and copies between them. */
#include "cuda_values.h"

/* With CUDA_VISIBLE_DEVICES=2,0,7,1, the third, then the first. */
static void two_of_them(void)
{
    char id[16];
    int number;

    gpu_start(1);
    CUDA(cuDeviceGetCount(&number));
    CHECK_EQUAL(number, 2);
    CUDA(cuDeviceGetPCIBusId(id, 16, 0));
    CHECK_STRING(id, "0000:3B:00.0");
    CUDA(cuDeviceGetByPCIBusId(&number, "0000:1b:00.0"));
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(cuDeviceGetByPCIBusId(&number, "0000:2b:00.0"), 101 /* INVALID_DEVICE */);
    CUDA(cuCtxGetDevice(&number));
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(pointer_attribute(allocated(4), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);
    CHECK_EQUAL(cuDeviceGet(&number, 2), 101 /* INVALID_DEVICE */);
}

int main(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (visible != NULL && visible[0] == '\0') {
        CHECK_EQUAL(cuInit(0), CUDA_ERROR_NO_DEVICE);
        return passed("cuda_gpus");
    } else if (visible != NULL) {
        two_of_them();
        return passed("cuda_gpus");
    }
    CUcontext first = gpu_start(0), second = gpu_start(1);
    char ids[3][16], in[4] = "";
    CUdeviceptr a, b;
    size_t before;
    int number = 0, device = -1;

    CUDA(cuDeviceGetCount(&number));
    CHECK_EQUAL(number, 3);
    for (number = 0; number < 3; number++)
        CUDA(cuDeviceGetPCIBusId(ids[number], 16, number));
    CHECK(strcmp(ids[0], ids[1]) != 0 && strcmp(ids[1], ids[2]) != 0);
    CUDA(cuDeviceGetByPCIBusId(&device, ids[2]));
    CHECK_EQUAL(device, 2);

    before = free_bytes();
    CUDA(cuCtxSetCurrent(first));
    a = allocated(4);
    CUDA(cuCtxSetCurrent(second));
    CHECK_EQUAL(free_bytes(), before);
    b = allocated(4);
    CHECK_EQUAL(pointer_attribute(a, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
    CHECK_EQUAL(pointer_attribute(b, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);

    CUDA(cuDeviceCanAccessPeer(&number, 0, 1));
    CHECK_EQUAL(number, 1);
    CUDA(cuDeviceCanAccessPeer(&number, 1, 1));
    CHECK_EQUAL(number, 0);
    CUDA(cuCtxEnablePeerAccess(first, 0));
    CHECK_EQUAL(cuCtxEnablePeerAccess(first, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    CUDA(cuMemcpyHtoD(a, "abc", 4));
    CUDA(cuMemcpyPeer(b, second, a, first, 4));
    CUDA(cuMemcpyDtoH(in, b, 4));
    CHECK_STRING(in, "abc");
    CUDA(cuCtxDisablePeerAccess(first));
    CHECK_EQUAL(cuCtxDisablePeerAccess(first), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    return passed("cuda_gpus");
}
