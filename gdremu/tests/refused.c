/*
 * Launches a GPU kernel that the emulated GPU refuses, twice, and exits with the status of the first argument. With a
 * second argument, a forked child launches it.
 */
#include "cuda_values.h"

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry nothing() { .reg .f32 %f<3>; add.f32 %f1, %f1, %f2; ret; }\n";

static CUresult launch(CUfunction kernel)
{
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

int main(int argc, char **argv)
{
    CUmodule module;
    CUfunction kernel;

    if (argc > 2) {
        pid_t child = fork();

        if (child != 0)
            return waitpid(child, NULL, 0) == child ? atoi(argv[1]) : 1;
    }
    gpu_start(0);
    CHECK_EQUAL(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
    CHECK_EQUAL(cuModuleGetFunction(&kernel, module, "nothing"), CUDA_SUCCESS);
    CHECK_EQUAL(launch(kernel), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQUAL(launch(kernel), CUDA_ERROR_NO_BINARY_FOR_GPU);
    return atoi(argv[1]);
}
