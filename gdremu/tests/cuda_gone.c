/*
 * Calls that NVIDIA's driver does not check, and crashes in or after (H200, driver 580.159.04). gdremu ends the
 * program. Streams of a context that was destroyed or reset, and a destroyed context that becomes current.
 */

#include "cuda_values.h"

#include <signal.h>

static CUcontext context;
static CUstream stream;

/* The last two only use the context. */
enum use { NOTHING, QUERY, COPY, DESTROY, SET_CURRENT, PUSH_CURRENT };

static void do_use(enum use use)
{
    char byte;

    if (use == QUERY)
        cuStreamQuery(stream);
    else if (use == COPY)
        cuMemcpyDtoHAsync(&byte, allocated(1), 1, stream);
    else if (use == DESTROY)
        cuStreamDestroy(stream);
    else if (use == SET_CURRENT)
        cuCtxSetCurrent(context);
    else if (use == PUSH_CURRENT)
        cuCtxPushCurrent(context);
}

static void after_destroy(enum use use)
{
    CUcontext other;

    CUDA(cuCtxCreate(&context, 0, 0));
    CUDA(cuStreamCreate(&stream, 1));
    CUDA(cuCtxCreate(&other, 0, 0));
    CUDA(cuCtxDestroy(context));
    do_use(use);
}

static void after_reset(enum use use)
{
    context = gpu_start(0);
    CUDA(cuStreamCreate(&stream, 1));
    CUDA(cuDevicePrimaryCtxReset(0));
    CHECK(gpu_start(0) == context); /* as on a GPU */
    do_use(use);
}

/* How a program ends that does this. */
static int status_of(void (*after)(enum use), enum use use)
{
    int status;

    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CUDA(cuInit(0));
        after(use);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

int main(void)
{
    for (enum use use = QUERY; use <= PUSH_CURRENT; use++)
        CHECK_EQUAL(status_of(after_destroy, use), SIGABRT);
    for (enum use use = QUERY; use <= DESTROY; use++)
        CHECK_EQUAL(status_of(after_reset, use), SIGABRT);
    CHECK_EQUAL(status_of(after_destroy, NOTHING), 0);
    CHECK_EQUAL(status_of(after_reset, NOTHING), 0);
    return passed("cuda_gone");
}
