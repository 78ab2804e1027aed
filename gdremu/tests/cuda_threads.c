/* Eight threads allocate, fill, read back and free at once, and no thread sees another's
   memory. */

#include "cuda_values.h"

enum { THREADS = 8, ROUNDS = 64, LIVE = 6 };

static CUcontext context;

static void *work(void *argument)
{
    static const size_t sizes[LIVE] = {1, 700, 5000, 65536, 300000, 3 << 20};
    unsigned char value = *(unsigned char *)argument;
    CUdeviceptr buffers[LIVE];

    CUDA(cuCtxSetCurrent(context));
    unsigned char *in = malloc(sizes[LIVE - 1]);
    CHECK(in != NULL);
    for (int round = 0; round < ROUNDS / (int)slowness(); round++) {
        for (int i = 0; i < LIVE; i++) {
            buffers[i] = allocated(sizes[i]);
            CUDA(cuMemsetD8(buffers[i], value, sizes[i]));
        }
        for (int i = 0; i < LIVE - (round % 16 != 0); i++) {
            CUDA(cuMemcpyDtoH(in, buffers[i], sizes[i]));
            CHECK(in[0] == value && memcmp(in, in + 1, sizes[i] - 1) == 0);
        }
        for (int i = 0; i < LIVE; i++)
            CUDA(cuMemFree(buffers[i]));
    }
    free(in);
    return NULL;
}

int main(void)
{
    unsigned char values[THREADS];
    pthread_t threads[THREADS];

    context = gpu_start(0);
    size_t before = free_bytes();
    for (int i = 0; i < THREADS; i++) {
        values[i] = (unsigned char)(i + 1);
        threads[i] = start_thread(work, &values[i]);
    }
    for (int i = 0; i < THREADS; i++)
        finish_thread(threads[i]);
    CHECK_EQUAL(free_bytes(), before);
    return passed("cuda_threads");
}
