/* Tests of CUDA's virtual memory management: one object at two addresses, two adjacent objects, and calls that fail. */
#include "cuda_values.h"
#include "tests.h"

enum { BLOCK = 2 << 20, ACCESS_FLAGS = 16 };

static CUmemAllocationProp prop(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                 .allocFlags.gpuDirectRDMACapable = 1};
}

static void allow(CUdeviceptr address, size_t size, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};

    CUDA(cuMemSetAccess(address, size, &access, 1));
}

GPU_TEST(life)
{
    CUmemAllocationProp wanted = prop(), zero = {0}, got;
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr address, second, base;
    size_t granularity = 0, size;
    char out[4] = "abc", in[4];
    unsigned int filled[4];

    CUDA(cuMemGetAllocationGranularity(&granularity, &zero, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQUAL(granularity, BLOCK);
    CHECK_EQUAL(cuMemGetAllocationGranularity(&granularity, &zero, 9), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemGetAllocationGranularity(&granularity, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemCreate(&handle, 2 * BLOCK, &wanted, 0));
    CUDA(cuMemGetAllocationPropertiesFromHandle(&got, handle));
    CHECK_EQUAL(got.allocFlags.gpuDirectRDMACapable, 1);
    CUDA(cuMemAddressReserve(&address, 4 * BLOCK, 0, 0, 0));
    CUDA(cuMemMap(address, 2 * BLOCK, 0, handle, 0));
    CHECK_EQUAL(pointer_attribute(address, ACCESS_FLAGS), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQUAL(cuMemcpyHtoD(address, out, 1), CUDA_ERROR_INVALID_VALUE);
    allow(address, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CUDA(cuMemcpyDtoH(in, address, 1));
    CHECK_EQUAL(cuMemcpyHtoD(address, out, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD8(address, 1, 1), CUDA_ERROR_INVALID_VALUE);
    allow(address, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQUAL(pointer_attribute(address, ACCESS_FLAGS), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUDA(cuMemGetAddressRange(&base, &size, address + BLOCK + 1));
    CHECK(base == address && size == 2 * BLOCK);

    /* Maps another object behind the first, and the first also at a second address. The memory outlives its handles. */
    CUDA(cuMemCreate(&again, BLOCK, &wanted, 0));
    CUDA(cuMemMap(address + 2 * BLOCK, BLOCK, 0, again, 0));
    CUDA(cuMemRelease(again));
    allow(address + 2 * BLOCK, BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUDA(cuMemsetD32(address + 2 * BLOCK - 8, 0x01020304, 4));
    CUDA(cuMemcpyDtoH(filled, address + 2 * BLOCK - 8, 16));
    CHECK(filled[0] == 0x01020304 && filled[1] == 0x01020304 && filled[2] == 0x01020304 && filled[3] == 0x01020304);
    CUDA(cuMemAddressReserve(&second, 2 * BLOCK, 4 * BLOCK, 0, 0));
    CHECK_EQUAL(second % (4 * BLOCK), 0);
    CUDA(cuMemMap(second, 2 * BLOCK, 0, handle, 0));
    allow(second, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUDA(cuMemRelease(handle));
    CHECK_EQUAL(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemcpyHtoD(address + BLOCK - 2, out, 4));
    CUDA(cuMemcpyDtoH(in, second + BLOCK - 2, 4));
    CHECK_STRING(in, "abc");

    CUDA(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(second + 1)));
    CHECK_EQUAL(again, handle);
    CUDA(cuMemRelease(again));

    CHECK_EQUAL(cuMemAddressFree(second, 2 * BLOCK), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemUnmap(second, BLOCK), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemUnmap(second, 2 * BLOCK));
    CHECK_EQUAL(cuMemcpyDtoH(in, second, 1), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemAddressFree(second, 2 * BLOCK));
    CUDA(cuMemUnmap(address, 3 * BLOCK));
    CUDA(cuMemAddressFree(address, 4 * BLOCK));
    /* The fourth argument is a hint: the address to reserve if the addresses there are free. */
    CUDA(cuMemAddressReserve(&second, BLOCK, 0, address + BLOCK, 0));
    CHECK_EQUAL(second, address + BLOCK);
    CUDA(cuMemAddressReserve(&second, BLOCK, 0, address + BLOCK, 0));
    CHECK(second != address + BLOCK);
}

GPU_TEST(refusals)
{
    CUmemAllocationProp wanted = prop();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    CHECK_EQUAL(cuMemCreate(&handle, BLOCK + 1, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemCreate(&handle, BLOCK, &wanted, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemCreate(&handle, BLOCK, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemCreate(&handle, (size_t)BLOCK << 14, &wanted, 0), CUDA_ERROR_OUT_OF_MEMORY);
    wanted.location.id = 5;
    CHECK_EQUAL(cuMemCreate(&handle, BLOCK, &wanted, 0), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(cuMemAddressReserve(&address, BLOCK / 2, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemAddressReserve(&address, BLOCK, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemMap(4096, BLOCK, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
    wanted = prop();
    wanted.allocFlags.compressionType = 2;
    CHECK_EQUAL(cuMemCreate(&handle, BLOCK, &wanted, 0), CUDA_ERROR_INVALID_VALUE);
    wanted = prop();
    CUDA(cuMemCreate(&handle, 2 * BLOCK, &wanted, 0));
    CUDA(cuMemAddressReserve(&address, 3 * BLOCK, 0, 0, 0));
    CHECK_EQUAL(cuMemMap(address, BLOCK, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(cuMemMap(address, BLOCK, BLOCK, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(cuMemMap(address, 2 * BLOCK, 0, handle + 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemMap(address + BLOCK / 2, 2 * BLOCK, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    /* Only half of this range is reserved. */
    CHECK_EQUAL(cuMemMap(address + 2 * BLOCK, 2 * BLOCK, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemMap(address, 2 * BLOCK, 0, handle, 0));
    CHECK_EQUAL(cuMemMap(address, 2 * BLOCK, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
}
