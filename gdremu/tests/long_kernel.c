/* Two GPU kernels. The first one runs until stdin ends. */
#include "cuda_values.h"

static const char ptx[] = PTX(".visible .entry wait(.param .u64 flag) { .reg .pred %p; .reg .u32 %r; .reg .u64 %flag;\n"
                              "ld.param.u64 %flag, [flag]; again: ld.volatile.global.u32 %r, [%flag];\n"
                              "setp.eq.u32 %p, %r, 0; @%p bra again; ret; }\n");

int main(void)
{
    void *flag;
    void *parameters[] = {&flag};

    gpu_start(0);
    CUfunction kernel = loaded_kernel(ptx, "wait");
    CUDA(cuMemHostAlloc(&flag, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CUDA(launched(kernel, NULL, parameters));
    while (getchar() != EOF)
        ;
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
    CUDA(launched(kernel, NULL, parameters));
    CUDA(cuCtxSynchronize());
    return 0;
}
