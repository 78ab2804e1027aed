/*
 * UCX is linked. It opens and closes while it queries its components, in a process that forks afterwards and whose
 * children use CUDA. Then it opens again, registers under a lock, and copies from many threads without one.
 */

#include "kit/library.h"

enum { THREADS = 4, COPIES = 200, PART = 1000 };

static gdr_mh_t handle;
static char *mapping;

static void query_components(void)
{
    int major, minor;

    gdr_runtime_get_version(&major, &minor);
    CHECK(major == 2 && minor > 3);
    for (int i = 0; i < 3; i++) {
        gdr_t g = open_driver();

        CHECK_OK(gdr_close(g));
    }
}

static void *put_and_get(void *number)
{
    size_t me = (size_t)number;
    unsigned char sent[PART], seen[PART];
    char *place = mapping + me * 4096 + me;

    for (int i = 0; i < COPIES; i++) {
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
    gdr_t g = open_driver();

    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    void *va = map(g, handle, GPU_PAGE_SIZE);
    gdr_info_t info = info_of(g, handle);
    mapping = (char *)va + (buffer.address - info.va);
    for (size_t i = 0; i < THREADS; i++)
        threads[i] = start_thread(put_and_get, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        finish_thread(threads[i]);
    unmap_and_unpin(g, handle, va, GPU_PAGE_SIZE);
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

int main(void)
{
    query_components();
    /* Probing must not have initialized CUDA, because it would be unusable in the child. */
    in_child(work);
    work();
    return passed("abi_ucx");
}
