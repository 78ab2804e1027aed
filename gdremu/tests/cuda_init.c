/* Tests devices and their attributes, errors, cuGetProcAddress, and the functions that work before cuInit. */
#include "cuda_values.h"
#include "tests.h"

TEST(before_init)
{
    CUdeviceptr address;
    CUcontext context;
    int number;

    CHECK_EQUAL(cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(cuMemAlloc(&address, 1), CUDA_ERROR_NOT_INITIALIZED);
    CUDA(cuDriverGetVersion(&number));
    CHECK_EQUAL(number, 13000);
    CHECK_EQUAL(cuInit(1), CUDA_ERROR_INVALID_VALUE);
}

GPU_TEST(devices)
{
    CUdevice device = -1;
    CUuuid uuid;
    char text[64];
    size_t bytes = 0;
    int number = 0;

    CUDA(cuInit(0)); /* A second call changes nothing. */
    CUDA(cuDeviceGetCount(&number));
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(cuDeviceGetCount(NULL), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuDeviceGet(&device, 0));
    CHECK_EQUAL(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(device, 0);
    CUDA(cuDeviceGetName(text, sizeof text, 0));
    CHECK_STRING(text, "gdremu GPU");
    CUDA(cuDeviceGetName(text, 7, 0));
    CHECK_STRING(text, "gdremu");
    CUDA(cuDeviceGetUuid(&uuid, 0));
    CUDA(cuDeviceTotalMem(&bytes, 0));
    CHECK_EQUAL(bytes, 16ull << 30);

    CUDA(cuDeviceGetPCIBusId(text, sizeof text, 0));
    CHECK_STRING(text, "0000:1B:00.0");
    CHECK_EQUAL(cuDeviceGetPCIBusId(text, 12, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuDeviceGetByPCIBusId(&device, "1b:00"));
    CHECK_EQUAL(cuDeviceGetByPCIBusId(&device, "0000:1c:00.0"), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(cuDeviceGetByPCIBusId(&device, "nowhere"), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1), CUDA_ERROR_INVALID_DEVICE);
}

/* An H200 with driver 580 has the attributes 1 to 147 and no others. */
GPU_TEST(attributes_of_cuda_13_0)
{
    int value;

    for (int number = 0; number < 160; number++)
        CHECK_EQUAL(cuDeviceGetAttribute(&value, (CUdevice_attribute)number, 0),
                    number >= 1 && number <= 147 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(device_attribute(0, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), 0x1b);
    CHECK_EQUAL(device_attribute(0, 74 /* MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT */), 32768);
    CHECK_EQUAL(device_attribute(0, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED), 1);
    CHECK_EQUAL(device_attribute(0, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), 1);
    CHECK_EQUAL(device_attribute(0, 131 /* NUMA_ID */), -1);
}

GPU_TEST(errors)
{
    const char *text = "";

    CUDA(cuGetErrorName(CUDA_ERROR_INVALID_CONTEXT, &text));
    CHECK_STRING(text, "CUDA_ERROR_INVALID_CONTEXT");
    CUDA(cuGetErrorString(CUDA_SUCCESS, &text));
    CHECK_STRING(text, "no error");
    CHECK_EQUAL(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    CHECK(text == NULL);
}

GPU_TEST(entry_points)
{
    CUdriverProcAddressQueryResult status;
    void *function, *first;

    CUDA(cuGetProcAddress("cuMemAlloc", &function, 13000, 0, &status));
    CHECK_EQUAL(function, (void *)(uintptr_t)cuMemAlloc);
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
    CUDA(cuGetProcAddress("cuCtxCreate", &function, 4000, 0, NULL));
    CHECK_EQUAL(function, (void *)(uintptr_t)cuCtxCreate);
    CUDA(cuGetProcAddress("cuMemCreate", &function, 10010, 0, &status));
    CHECK(function == NULL);
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    CUDA(cuGetProcAddress("cuMakeCoffee", &function, 13000, 0, &status));
    CUDA(cuGetProcAddress("cuMemAlloc_v2", &function, 13000, 0, &status));
    CHECK(function == NULL);
    CHECK_EQUAL(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    /* cuGetExportTable must be found, because libraries look it up together with all other functions. Only the CUDA
       runtime calls it, so gdremu's function may return an error. */
    CUDA(cuGetProcAddress("cuGetExportTable", &function, 13000, 0, &status));
    if (arguments[0] != NULL)
        CHECK_EQUAL(((CUresult(*)(const void **, const void *))function)(NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
    /* Programs of CUDA 11 get version 1 of cuGetProcAddress, a function that has no parameter for the status. */
    CUDA(cuGetProcAddress("cuGetProcAddress", &first, 11080, 0, NULL));
    CUDA(cuGetProcAddress("cuGetProcAddress", &function, 12000, 0, NULL));
    CHECK(first != function && function == (void *)(uintptr_t)cuGetProcAddress);
    CHECK_EQUAL(cuGetProcAddress("cuInit", &function, 99000, 0, &status), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuGetProcAddress("cuInit", NULL, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}
