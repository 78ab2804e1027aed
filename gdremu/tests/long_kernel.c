/* Two GPU kernels. The first one runs until stdin ends. */
#include "cuda_values.h"

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry wait(.param .u64 flag) { .reg .pred %p; .reg .u32 %r; .reg .u64 %flag;\n"
                          "ld.param.u64 %flag, [flag]; again: ld.volatile.global.u32 %r, [%flag];\n"
                          "setp.eq.u32 %p, %r, 0; @%p bra again; ret; }\n";

int main(void)
{
    CUmodule module;
    CUfunction kernel;
    void *flag;
    void *arguments[] = {&flag};

    gpu_start(0);
    CUDA(cuModuleLoadData(&module, ptx));
    CUDA(cuModuleGetFunction(&kernel, module, "wait"));
    CUDA(cuMemHostAlloc(&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CUDA(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    while (getchar() != EOF)
        ;
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
    CUDA(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CUDA(cuCtxSynchronize());
    return 0;
}
