/* Under --fault cuMemAlloc:2@2,cuDriverGetVersion:999, the second cuMemAlloc fails, cuDriverGetVersion always does. */
#include "cuda_values.h"

int main(void)
{
    CUdeviceptr address;
    int version;

    gpu_start(0);
    CUDA(cuMemAlloc(&address, 1));
    CHECK_EQUAL(cuMemAlloc(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    CUDA(cuMemAlloc(&address, 1));
    CHECK_EQUAL(cuDriverGetVersion(&version), CUDA_ERROR_UNKNOWN);
    CHECK_EQUAL(cuDriverGetVersion(&version), CUDA_ERROR_UNKNOWN);
    return passed("cuda_faults");
}
