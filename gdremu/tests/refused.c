/*
 * Launches a GPU kernel that the emulated GPU refuses, twice, and exits with the status of the first argument. With a
 * second argument, a forked child launches it.
 */
#include "cuda_values.h"

static const char ptx[] = PTX(".visible .entry nothing() { .reg .f32 %f<3>; add.f32 %f1, %f1, %f2; ret; }\n");

int main(int argc, char **argv)
{
    if (argc > 2) {
        pid_t child = fork();

        if (child != 0)
            return waitpid(child, NULL, 0) == child ? atoi(argv[1]) : 1;
    }
    gpu_start(0);
    CUfunction kernel = loaded_kernel(ptx, "nothing");
    CHECK_EQUAL(launched(kernel, NULL, NULL), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQUAL(launched(kernel, NULL, NULL), CUDA_ERROR_NO_BINARY_FOR_GPU);
    return atoi(argv[1]);
}
