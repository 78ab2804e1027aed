/* Tests of several GPUs: their memory, copies between them, and GPU kernels that store to memory of another GPU. */
#include "cuda_values.h"
#include "tests.h"

/* CUDA_VISIBLE_DEVICES=2,0,7,1 shows GPUs 2 and 0. GPU 7 does not exist, and so ends the list. "" shows no GPU. */
TEST(visible)
{
    char id[16];
    int number;

    if (getenv("CUDA_VISIBLE_DEVICES")[0] == '\0') {
        CHECK_EQUAL(cuInit(0), CUDA_ERROR_NO_DEVICE);
        return;
    }
    gpu_start(1);
    CUDA(cuDeviceGetCount(&number));
    CHECK_EQUAL(number, 2);
    CUDA(cuDeviceGetPCIBusId(id, 16, 0));
    CHECK_STRING(id, "0000:3B:00.0");
    CUDA(cuDeviceGetByPCIBusId(&number, "0000:1b:00.0"));
    CHECK_EQUAL(number, 1);
    CUDA(cuCtxGetDevice(&number));
    CHECK_EQUAL(number, 1);
    CHECK_EQUAL(pointer_attribute(allocated(4), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);
    CHECK_EQUAL(cuDeviceGet(&number, 2), 101 /* INVALID_DEVICE */);
}

TEST(three)
{
    CUcontext first = gpu_start(0), second = gpu_start(1);
    char in[4] = "";
    int number = 0;

    CUDA(cuDeviceGetCount(&number));
    CHECK_EQUAL(number, 3);
    size_t before = free_bytes();
    CUDA(cuCtxSetCurrent(first));
    CUdeviceptr a = allocated(4);
    CUDA(cuCtxSetCurrent(second));
    CHECK_EQUAL(free_bytes(), before);
    CUdeviceptr b = allocated(4);
    CHECK_EQUAL(pointer_attribute(a, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
    CHECK_EQUAL(pointer_attribute(b, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);
    CUDA(cuDeviceCanAccessPeer(&number, 0, 1));
    CHECK_EQUAL(number, 1);
    CUDA(cuDeviceCanAccessPeer(&number, 1, 1));
    CHECK_EQUAL(number, 0);
    CUDA(cuMemcpyHtoD(a, "abc", 4));
    CUDA(cuMemcpyDtoD(b, a, 4));
    CUDA(cuMemcpyDtoH(in, b, 4));
    CHECK_STRING(in, "abc");
}

/* In each step, a GPU kernel on GPU 1 stores to memory of GPU 0. In the first steps, this is VMM (virtual memory
   management) memory to which GPU 1 is given these accesses. In the last step, it is a buffer of cuMemAlloc. */
static const CUmemAccess_flags given[] = {CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ,
                                          CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
enum { WRITABLE = 2, BUFFER };
static int next;

static void store_to_next(void)
{
    static const char ptx[] = PTX(".visible .entry store(.param .u64 word) { .reg .u64 %word;\n"
                                  "ld.param.u64 %word, [word]; st.global.u32 [%word], 7; ret; }\n");
    CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                 {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, given[next % BUFFER]}};

    gpu_start(0);
    CUdeviceptr address = next == BUFFER ? allocated(4) : created(2 << 20, 0, access, 2);
    void *parameters[] = {&address};
    gpu_start(1);
    CUDA(launched(loaded_kernel(ptx, "store"), NULL, parameters));
    CHECK_EQUAL(cuCtxSynchronize(), next == WRITABLE ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Each step runs in a process of its own, because CUDA fails in a process after an illegal address. */
TEST(memory_of_another)
{
    for (next = 0; next <= BUFFER; next++)
        in_child(store_to_next);
}
