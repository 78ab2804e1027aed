/*
 * What NVIDIA's driver does not check, and crashes in or after (H200, driver 580.159.04): gdremu ends the program. Streams of a
 * context that was destroyed or reset, and a destroyed context that becomes current.
 */

#include "cuda_start.h"

#include <signal.h>

static CUcontext context;
static CUstream stream;

static void query(void)
{
    cuStreamQuery(stream);
}

static void destroy_stream(void)
{
    cuStreamDestroy(stream);
}

static void copy(void)
{
    CUdeviceptr address;
    char byte;

    CHECK_CUDA(cuMemAlloc(&address, 1));
    cuMemcpyDtoHAsync(&byte, address, 1, stream);
}

static void set_current(void)
{
    cuCtxSetCurrent(context);
}

static void push_current(void)
{
    cuCtxPushCurrent(context);
}

static void nothing(void)
{
}

static void after_destroy(void (*use)(void))
{
    CUcontext other;

    CHECK_CUDA(cuCtxCreate(&context, 0, 0));
    CHECK_CUDA(cuStreamCreate(&stream, 1));
    CHECK_CUDA(cuCtxCreate(&other, 0, 0));
    CHECK_CUDA(cuCtxDestroy(context));
    use();
}

static void after_reset(void (*use)(void))
{
    CUcontext next;

    CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CUDA(cuCtxSetCurrent(context));
    CHECK_CUDA(cuStreamCreate(&stream, 1));
    CHECK_CUDA(cuDevicePrimaryCtxReset(0));
    CHECK_CUDA(cuDevicePrimaryCtxRetain(&next, 0));
    CHECK(next == context); /* as on a GPU */
    CHECK_CUDA(cuCtxSetCurrent(next));
    use();
}

/* How a program ends that does this. */
static int status_of(void (*after)(void (*)(void)), void (*use)(void))
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_CUDA(cuInit(0));
        after(use);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(void)
{
    static void (*const destroyed[])(void) = {query, destroy_stream, copy, set_current, push_current};
    static void (*const reset[])(void) = {query, destroy_stream, copy};
    size_t i;

    for (i = 0; i < sizeof(destroyed) / sizeof(destroyed[0]); i++)
        CHECK_EQUAL(status_of(after_destroy, destroyed[i]), SIGABRT);
    for (i = 0; i < sizeof(reset) / sizeof(reset[0]); i++)
        CHECK_EQUAL(status_of(after_reset, reset[i]), SIGABRT);
    CHECK_EQUAL(status_of(after_destroy, nothing), 0);
    CHECK_EQUAL(status_of(after_reset, nothing), 0);
    return passed("cuda_gone");
}
