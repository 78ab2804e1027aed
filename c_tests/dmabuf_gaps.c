/*
 * Tests that the dma-buf backend pins ranges that start outside any allocation. UCX, libfabric, aws-ofi-nccl, MSCCL++
 * and NIXL round the start of a buffer down to a GPU page, and its end up. CUDA exports such a range if there is an
 * allocation in it.
 */

#include "kit/library.h"

#define SMALL 4096

static gdr_t g;

/* Returns whether CUDA knows the address. */
static int is_known(CUdeviceptr address)
{
    int ordinal;

    return cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) == CUDA_SUCCESS;
}

/* A small buffer in a GPU page, and that page. The start of the page is not allocated. */
struct gap {
    CUdeviceptr buffer, page;
    CUdeviceptr after; /* the allocation at the end of the page, or 0 if there is none */
};

static struct gap make_gap(int is_last_known)
{
    CUdeviceptr before, after;
    struct gap gap;

    CUDA(cuMemAlloc(&before, GPU_PAGE_SIZE / 2));
    CUDA(cuMemAlloc(&gap.buffer, SMALL));
    CUDA(cuMemAlloc(&after, GPU_PAGE_SIZE));
    gap.page = round_down(gap.buffer, GPU_PAGE_SIZE);
    gap.after = after;
    CUDA(cuMemFree(before));
    if (!is_last_known) {
        CUDA(cuMemFree(after));
        gap.after = 0;
    }
    return gap;
}

static void free_gap(struct gap *gap)
{
    CUDA(cuMemFree(gap->buffer));
    if (gap->after != 0)
        CUDA(cuMemFree(gap->after));
}

/* Pins and maps the page, and copies to and from the buffer through the mapping. */
static void use_gap(const struct gap *gap)
{
    gdr_mh_t handle = pin(g, gap->page, GPU_PAGE_SIZE);
    unsigned char *va = map(g, handle, GPU_PAGE_SIZE), sent[SMALL], seen[SMALL];
    size_t offset = gap->buffer - gap->page;

    CHECK_EQUAL(info_of(g, handle).va, gap->page);
    fill(sent, SMALL, (unsigned)offset);
    CHECK_OK(gdr_copy_to_mapping(handle, va + offset, sent, SMALL));
    CHECK_OK(gdr_copy_from_mapping(handle, seen, va + offset, SMALL));
    CHECK_BYTES(seen, sent, SMALL);
    unmap_and_unpin(g, handle, va, GPU_PAGE_SIZE);
}

static void *use_gap_without_context(void *gap)
{
    CUcontext context;

    use_gap(gap);
    CUDA(cuCtxGetCurrent(&context));
    CHECK(context == NULL);
    return NULL;
}

static void page_that_begins_in_no_allocation_is_pinned(CUcontext other, int gpus)
{
    struct gap gap = make_gap(1);
    CUcontext own, now;

    CUDA(cuCtxGetCurrent(&own));
    CHECK(gap.page != gap.buffer);
    CHECK(!is_known(gap.page));
    CHECK(is_known(gap.page + GPU_PAGE_SIZE - 1));
    use_gap(&gap);
    in_thread(use_gap_without_context, &gap);
    if (gpus > 1) {
        /* The pinned memory selects the GPU, even if the context of another GPU is current. */
        CUDA(cuCtxSetCurrent(other));
        use_gap(&gap);
        CUDA(cuCtxGetCurrent(&now));
        CHECK_EQUAL(now, other);
        CUDA(cuCtxSetCurrent(own));
    }
    free_gap(&gap);
}

static void page_with_an_allocation_inside_is_pinned(void)
{
    struct gap gap = make_gap(0);

    CHECK(!is_known(gap.page));
    CHECK(!is_known(gap.page + GPU_PAGE_SIZE - 1));
    use_gap(&gap);
    in_thread(use_gap_without_context, &gap);
    free_gap(&gap);
}

/*
 * CUDA reports no memory at the addresses where the range begins and ends. Still it exports the range as a dma-buf,
 * because there is an allocation in the middle.
 */
static void range_with_an_allocation_far_inside_is_pinned(int gpus)
{
    CUdeviceptr before, inside, after;

    CUDA(cuMemAlloc(&before, 2 * GPU_PAGE_SIZE));
    CUDA(cuMemAlloc(&inside, SMALL));
    CUDA(cuMemAlloc(&after, 2 * GPU_PAGE_SIZE));
    CUDA(cuMemFree(before));
    CUDA(cuMemFree(after));
    before = round_down(inside, GPU_PAGE_SIZE) - GPU_PAGE_SIZE;
    gdr_mh_t handle = pin(g, before, 3 * GPU_PAGE_SIZE);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    if (gpus == 1) {
        CUcontext own;

        CUDA(cuCtxGetCurrent(&own));
        CUDA(cuCtxSetCurrent(NULL));
        handle = pin(g, before, 3 * GPU_PAGE_SIZE);
        CHECK_OK(gdr_unpin_buffer(g, handle));
        CUDA(cuCtxSetCurrent(own));
    }
    CUDA(cuMemFree(inside));
}

static void page_without_an_allocation_is_refused(void)
{
    struct gap gap = make_gap(0);
    gdr_mh_t handle = {7};

    free_gap(&gap);
    CHECK(!is_known(gap.buffer));
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)gap.page, GPU_PAGE_SIZE, 0, 0, &handle), EINVAL);
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)&gap, sizeof(gap), 0, 0, &handle), EINVAL);
    CHECK_EQUAL(handle.h, 7);
}

int main(void)
{
    CUcontext first;
    int gpus;

    g = open_dmabufs();
    gpu_init();
    CUDA(cuCtxGetCurrent(&first));
    CUDA(cuDeviceGetCount(&gpus));
    for (int i = gpus - 1; i >= 0; i--) {
        gpu_start(i);
        page_that_begins_in_no_allocation_is_pinned(i > 0 ? first : NULL, i > 0 ? gpus : 1);
        page_with_an_allocation_inside_is_pinned();
        range_with_an_allocation_far_inside_is_pinned(gpus);
        page_without_an_allocation_is_refused();
        CUDA(cuDevicePrimaryCtxRelease(i));
    }
    CHECK_OK(gdr_close(g));
    return passed("dmabuf_gaps");
}
