/*
 * GPUs of different kinds without gdrdrv. Those whose memory can be mapped as a dma-buf work, whatever the others
 * lack. A pin on one that cannot fails with an error that names the GPU.
 */

#include "kit/library.h"

#include <fcntl.h>
#include <pthread.h>

enum { MAX_GPUS = 8 };

struct gpu {
    int number;
    CUcontext context;
    CUdeviceptr allocation, address;
    int supported;
};

static gdr_t g;
static struct gpu gpus[MAX_GPUS];
static int count;

static int can_map_dmabufs(CUdevice device)
{
    int can = 0;

    if (cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED, device) != CUDA_SUCCESS)
        waive("this driver does not report which GPUs can map dma-bufs (CUDA 13.5 does)");
    return can;
}

static void find_gpus(void)
{
    int i;

    CUDA(cuInit(0));
    CUDA(cuDeviceGetCount(&count));
    count = count < MAX_GPUS ? count : MAX_GPUS;
    for (i = 0; i < count; i++) {
        struct gpu *gpu = &gpus[i];
        CUdevice device;

        CUDA(cuDeviceGet(&device, i));
        gpu->number = i;
        gpu->supported = can_map_dmabufs(device);
        CUDA(cuDevicePrimaryCtxRetain(&gpu->context, device));
        CUDA(cuCtxSetCurrent(gpu->context));
        CUDA(cuMemAlloc(&gpu->allocation, 2 * GPU_PAGE_SIZE));
        gpu->address = round_up(gpu->allocation, GPU_PAGE_SIZE);
    }
}

static void give_gpus_back(void)
{
    int i;

    for (i = 0; i < count; i++) {
        CUDA(cuCtxSetCurrent(gpus[i].context));
        CUDA(cuMemFree(gpus[i].allocation));
        CUDA(cuDevicePrimaryCtxRelease(i));
    }
}

/* A pin of this GPU works, and the GPU sees writes through the mapping. */
static void check_works(const struct gpu *gpu)
{
    static uint32_t last;
    uint32_t sent = __atomic_add_fetch(&last, 0x9e3779b9u, __ATOMIC_RELAXED), seen = ~sent;
    gdr_mh_t handle = pin(g, gpu->address, GPU_PAGE_SIZE);
    void *va = map(g, handle, GPU_PAGE_SIZE);

    CHECK_OK(gdr_copy_to_mapping(handle, va, &sent, sizeof(sent)));
    CUDA(cuCtxSetCurrent(gpu->context));
    gpu_read(&seen, gpu->address, sizeof(seen));
    CHECK_EQUAL(seen, sent);
    CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

static void check_refused(const struct gpu *gpu)
{
    gdr_mh_t handle = {7};

    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)gpu->address, GPU_PAGE_SIZE, 0, 0, &handle), EOPNOTSUPP);
    CHECK_EQUAL(handle.h, 7);
}

static void answer_of(const struct gpu *gpu)
{
    if (gpu->supported)
        check_works(gpu);
    else
        check_refused(gpu);
}

static void one_after_the_other(void)
{
    int i;

    for (i = 0; i < count; i++)
        answer_of(&gpus[i]);
    for (i = count - 1; i >= 0; i--)
        answer_of(&gpus[i]);
}

/* Host memory is not blamed on the GPU whose context is current. */
static void host_memory_is_invalid(void)
{
    gdr_mh_t handle = {7};
    char memory[100];
    int i;

    for (i = 0; i < count; i++) {
        CUDA(cuCtxSetCurrent(gpus[i].context));
        CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)memory, sizeof(memory), 0, 0, &handle), EINVAL);
    }
    CHECK_EQUAL(handle.h, 7);
}

/* A page that begins and ends in no allocation, while another GPU's context is current. */
static void gpu_is_that_of_the_memory_in_the_page(void)
{
    CUdeviceptr before, inside, after;
    gdr_mh_t handle;
    int i;

    for (i = 0; i < count; i++) {
        struct gpu page = gpus[i];

        CUDA(cuCtxSetCurrent(page.context));
        CUDA(cuMemAlloc(&before, GPU_PAGE_SIZE / 2));
        CUDA(cuMemAlloc(&inside, 4096));
        CUDA(cuMemAlloc(&after, GPU_PAGE_SIZE));
        CUDA(cuMemFree(before));
        CUDA(cuMemFree(after));
        page.address = round_down(inside, GPU_PAGE_SIZE);
        CUDA(cuCtxSetCurrent(gpus[(i + 1) % count].context));
        if (!page.supported) {
            check_refused(&page);
        } else {
            handle = pin(g, page.address, GPU_PAGE_SIZE);
            (void)map(g, handle, GPU_PAGE_SIZE);
            CHECK_OK(gdr_unpin_buffer(g, handle));
        }
        CUDA(cuCtxSetCurrent(page.context));
        CUDA(cuMemFree(inside));
    }
}

static void *again_and_again(void *gpu)
{
    long i, many = rounds(2000);

    for (i = 0; i < many; i++)
        answer_of(gpu);
    return NULL;
}

static void at_the_same_time(void)
{
    pthread_t threads[MAX_GPUS];
    int i;

    for (i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, again_and_again, &gpus[i]) == 0);
    for (i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Returns what the library logs for a refused pin. */
static const char *log_of_refusal(const struct gpu *gpu)
{
    static char text[4096];
    int out[2], stderr_before = dup(STDERR_FILENO);
    gdr_mh_t handle;
    ssize_t size;
    gdr_t logging;

    CHECK(stderr_before >= 0);
    CHECK(pipe(out) == 0);
    setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
    dup2(out[1], STDERR_FILENO);
    logging = gdr_open();
    CHECK(logging != NULL);
    CHECK_ERROR(gdr_pin_buffer(logging, (unsigned long)gpu->address, GPU_PAGE_SIZE, 0, 0, &handle), EOPNOTSUPP);
    CHECK_OK(gdr_close(logging));
    dup2(stderr_before, STDERR_FILENO);
    unsetenv("GDRCOPY_ENABLE_LOGGING");
    CHECK_OK(gdr_close(gdr_open())); /* re-reads the environment */
    close(stderr_before);
    close(out[1]);
    size = read(out[0], text, sizeof(text) - 1);
    close(out[0]);
    text[size > 0 ? size : 0] = '\0';
    return text;
}

static void the_log_names_the_gpu_and_the_remedy(const struct gpu *gpu)
{
    const char *log = log_of_refusal(gpu);
    char name[16];

    snprintf(name, sizeof(name), "GPU %d ", gpu->number);
    if (strstr(log, name) == NULL || strstr(log, "modprobe gdrdrv") == NULL)
        fprintf(stderr, "the log says: %s", log);
    CHECK(strstr(log, name) != NULL);
    CHECK(strstr(log, "modprobe gdrdrv") != NULL);
}

int main(void)
{
    int served = 0, i;

    g = gdr_open(); /* whatever the first GPU is */
    CHECK(g != NULL);
    if (!uses_dmabuf(g))
        waive("gdr_open chose gdrdrv");
    find_gpus();
    for (i = 0; i < count; i++)
        served += gpus[i].supported;
    if (served == 0 || served == count)
        waive("requires both GPUs that can map dma-bufs and GPUs that cannot");

    one_after_the_other();
    host_memory_is_invalid();
    gpu_is_that_of_the_memory_in_the_page();
    at_the_same_time();
    for (i = 0; i < count; i++) {
        if (!gpus[i].supported)
            the_log_names_the_gpu_and_the_remedy(&gpus[i]);
    }
    one_after_the_other();

    give_gpus_back();
    CHECK_OK(gdr_close(g));
    return passed("dmabuf_mixed");
}
