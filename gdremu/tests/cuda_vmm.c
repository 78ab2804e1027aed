/* Virtual memory management: one object at two addresses, two objects side by side, and all that is refused. */
#include "cuda_start.h"

enum { BLOCK = 2 << 20 };

static CUmemAllocationProp prop(void)
{
    CUmemAllocationProp prop;

    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    return prop;
}

static void allow(CUdeviceptr address, size_t size, CUmemAccess_flags flags)
{
    CUmemAccessDesc access;

    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 0;
    access.flags = flags;
    CHECK_EQUAL(cuMemSetAccess(address, size, &access, 1), CUDA_SUCCESS);
}

static void life(void)
{
    CUmemAllocationProp wanted = prop(), zero = {0}, got;
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr address, second, base;
    unsigned long long flags = 9;
    size_t granularity = 0, size;
    char out[4] = "abc", in[4];

    CHECK_EQUAL(cuMemGetAllocationGranularity(&granularity, &zero, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_SUCCESS);
    CHECK_EQUAL(granularity, BLOCK);
    CHECK_EQUAL(cuMemGetAllocationGranularity(&granularity, &zero, 9), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemGetAllocationGranularity(&granularity, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemCreate(&handle, 2 * BLOCK, &wanted, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemGetAllocationPropertiesFromHandle(&got, handle), CUDA_SUCCESS);
    CHECK_EQUAL(got.allocFlags.gpuDirectRDMACapable, 1);
    CHECK_EQUAL(cuMemAddressReserve(&address, 4 * BLOCK, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemMap(address, 2 * BLOCK, 0, handle, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemGetAccess(&flags, &wanted.location, address), CUDA_SUCCESS);
    CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQUAL(cuMemcpyHtoD(address, out, 1), CUDA_ERROR_INVALID_VALUE);
    allow(address, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CHECK_EQUAL(cuMemcpyDtoH(in, address, 1), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyHtoD(address, out, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemsetD8(address, 1, 1), CUDA_ERROR_INVALID_VALUE);
    allow(address, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQUAL(cuMemGetAccess(&flags, &wanted.location, address), CUDA_SUCCESS);
    CHECK_EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQUAL(cuMemGetAddressRange(&base, &size, address + BLOCK + 1), CUDA_SUCCESS);
    CHECK(base == address && size == 2 * BLOCK);

    /* The same memory at a second address, and after its handle is gone. */
    CHECK_EQUAL(cuMemAddressReserve(&second, 2 * BLOCK, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemMap(second, 2 * BLOCK, 0, handle, 0), CUDA_SUCCESS);
    allow(second, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQUAL(cuMemRelease(handle), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemcpyHtoD(address + BLOCK - 2, out, 4), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(in, second + BLOCK - 2, 4), CUDA_SUCCESS);
    CHECK_STRING(in, "abc");

    CHECK_EQUAL(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(second + 1)), CUDA_SUCCESS);
    CHECK_EQUAL(again, handle);
    CHECK_EQUAL(cuMemRelease(again), CUDA_SUCCESS);

    CHECK_EQUAL(cuMemAddressFree(second, 2 * BLOCK), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemUnmap(second, BLOCK), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemUnmap(second, 2 * BLOCK), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(in, second, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemAddressFree(second, 2 * BLOCK), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemUnmap(address, 2 * BLOCK), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAddressFree(address, 4 * BLOCK), CUDA_SUCCESS);
}

static void side_by_side(void)
{
    CUmemAllocationProp wanted = prop();
    CUmemGenericAllocationHandle left, right;
    unsigned int filled[4];
    CUdeviceptr address;

    CHECK_EQUAL(cuMemCreate(&right, BLOCK, &wanted, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemCreate(&left, BLOCK, &wanted, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAddressReserve(&address, 2 * BLOCK, 4 * BLOCK, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(address % (4 * BLOCK), 0);
    CHECK_EQUAL(cuMemMap(address, BLOCK, 0, left, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemMap(address + BLOCK, BLOCK, 0, right, 0), CUDA_SUCCESS);
    allow(address, 2 * BLOCK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQUAL(cuMemsetD32(address + BLOCK - 8, 0x01020304, 4), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemcpyDtoH(filled, address + BLOCK - 8, 16), CUDA_SUCCESS);
    CHECK(filled[0] == 0x01020304 && filled[1] == 0x01020304 && filled[2] == 0x01020304 && filled[3] == 0x01020304);
    CHECK_EQUAL(cuMemUnmap(address, 2 * BLOCK), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemRelease(left), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemRelease(right), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAddressFree(address, 2 * BLOCK), CUDA_SUCCESS);
}

static void refusals(void)
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
    CHECK_EQUAL(cuMemMap(4096, BLOCK, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    start(0);
    life();
    side_by_side();
    refusals();
    puts("ok cuda_vmm");
    return 0;
}
