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

    switch (use) {
    case NOTHING:
        break;
    case QUERY:
        cuStreamQuery(stream);
        break;
    case COPY:
        cuMemcpyDtoHAsync(&byte, allocated(1), 1, stream);
        break;
    case DESTROY:
        cuStreamDestroy(stream);
        break;
    case SET_CURRENT:
        cuCtxSetCurrent(context);
        break;
    case PUSH_CURRENT:
        cuCtxPushCurrent(context);
        break;
    }
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
    CUcontext next;

    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuCtxSetCurrent(context));
    CUDA(cuStreamCreate(&stream, 1));
    CUDA(cuDevicePrimaryCtxReset(0));
    CUDA(cuDevicePrimaryCtxRetain(&next, 0));
    CHECK(next == context); /* as on a GPU */
    CUDA(cuCtxSetCurrent(next));
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
