/* Tests of the attributes that CUDA reports for an address. */
#define _GNU_SOURCE
#include "cuda_values.h"
#include "tests.h"

static CUresult result_of(CUdeviceptr address, int number)
{
    uint64_t value;

    return cuPointerGetAttribute(&value, (CUpointer_attribute)number, address);
}

/* Checks that SYNC_MEMOPS can be set, and that no other attribute can be set. */
static void check_sync_memops(CUdeviceptr address, unsigned int at_first)
{
    unsigned int on = 1, off = 0;

    CHECK_EQUAL(pointer_attribute(address, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), at_first);
    CUDA(cuPointerSetAttribute(&off, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    CHECK_EQUAL(pointer_attribute(address, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 0);
    CUDA(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
    CHECK_EQUAL(pointer_attribute(address, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 1);
    CHECK_EQUAL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, address), CUDA_ERROR_INVALID_VALUE);
}

TEST(of_a_buffer)
{
    CUcontext context = gpu_start(0);
    CUdeviceptr buffer = allocated(1000), other = allocated(1000);
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    const struct {
        int number;
        uint64_t value;
    } wanted[] = {
        {CU_POINTER_ATTRIBUTE_CONTEXT, (uintptr_t)context},
        {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE},
        {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 0},
        {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, buffer},
        {CU_POINTER_ATTRIBUTE_RANGE_SIZE, 1000},
        {CU_POINTER_ATTRIBUTE_IS_MANAGED, 0},
        {CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 1},
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        CHECK_EQUAL(pointer_attribute(buffer, wanted[i].number), wanted[i].value);
        CHECK_EQUAL(pointer_attribute(buffer + 999, wanted[i].number), wanted[i].value);
    }
    CUDA(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, buffer));
    CHECK(tokens.p2pToken != 0 && tokens.vaSpaceToken != 0);
    CHECK(pointer_attribute(buffer, CU_POINTER_ATTRIBUTE_BUFFER_ID) !=
          pointer_attribute(other, CU_POINTER_ATTRIBUTE_BUFFER_ID));
    CHECK_EQUAL(result_of(buffer, CU_POINTER_ATTRIBUTE_HOST_POINTER), CUDA_ERROR_INVALID_VALUE);
    check_sync_memops(buffer, 1); /* Reading the peer-to-peer tokens has set SYNC_MEMOPS. */
    check_sync_memops(other, 0);
    CUDA(cuMemFree(other));
    CUDA(cuMemFree(buffer));
    CHECK_EQUAL(result_of(buffer, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, int attribute, CUdeviceptr address, size_t count);

/* Managed memory has no preferred location (attribute 2), for which CUDA returns -2, as on an H200. */
static void ranges(CUdeviceptr managed)
{
    int value = 0;

    CUDA(cuMemRangeGetAttribute(&value, sizeof(value), 2, managed, 100));
    CHECK_EQUAL(value, -2);
    CHECK_EQUAL(cuMemRangeGetAttribute(&value, 8, 2, managed, 100), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemRangeGetAttribute(&value, 4, 2, managed + 50, 51), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemRangeGetAttribute(&value, 4, 2, (uintptr_t)&value, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Returns whether memory is in the heap. CUDA must not return such memory, because tools such as UCX assume that all
   memory in the heap is the program's own. */
static int is_in_heap(CUdeviceptr address)
{
    extern char end;

    return address >= (uintptr_t)&end && address < (uintptr_t)sbrk(0);
}

GPU_TEST(of_host_memory)
{
    CUdeviceptr managed;
    unsigned int on = 1;
    void *host;

    CUDA(cuMemHostAlloc(&host, 100, 0));
    CHECK_EQUAL(pointer_attribute((uintptr_t)host, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_HOST);
    CHECK_EQUAL(pointer_attribute((uintptr_t)host, CU_POINTER_ATTRIBUTE_HOST_POINTER), (uintptr_t)host);
    CUDA(cuMemFreeHost(host));

    CUDA(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
    CHECK_EQUAL(pointer_attribute(managed, CU_POINTER_ATTRIBUTE_IS_MANAGED), 1);
    CHECK_EQUAL(pointer_attribute(managed, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE), 0);
    check_sync_memops(managed + 99, 1);
    CHECK_EQUAL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(is_in_heap(managed), 0);
    ranges(managed);
    CUDA(cuMemFree(managed));
}

GPU_TEST(several_at_once)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    unsigned int type = 7;
    int device = 7;
    void *host = &type;
    void *data[] = {&device, &type, &host};
    CUdeviceptr buffer = allocated(1);

    CUDA(cuPointerGetAttributes(3, attributes, data, buffer));
    CHECK(device == 0 && type == CU_MEMORYTYPE_DEVICE && host == NULL);
    CUDA(cuPointerGetAttributes(2, attributes, data, (uintptr_t)&buffer));
    CHECK(device == CU_DEVICE_INVALID && type == 0);
    CHECK_EQUAL(cuPointerGetAttributes(0, attributes, data, buffer), CUDA_ERROR_INVALID_VALUE);
    attributes[2] = CU_POINTER_ATTRIBUTE_P2P_TOKENS;
    CHECK_EQUAL(cuPointerGetAttributes(3, attributes, data, buffer), CUDA_ERROR_INVALID_VALUE);
    CUDA(cuMemFree(buffer));
    CHECK_EQUAL(result_of((uintptr_t)&buffer, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), CUDA_ERROR_INVALID_VALUE);
}

GPU_TEST(of_vmm_memory)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = created(2 << 20, 0, &access, 1);
    unsigned int on = 1;
    CUcontext context;

    CHECK_EQUAL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(pointer_attribute(address, 16 /* ACCESS_FLAGS */), 3);
    CHECK_EQUAL(pointer_attribute(address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), address);
    CUDA(cuCtxPopCurrent(&context));
    CHECK_EQUAL(pointer_attribute(address, 16 /* ACCESS_FLAGS */), 0);
    CHECK_EQUAL(result_of(address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), CUDA_ERROR_INVALID_CONTEXT);
    CUDA(cuCtxPushCurrent(context));
}
