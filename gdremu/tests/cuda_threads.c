/* Eight threads allocate, fill, read back and free at once, and no thread sees another's
   memory. */
#include <pthread.h>

#include "cuda_values.h"

enum { THREADS = 8, ROUNDS = 64, LIVE = 6 };

static CUcontext context;

static void *work(void *argument)
{
    static const size_t sizes[LIVE] = {1, 700, 5000, 65536, 300000, 3 << 20};
    unsigned char value = *(unsigned char *)argument, *in;
    CUdeviceptr buffers[LIVE];
    int round, i;

    CUDA(cuCtxSetCurrent(context));
    in = malloc(sizes[LIVE - 1]);
    CHECK(in != NULL);
    for (round = 0; round < ROUNDS / (int)slowness(); round++) {
        for (i = 0; i < LIVE; i++) {
            buffers[i] = allocated(sizes[i]);
            CUDA(cuMemsetD8(buffers[i], value, sizes[i]));
        }
        for (i = 0; i < LIVE - (round % 16 != 0); i++) {
            CUDA(cuMemcpyDtoH(in, buffers[i], sizes[i]));
            CHECK(in[0] == value && memcmp(in, in + 1, sizes[i] - 1) == 0);
        }
        for (i = 0; i < LIVE; i++)
            CUDA(cuMemFree(buffers[i]));
    }
    free(in);
    return NULL;
}

int main(void)
{
    unsigned char values[THREADS];
    pthread_t threads[THREADS];
    size_t before;
    int i;

    context = gpu_start(0);
    before = free_bytes();
    for (i = 0; i < THREADS; i++) {
        values[i] = (unsigned char)(i + 1);
        CHECK_EQUAL(pthread_create(&threads[i], NULL, work, &values[i]), 0);
    }
    for (i = 0; i < THREADS; i++)
        CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
    CHECK_EQUAL(free_bytes(), before);
    return passed("cuda_threads");
}
