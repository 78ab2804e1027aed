/*
 * Tests of gdr_open without gdrdrv. While CUDA is not initialized, gdr_open neither queries a GPU nor initializes
 * CUDA, because children that are forked after CUDA was initialized cannot use CUDA. Once CUDA is initialized, gdr_open
 * succeeds only if some GPU's dma-bufs can be mapped.
 */

#include "kit/library.h"
#include "logged.h"

static void open_once(void)
{
    gdr_t g = gdr_open();

    if (g != NULL)
        CHECK_OK(gdr_close(g));
}

/*
 * Returns whether CUDA reports that a GPU's dma-bufs can be mapped. Before CUDA 13.5, CUDA reports only whether they
 * can be exported, so this function then returns whether they can be exported.
 */
static int can_map(CUdevice device)
{
    int can = 0;

    if (cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED, device) != CUDA_SUCCESS)
        CUDA(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device));
    return can;
}

static int gpus_that_can(void)
{
    int count, can = 0;

    CUDA(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++)
        can += can_map(i);
    return can;
}

static void open_before_cuda_is_initialized_succeeds(void)
{
    gdr_t g = open_dmabufs();
    int count;

    CHECK_EQUAL(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_OK(gdr_close(g));
}

static void open_after_cuda_is_initialized_needs_a_gpu_that_maps(void)
{
    int before = open_descriptors();

    CUDA(cuInit(0));
    for (int i = 0; i < 3; i++) {
        gdr_t g = gdr_open();

        CHECK_EQUAL(g != NULL, gpus_that_can() > 0);
        if (g != NULL)
            CHECK_OK(gdr_close(g));
    }
    CHECK_EQUAL(open_descriptors(), before);
    if (gpus_that_can() == 0)
        CHECK_LOGGED(log_of(open_once, "4"), "dma-buf");
    else
        CHECK_STRING(log_of(open_once, "3"), "");
}

/* ---- CUDA exports the dma-buf, but mmap of it fails ---- */

static gdr_mh_t handle;
static gdr_t g;

static void map_fails(void)
{
    void *va = NULL;

    CHECK_OK(gdr_close(gdr_open())); /* so that the library reads the log's settings */
    CHECK(gdr_map(g, handle, &va, GPU_PAGE_SIZE) != 0);
    CHECK(va == NULL);
}

static void the_log_of_a_failing_map(void)
{
    void *va = NULL;

    gpu_init();
    if (!can_map(0) || (g = gdr_open()) == NULL)
        return;
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    if (gdr_map(g, handle, &va, GPU_PAGE_SIZE) != 0) {
        const char *log = log_of(map_fails, "4");

        CHECK_LOGGED(log, "mmap");
        CHECK_NOT_LOGGED(log, "mmap of /dev/gdrdrv");
    }
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

/* gdr_open does not initialize CUDA, so only the pin finds that there is no GPU. */
static void open_without_a_gpu_succeeds_and_the_pin_fails(void)
{
    g = open_driver();
    CHECK_ERROR(gdr_pin_buffer(g, GPU_PAGE_SIZE, GPU_PAGE_SIZE, 0, 0, &handle), EIO);
    CHECK_OK(gdr_close(g));
}

int main(void)
{
    open_before_cuda_is_initialized_succeeds();
    if (cuInit(0) == CUDA_ERROR_NO_DEVICE) {
        open_without_a_gpu_succeeds_and_the_pin_fails();
        return passed("dmabuf_open");
    }
    open_after_cuda_is_initialized_needs_a_gpu_that_maps();
    the_log_of_a_failing_map();
    return passed("dmabuf_open");
}
