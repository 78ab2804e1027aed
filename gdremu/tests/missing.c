/* Functions of NVIDIA's libraries that gdremu does not have. */
#include "kit/check.h"

int cuMulticastCreate(void *handle, const void *properties);
int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind);
int cudaGetLastError(void);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius);

int main(void)
{
    char bytes[4] = "abc";
    unsigned int celsius = 77;

    for (int time = 0; time < 2; time++) {
        CHECK_EQUAL(cuMulticastCreate(NULL, NULL), 801);
        CHECK_EQUAL(cudaMemcpy2D(bytes, 1, bytes + 1, 1, 1, 1, 4), 801);
        CHECK_EQUAL(cudaGetLastError(), 801);
        CHECK_EQUAL(cudaGetLastError(), 0);
        CHECK_EQUAL(nvmlDeviceGetTemperature(NULL, 0, &celsius), 3);
    }
    CHECK(bytes[0] == 'a' && celsius == 77);
    return passed("missing");
}
