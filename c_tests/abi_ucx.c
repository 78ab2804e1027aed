/*
 * UCX is linked. It opens and closes while it queries its components, in a process that forks afterwards and whose
 * children use CUDA. Then it opens again, registers under a lock, and copies from many threads without one.
 */

#include "kit/library.h"

#include <pthread.h>

enum { THREADS = 4, COPIES = 200, PART = 1000 };

static gdr_mh_t handle;
static char *mapping;

static void query_components(void)
{
    int major, minor, i;

    gdr_runtime_get_version(&major, &minor);
    CHECK(major == 2 && minor > 3);
    for (i = 0; i < 3; i++) {
        gdr_t g = gdr_open();

        CHECK(g != NULL);
        CHECK_OK(gdr_close(g));
    }
}

static void *put_and_get(void *number)
{
    size_t me = (size_t)number;
    unsigned char sent[PART], seen[PART];
    char *place = mapping + me * 4096 + me;
    int i;

    for (i = 0; i < COPIES; i++) {
        memset(sent, (int)me * 16 + i, sizeof(sent));
        CHECK_OK(gdr_copy_to_mapping(handle, place, sent, sizeof(sent)));
        CHECK_OK(gdr_copy_from_mapping(handle, seen, place, sizeof(seen)));
        CHECK_BYTES(seen, sent, sizeof(sent));
    }
    return NULL;
}

static void work(void)
{
    pthread_t threads[THREADS];
    struct gpu_buffer buffer;
    gdr_info_t info;
    void *va;
    size_t i;
    gdr_t g = gdr_open();

    CHECK(g != NULL);
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    va = map(g, handle, GPU_PAGE_SIZE);
    info = info_of(g, handle);
    mapping = (char *)va + (buffer.address - info.va);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, put_and_get, (void *)i) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

int main(void)
{
    pid_t child;
    int status;

    query_components();
    /* Probing must not have initialized CUDA, because it would be unusable in the child. */
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        work();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    work();
    return passed("abi_ucx");
}
