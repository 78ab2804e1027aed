/*
 * Tests of different GPUs in one system without gdrdrv. Pins work on each GPU whose memory can be mapped as a dma-buf.
 * On a GPU whose memory cannot be mapped, a pin fails, and the log names the GPU.
 */

#include "kit/library.h"
#include "logged.h"

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
    CUDA(cuInit(0));
    CUDA(cuDeviceGetCount(&count));
    count = count < MAX_GPUS ? count : MAX_GPUS;
    for (int i = 0; i < count; i++) {
        struct gpu *gpu = &gpus[i];

        gpu->number = i;
        gpu->supported = can_map_dmabufs(i);
        gpu->context = gpu_start(i);
        CUDA(cuMemAlloc(&gpu->allocation, 2 * GPU_PAGE_SIZE));
        gpu->address = round_up(gpu->allocation, GPU_PAGE_SIZE);
    }
}

static void give_gpus_back(void)
{
    for (int i = 0; i < count; i++) {
        CUDA(cuCtxSetCurrent(gpus[i].context));
        CUDA(cuMemFree(gpus[i].allocation));
        CUDA(cuDevicePrimaryCtxRelease(i));
    }
}

/* Checks that a pin of this GPU's memory works, and that the GPU sees writes through the mapping. */
static void check_served(const struct gpu *gpu)
{
    gdr_mh_t handle = pin(g, gpu->address, GPU_PAGE_SIZE);

    CUDA(cuCtxSetCurrent(gpu->context));
    check_works(g, handle, GPU_PAGE_SIZE);
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
        check_served(gpu);
    else
        check_refused(gpu);
}

static void one_after_the_other(void)
{
    for (int i = 0; i < count; i++)
        answer_of(&gpus[i]);
    for (int i = count - 1; i >= 0; i--)
        answer_of(&gpus[i]);
}

/* A pin of host memory fails with EINVAL, even if the GPU of the current context cannot map dma-bufs. */
static void host_memory_is_invalid(void)
{
    gdr_mh_t handle = {7};
    char memory[100];

    for (int i = 0; i < count; i++) {
        CUDA(cuCtxSetCurrent(gpus[i].context));
        CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)memory, sizeof(memory), 0, 0, &handle), EINVAL);
    }
    CHECK_EQUAL(handle.h, 7);
}

/* Pins a GPU page that begins and ends outside any allocation, while the context of another GPU is current. */
static void gpu_is_that_of_the_memory_in_the_page(void)
{
    CUdeviceptr before, inside, after;

    for (int i = 0; i < count; i++) {
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
            gdr_mh_t handle = pin(g, page.address, GPU_PAGE_SIZE);

            (void)map(g, handle, GPU_PAGE_SIZE);
            CHECK_OK(gdr_unpin_buffer(g, handle));
        }
        CUDA(cuCtxSetCurrent(page.context));
        CUDA(cuMemFree(inside));
    }
}

static void *again_and_again(void *gpu)
{
    long many = rounds(2000);

    for (long i = 0; i < many; i++)
        answer_of(gpu);
    return NULL;
}

static void at_the_same_time(void)
{
    pthread_t threads[MAX_GPUS];

    for (int i = 0; i < count; i++)
        threads[i] = start_thread(again_and_again, &gpus[i]);
    for (int i = 0; i < count; i++)
        finish_thread(threads[i]);
}

static const struct gpu *refused;

static void refuse(void)
{
    CHECK_OK(gdr_close(open_driver())); /* so that the library reads the log's settings */
    check_refused(refused);
}

static void the_log_names_the_gpu_and_the_remedy(const struct gpu *gpu)
{
    char name[16];

    refused = gpu;
    const char *log = log_of(refuse, "4");
    snprintf(name, sizeof(name), "GPU %d ", gpu->number);
    CHECK_LOGGED(log, name);
    CHECK_LOGGED(log, "modprobe gdrdrv");
}

int main(void)
{
    int served = 0;

    g = open_dmabufs(); /* must succeed even if the first GPU cannot map dma-bufs */
    find_gpus();
    for (int i = 0; i < count; i++)
        served += gpus[i].supported;
    if (served == 0 || served == count)
        waive("requires both GPUs that can map dma-bufs and GPUs that cannot");

    one_after_the_other();
    host_memory_is_invalid();
    gpu_is_that_of_the_memory_in_the_page();
    at_the_same_time();
    for (int i = 0; i < count; i++) {
        if (!gpus[i].supported)
            the_log_names_the_gpu_and_the_remedy(&gpus[i]);
    }
    one_after_the_other();

    give_gpus_back();
    CHECK_OK(gdr_close(g));
    return passed("dmabuf_mixed");
}
