/* Tests of gdr_pin_buffer, gdr_pin_buffer_v2 and gdr_unpin_buffer. */

#include "kit/library.h"

#define KIB 1024UL
#define UNTOUCHED 0x5a5a5a5aUL

/* A range to pin by gdr_pin_buffer and by gdr_pin_buffer_v2. */
struct attempt {
    size_t offset; /* from the start of a buffer of 512 KiB */
    size_t size;
    size_t pages; /* number of GPU pages that gdrdrv pins for the range */
};

static const struct attempt good[] = {
    {0, 256 * KIB, 4},                /* whole pages */
    {0, 1, 1},                        /* one byte takes a whole page */
    {0, 64 * KIB + 1, 2},             /* one byte into the next page */
    {4, 64 * KIB, 2},                 /* unaligned, in two pages */
    {64 * KIB - 1, 2, 2},             /* one byte on each side of a boundary */
    {4 * KIB, 4 * KIB, 1},            /* aligned to host pages, not to GPU pages */
    {100 * KIB, 100 * KIB, 3},        /* unaligned at both ends, in pages 1 to 3 */
    {12345, 0, 1},                    /* a size of 0 at an unaligned address takes one page */
};

/* Returns how many bytes are pinned: whole pages, and a page for a size of 0. */
static size_t pinned_bytes(gdr_t g, const struct attempt *attempt)
{
    size_t page = pin_page(g);
    size_t size = attempt->size > 0 ? attempt->size : 1;

    if (!uses_dmabuf(g))
        return attempt->pages * GPU_PAGE_SIZE;
    return round_up(attempt->offset + size, page) - round_down(attempt->offset, page);
}

static void ranges_are_rounded_out_to_pages(enum gpu_memory kind)
{
    struct gpu_buffer buffer = gpu_alloc(kind, 512 * KIB);
    gdr_t g = gdr_open();

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        for (uint32_t v2 = 0; v2 < 2; v2++) {
            unsigned long address = (unsigned long)buffer.address + good[i].offset;
            gdr_mh_t handle = {0};

            if (v2)
                CHECK_OK(gdr_pin_buffer_v2(g, address, good[i].size, GDR_PIN_FLAG_DEFAULT, &handle));
            else
                CHECK_OK(gdr_pin_buffer(g, address, good[i].size, 0, 0, &handle));
            CHECK(handle.h != 0);
            gdr_info_t info = info_of(g, handle);
            CHECK_EQUAL(info.va, round_down(address, pin_page(g)));
            CHECK_EQUAL(info.mapped_size, pinned_bytes(g, &good[i]));
            CHECK_EQUAL(info.page_size, pin_page(g));
            CHECK_OK(gdr_unpin_buffer(g, handle));
        }
    }
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

/* Checks that both pin functions refuse the range, and do not write *handle. */
static void refused(gdr_t g, unsigned long address, size_t size)
{
    gdr_mh_t handle = {UNTOUCHED};

    CHECK_ERROR(gdr_pin_buffer(g, address, size, 0, 0, &handle), EINVAL);
    CHECK_EQUAL(handle.h, UNTOUCHED);
    CHECK_ERROR(gdr_pin_buffer_v2(g, address, size, 0, &handle), EINVAL);
    CHECK_EQUAL(handle.h, UNTOUCHED);
}

static void what_is_not_gpu_memory_is_refused(void)
{
    struct gpu_buffer buffer = gpu_alloc(MEM_CREATE, 256 * KIB);
    unsigned long address = (unsigned long)buffer.address;
    gdr_t g = gdr_open();
    void *host = NULL;

    CHECK(posix_memalign(&host, GPU_PAGE_SIZE, GPU_PAGE_SIZE) == 0);
    refused(g, (unsigned long)host, GPU_PAGE_SIZE);
    free(host);
    CUDA(cuMemHostAlloc(&host, GPU_PAGE_SIZE, 0));
    refused(g, (unsigned long)host, GPU_PAGE_SIZE);
    CUDA(cuMemFreeHost(host));

    refused(g, 0, GPU_PAGE_SIZE);
    refused(g, address, 0);
    refused(g, address, buffer.size + 1);
    refused(g, address, (size_t)1 << 40);
    refused(g, address, SIZE_MAX);
    refused(g, address + buffer.size, GPU_PAGE_SIZE);

    struct gpu_buffer freed = gpu_alloc(MEM_CREATE, 256 * KIB);
    address = (unsigned long)freed.address;
    gpu_free(&freed);
    refused(g, address, GPU_PAGE_SIZE);

    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

/* ---- Pins of one buffer ---- */

enum { PAGES = 16 };

static struct gpu_buffer buffer;
static gdr_t g;

static void begin(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, PAGES * GPU_PAGE_SIZE);
    g = open_driver();
}

static void end(void)
{
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

static void null_arguments_are_refused(void)
{
    unsigned long address = (unsigned long)buffer.address;

    CHECK_ERROR(gdr_pin_buffer(g, address, GPU_PAGE_SIZE, 0, 0, NULL), EINVAL);
    CHECK_ERROR(gdr_pin_buffer_v2(g, address, GPU_PAGE_SIZE, 0, NULL), EINVAL);
    CHECK_ERROR(gdr_pin_buffer(NULL, address, GPU_PAGE_SIZE, 0, 0, NULL), EINVAL);
    refused(NULL, address, GPU_PAGE_SIZE);
}

/* Drivers from 2.5 on take no tokens, so the library then ignores tokens. Older drivers refuse wrong tokens. */
static void wrong_tokens_are_ignored_or_refused(void)
{
    gdr_mh_t handle = {UNTOUCHED};
    int result = gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0x1234, 0x56, &handle);

    if (driver_is_at_least(g, 2, 5)) {
        CHECK_EQUAL(result, 0);
        CHECK_EQUAL(info_of(g, handle).mapped_size, GPU_PAGE_SIZE);
        CHECK_OK(gdr_unpin_buffer(g, handle));
    } else {
        CHECK_EQUAL(result, EINVAL);
        CHECK_EQUAL(handle.h, UNTOUCHED);
    }
}

/* The library ignores unknown flags. Drivers before 2.5 have no flags at all, so with them any flag makes pins fail. */
static void unknown_flags_are_ignored(void)
{
    static const uint32_t flags[] = {2, 0x80000000u, ~(uint32_t)GDR_PIN_FLAG_FORCE_PCIE};
    gdr_mh_t handle;

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        int result = gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, flags[i], &handle);

        CHECK_EQUAL(result, driver_is_at_least(g, 2, 5) ? 0 : EINVAL);
        if (result == 0)
            CHECK_OK(gdr_unpin_buffer(g, handle));
    }
}

/* A GPU without a coherent link refuses FORCE_PCIE, and callers then pin again without it. */
static void force_pcie_succeeds_or_fails_cleanly(void)
{
    unsigned long address = (unsigned long)buffer.address;
    gdr_mh_t handle = {UNTOUCHED};
    int known = 0;
    int result = gdr_pin_buffer_v2(g, address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle);

    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &known));
    if (result == 0) {
        CHECK_EQUAL(known, 1);
        CHECK_OK(gdr_unpin_buffer(g, handle));
    } else {
        CHECK_EQUAL(result, known && is_persistent(g) ? EOPNOTSUPP : EINVAL);
        CHECK_EQUAL(handle.h, UNTOUCHED);
    }
    handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    CHECK(result != 0 || platform_flag(g, handle) != GDR_MAP_FLAG_REQ_WC_MAPPING);
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

/* GDRCOPY_FORCE_PCIE_COMPAT lets FORCE_PCIE succeed on a GPU that has only PCIe, where all pins go through PCIe. */
static void force_pcie_can_be_made_to_succeed(void)
{
    gdr_mh_t handle = {0};

    setenv("GDRCOPY_FORCE_PCIE_COMPAT", "1", 1);
    begin();
    if (driver_is_at_least(g, 2, 5)) {
        CHECK_OK(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle));
        CHECK_EQUAL(info_of(g, handle).va, buffer.address);
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    end();
}

/* Each pin has its own handle, and keeps its GPU page, in whatever order other pins are unpinned. */
static void many_pins_stay_distinct(void)
{
    enum { PINS = 1000 };
    static gdr_mh_t handles[PINS];

    for (int i = 0; i < PINS; i++)
        handles[i] = pin(g, buffer.address + (CUdeviceptr)(i % PAGES) * GPU_PAGE_SIZE, GPU_PAGE_SIZE);
    for (int i = 1; i < PINS; i += 2)
        CHECK_OK(gdr_unpin_buffer(g, handles[i]));
    for (int i = 0; i < PINS; i += 2)
        CHECK_EQUAL(info_of(g, handles[i]).va, buffer.address + (CUdeviceptr)(i % PAGES) * GPU_PAGE_SIZE);
    for (int i = 1; i < PINS; i += 2)
        CHECK_ERROR(gdr_unpin_buffer(g, handles[i]), EINVAL);
}

int main(void)
{
    in_child(force_pcie_can_be_made_to_succeed);
    gpu_init();
    ranges_are_rounded_out_to_pages(MEM_ALLOC);
    ranges_are_rounded_out_to_pages(MEM_CREATE);
    what_is_not_gpu_memory_is_refused();
    begin();
    null_arguments_are_refused();
    wrong_tokens_are_ignored_or_refused();
    unknown_flags_are_ignored();
    force_pcie_succeeds_or_fails_cleanly();
    many_pins_stay_distinct();
    end();
    return passed("pin");
}
