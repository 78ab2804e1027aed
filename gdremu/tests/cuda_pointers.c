/* What CUDA reports about an address. */
#define _GNU_SOURCE
#include "cuda_start.h"

static void of_a_buffer(CUcontext context)
{
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
    unsigned long long id, other_id;
    CUdeviceptr buffer, other, start_address;
    unsigned int on = 1, type = 0, managed = 7, sync = 7;
    int device = -1, rdma = -1;
    CUcontext owner;
    size_t size;
    void *host;

    CHECK_EQUAL(cuMemAlloc(&buffer, 1000), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemAlloc(&other, 1000), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, buffer + 1), CUDA_SUCCESS);
    CHECK(owner == context);
    CHECK_EQUAL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, buffer + 1), CUDA_SUCCESS);
    CHECK_EQUAL(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQUAL(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, buffer + 999), CUDA_SUCCESS);
    CHECK_EQUAL(device, 0);
    CHECK_EQUAL(cuPointerGetAttribute(&start_address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, buffer + 5), CUDA_SUCCESS);
    CHECK_EQUAL(start_address, buffer);
    CHECK_EQUAL(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(size, 1000);
    CHECK_EQUAL(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(managed, 0);
    CHECK_EQUAL(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(rdma, 1);
    CHECK_EQUAL(cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, buffer), CUDA_SUCCESS);
    CHECK(tokens.p2pToken != 0 && tokens.vaSpaceToken != 0);
    CHECK_EQUAL(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, other), CUDA_SUCCESS);
    CHECK(id != other_id);
    CHECK_EQUAL(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, buffer), CUDA_ERROR_INVALID_VALUE);

    CHECK_EQUAL(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(sync, 0);
    CHECK_EQUAL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, buffer), CUDA_SUCCESS);
    CHECK_EQUAL(sync, 1);
    CHECK_EQUAL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, buffer), CUDA_ERROR_INVALID_VALUE);

    CHECK_EQUAL(cuMemFree(other), CUDA_SUCCESS);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, buffer), CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, int attribute, CUdeviceptr address, size_t count);

/* Attributes 1 to 8 of managed memory without any advice, as on an H200. */
static void ranges(CUdeviceptr managed)
{
    static const int wanted[] = {0, -2, -2, -2, 0, -2, 0, -2};
    int value, list[3] = {7, 7, 7};

    for (int i = 1; i <= 8; i++) {
        CHECK_EQUAL(cuMemRangeGetAttribute(&value, sizeof(value), i, managed, 100), CUDA_SUCCESS);
        CHECK_EQUAL(value, wanted[i - 1]);
    }
    CHECK_EQUAL(cuMemRangeGetAttribute(list, 2 * sizeof(int), 3, managed, 1), CUDA_SUCCESS);
    CHECK(list[0] == -2 && list[1] == -2 && list[2] == 7);
    CHECK_EQUAL(cuMemRangeGetAttribute(&value, 8, 2, managed, 100), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemRangeGetAttribute(&value, 4, 9, managed, 100), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemRangeGetAttribute(&value, 4, 1, managed + 50, 51), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemRangeGetAttribute(&value, 4, 1, (uintptr_t)&value, 1), CUDA_ERROR_INVALID_VALUE);
}

/* Tools that know the heap, such as UCX, would take the memory for the program's own. */
static int is_in_heap(CUdeviceptr address)
{
    extern char end;

    return address >= (uintptr_t)&end && address < (uintptr_t)sbrk(0);
}

static void of_host_memory(void)
{
    CUdeviceptr managed;
    unsigned int flag = 7, type = 0, on = 1;
    int rdma = -1;
    void *host, *same;

    CHECK_EQUAL(cuMemHostAlloc(&host, 100, 0), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host), CUDA_SUCCESS);
    CHECK_EQUAL(type, CU_MEMORYTYPE_HOST);
    CHECK_EQUAL(cuPointerGetAttribute(&same, CU_POINTER_ATTRIBUTE_HOST_POINTER, (uintptr_t)host), CUDA_SUCCESS);
    CHECK(same == host);
    CHECK_EQUAL(cuMemFreeHost(host), CUDA_SUCCESS);

    CHECK_EQUAL(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed), CUDA_SUCCESS);
    CHECK_EQUAL(flag, 1);
    CHECK_EQUAL(cuPointerGetAttribute(&rdma, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, managed), CUDA_SUCCESS);
    CHECK_EQUAL(rdma, 0);
    /* As NVIDIA's driver 580 answers on an H200. */
    CHECK_EQUAL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, managed + 99), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, managed), CUDA_SUCCESS);
    CHECK_EQUAL(flag, 1);
    CHECK_EQUAL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 4096), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(is_in_heap(managed), 0);
    ranges(managed);
    CHECK_EQUAL(cuMemFree(managed), CUDA_SUCCESS);
}

static void several_at_once(void)
{
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    unsigned int type = 7;
    int device = 7;
    void *host = &type;
    void *data[] = {&device, &type, &host};
    CUdeviceptr buffer;

    CHECK_EQUAL(cuMemAlloc(&buffer, 1), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttributes(3, attributes, data, buffer), CUDA_SUCCESS);
    CHECK(device == 0 && type == CU_MEMORYTYPE_DEVICE && host == NULL);
    CHECK_EQUAL(cuPointerGetAttributes(2, attributes, data, (uintptr_t)&buffer), CUDA_SUCCESS);
    CHECK(device == CU_DEVICE_INVALID && type == 0);
    CHECK_EQUAL(cuPointerGetAttributes(0, attributes, data, buffer), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(cuMemFree(buffer), CUDA_SUCCESS);
    CHECK_EQUAL(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)&buffer),
                CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    CUcontext context = start(0);

    of_a_buffer(context);
    of_host_memory();
    several_at_once();
    puts("ok cuda_pointers");
    return 0;
}
