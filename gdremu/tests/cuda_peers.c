/* GPU kernels and the memory of another GPU, which they reach once it is shared with theirs. */
#include <string.h>

#include "cuda_values.h"

enum { BLOCK = 2 << 20 };

static const char store_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
    /* *word = 7 */
    ".visible .entry store(.param .u64 word)\n"
    "{\n"
    "    .reg .u64 %word;\n"
    "    ld.param.u64 %word, [word];\n"
    "    st.global.u32 [%word], 7;\n"
    "    ret;\n"
    "}\n";

/* Result of a GPU kernel that stores to an address, on GPU 1 in a context that may use the memory of another context. */
static CUresult stores(CUdeviceptr address, CUcontext peer)
{
    void *arguments[] = {&address};
    CUcontext context;
    CUmodule module;
    CUfunction function;

    CUDA(cuCtxCreate(&context, 0, 1));
    if (peer != NULL)
        CUDA(cuCtxEnablePeerAccess(peer, 0));
    CUDA(cuModuleLoadData(&module, store_ptx));
    CUDA(cuModuleGetFunction(&function, module, "store"));
    CUDA(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    return cuCtxSynchronize();
}

static CUdeviceptr from_pool(const CUmemAccessDesc *shared, size_t count)
{
    CUmemoryPool pool;
    CUdeviceptr address;

    CUDA(cuDeviceGetDefaultMemPool(&pool, 0));
    CUDA(cuMemAllocFromPoolAsync(&address, 4, pool, NULL));
    CUDA(cuStreamSynchronize(NULL));
    CUDA(cuMemPoolSetAccess(pool, shared, count));
    return address;
}

/* The test of the argument, because an illegal address is the last thing that a program does with CUDA. */
int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    CUmemAccessDesc shared[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                 {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUcontext first = gpu_start(0);
    int word = 0;

    if (strcmp(way, "buffer") == 0) {
        CHECK_EQUAL(stores(allocated(4), NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    } else if (strcmp(way, "pool") == 0) {
        CHECK_EQUAL(stores(from_pool(shared, 1), NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    } else if (strcmp(way, "mapping") == 0) {
        CHECK_EQUAL(stores(created(BLOCK, shared, 1), NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    } else if (strcmp(way, "read-only") == 0) {
        shared[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
        CHECK_EQUAL(stores(created(BLOCK, shared, 2), NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    } else {
        CUdeviceptr address = allocated(4);

        CUDA(stores(address, first));
        CUDA(cuMemcpyDtoH(&word, address, sizeof(word)));
        CHECK_EQUAL(word, 7);
        CUDA(cuCtxSetCurrent(first));
        CUDA(stores(from_pool(shared, 2), NULL));
        CUDA(cuCtxSetCurrent(first));
        CUDA(stores(created(BLOCK, shared, 2), NULL));
    }
    return passed("cuda_peers");
}
