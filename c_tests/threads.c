/* Threads may call any function at any time. Here, some threads copy while others call the other functions. */

#include "kit/library.h"

#include <pthread.h>

enum { COPIERS = 8, CHURNERS = 4, COPY = 1024 };

static gdr_t g;
static struct gpu_buffer buffer;
static CUcontext context;
static int stop;
static long copies;

static void use_gpu(void)
{
    CUDA(cuCtxSetCurrent(context));
}

/* Copies to and from its own pin, and compares the bytes. CUDA must see them, too. */
static void *copier(void *number)
{
    size_t me = (size_t)number;
    CUdeviceptr address = buffer.address + me * GPU_PAGE_SIZE;
    gdr_mh_t handle = pin(g, address, GPU_PAGE_SIZE);
    unsigned char *va = map(g, handle, GPU_PAGE_SIZE);
    unsigned char sent[COPY], seen[COPY];

    use_gpu();
    for (long i = 0; i < copies; i++) {
        size_t at = (size_t)i * 61 % (GPU_PAGE_SIZE - COPY), size = (size_t)i * 7 % COPY;

        fill(sent, size, (unsigned)(me + (size_t)i));
        CHECK_OK(gdr_copy_to_mapping(handle, va + at, sent, size));
        CHECK_OK(gdr_copy_from_mapping(handle, seen, va + at, size));
        CHECK_BYTES(seen, sent, size);
        if (i % 16 == 0) {
            gpu_read(seen, address + at, size);
            CHECK_BYTES(seen, sent, size);
        }
    }
    unmap_and_unpin(g, handle, va, GPU_PAGE_SIZE);
    return NULL;
}

/* Pins, maps, queries, unmaps and unpins on the shared connection. */
static void *churner(void *number)
{
    CUdeviceptr address = buffer.address + (COPIERS + (size_t)number) * GPU_PAGE_SIZE;

    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        gdr_mh_t handle = pin(g, address, GPU_PAGE_SIZE);
        uint64_t written = (uint64_t)handle.h, read = 0;
        void *va = map(g, handle, GPU_PAGE_SIZE);
        int flag = -1;

        CHECK_EQUAL(info_of(g, handle).va, address);
        CHECK_EQUAL(info_of(g, handle).mapped, 1);
        CHECK_OK(gdr_get_callback_flag(g, handle, &flag));
        CHECK_OK(gdr_copy_to_mapping(handle, va, &written, sizeof(written)));
        CHECK_OK(gdr_copy_from_mapping(handle, &read, va, sizeof(read)));
        CHECK_EQUAL(read, written);
        unmap_and_unpin(g, handle, va, GPU_PAGE_SIZE);
        CHECK_ERROR(gdr_unpin_buffer(g, handle), EINVAL);
    }
    return NULL;
}

/* Opens connections of its own, and closes them while they have a pin. */
static void *opener(void *unused)
{
    CUdeviceptr address = buffer.address + (COPIERS + CHURNERS) * GPU_PAGE_SIZE;
    int major, minor;

    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        gdr_t own = gdr_open();

        CHECK(own != NULL && own != g);
        gdr_mh_t handle = pin(own, address, GPU_PAGE_SIZE);
        map(own, handle, GPU_PAGE_SIZE);
        CHECK_OK(gdr_driver_get_version(own, &major, &minor));
        CHECK_ERROR(gdr_unpin_buffer(g, handle), EINVAL);
        CHECK_OK(gdr_close(own));
        CHECK_ERROR(gdr_close(own), EINVAL);
    }
    return NULL;
}

static void copies_work_while_other_threads_pin_and_unpin(void)
{
    pthread_t copiers[COPIERS], churners[CHURNERS];

    stop = 0;
    for (size_t i = 0; i < COPIERS; i++)
        copiers[i] = start_thread(copier, (void *)i);
    for (size_t i = 0; i < CHURNERS; i++)
        churners[i] = start_thread(churner, (void *)i);
    pthread_t one_opener = start_thread(opener, NULL);
    for (size_t i = 0; i < COPIERS; i++)
        finish_thread(copiers[i]);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < CHURNERS; i++)
        finish_thread(churners[i]);
    finish_thread(one_opener);
}

/* ---- Two threads call the same function for one handle, and exactly one of them succeeds ---- */

static gdr_mh_t contended;
static void *contended_va;
static pthread_barrier_t start;

static void *race_to_map(void *result)
{
    void *va;

    pthread_barrier_wait(&start);
    *(int *)result = gdr_map(g, contended, &va, GPU_PAGE_SIZE);
    if (*(int *)result == 0)
        contended_va = va;
    return NULL;
}

static void *race_to_unmap(void *result)
{
    pthread_barrier_wait(&start);
    *(int *)result = gdr_unmap(g, contended, contended_va, GPU_PAGE_SIZE);
    return NULL;
}

static void *race_to_unpin(void *result)
{
    pthread_barrier_wait(&start);
    *(int *)result = gdr_unpin_buffer(g, contended);
    return NULL;
}

static void one_wins(void *racer(void *), int error_of_the_other)
{
    pthread_t threads[2];
    int results[2];

    for (int i = 0; i < 2; i++)
        threads[i] = start_thread(racer, &results[i]);
    for (int i = 0; i < 2; i++)
        finish_thread(threads[i]);
    CHECK_EQUAL(results[0] == 0 ? results[1] : results[0], error_of_the_other);
    CHECK(results[0] == 0 || results[1] == 0);
}

static void races_have_one_winner(void)
{
    long races = rounds(300);

    CHECK(pthread_barrier_init(&start, NULL, 2) == 0);
    for (long i = 0; i < races; i++) {
        contended = pin(g, buffer.address, GPU_PAGE_SIZE);
        one_wins(race_to_map, EAGAIN);
        one_wins(race_to_unmap, EINVAL);
        one_wins(race_to_unpin, EINVAL);
    }
    CHECK(pthread_barrier_destroy(&start) == 0);
}

/* ---- A copy of 0 bytes reports whether the pin is mapped. It is safe while another thread unmaps or unpins ---- */

static gdr_mh_t probed;

static void *prober(void *unused)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        gdr_mh_t handle = {__atomic_load_n(&probed.h, __ATOMIC_RELAXED)};
        int result = gdr_copy_to_mapping(handle, NULL, NULL, 0);

        CHECK(result == 0 || result == EINVAL);
    }
    return unused;
}

static void a_handle_may_change_while_another_thread_uses_it(void)
{
    long times = rounds(2000);

    stop = 0;
    probed = pin(g, buffer.address, GPU_PAGE_SIZE);
    pthread_t thread = start_thread(prober, NULL);
    for (long i = 0; i < times; i++)
        CHECK_OK(gdr_unmap(g, probed, map(g, probed, GPU_PAGE_SIZE), GPU_PAGE_SIZE));
    CHECK_OK(gdr_unpin_buffer(g, probed));
    for (long i = 0; i < times; i++) {
        gdr_mh_t further = pin(g, buffer.address, GPU_PAGE_SIZE);

        map(g, further, GPU_PAGE_SIZE);
        __atomic_store_n(&probed.h, further.h, __ATOMIC_RELAXED);
        CHECK_OK(gdr_unpin_buffer(g, further));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    finish_thread(thread);
}

int main(void)
{
    gpu_init();
    CUDA(cuCtxGetCurrent(&context));
    buffer = gpu_alloc(MEM_ALLOC, (COPIERS + CHURNERS + 1) * GPU_PAGE_SIZE);
    g = open_driver();
    if (!driver_is_at_least(g, 2, 1))
        waive("gdrdrv 2.0 serves only the thread that opened it");
    copies = rounds(20000);

    copies_work_while_other_threads_pin_and_unpin();
    races_have_one_winner();
    a_handle_may_change_while_another_thread_uses_it();

    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("threads");
}
