/*
 * Tests of pins whose address is not a multiple of the page size, which is GPU_PAGE_SIZE, or with dma-bufs the host's.
 * Such pins can be mapped only with GDRCOPY_ALLOW_UNALIGNED_MAP=1. The mapping then starts at the page that
 * gdr_get_info returns, below the pinned address. The mapped size counts from the pinned address.
 */

#include "bodies.h"
#include "kit/fault.h"
#include "logged.h"

#define UNTOUCHED ((void *)0x5a5a5a5a)

static const struct {
    size_t offset;
    size_t size;
} ranges[] = {
    {4, 8}, {256, 4096}, {4096, 4096}, {4097, GPU_PAGE_SIZE}, {GPU_PAGE_SIZE - 1, 2}, {100, 2 * GPU_PAGE_SIZE},
    {GPU_PAGE_SIZE + 512, GPU_PAGE_SIZE - 512},
};
enum { RANGES = sizeof(ranges) / sizeof(ranges[0]) };

static struct gpu_buffer buffer;
static gdr_t g;

/* Opens the driver with this value of GDRCOPY_ALLOW_UNALIGNED_MAP, or without the variable if `value` is NULL. */
static void begin(const char *value)
{
    if (value != NULL)
        setenv("GDRCOPY_ALLOW_UNALIGNED_MAP", value, 1);
    else
        unsetenv("GDRCOPY_ALLOW_UNALIGNED_MAP");
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, 4 * GPU_PAGE_SIZE);
    g = open_driver();
}

static void end(void)
{
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
}

static void refused(const char *value)
{
    begin(value);
    for (size_t i = 0; i < RANGES; i++) {
        gdr_mh_t handle = pin(g, buffer.address + ranges[i].offset, ranges[i].size);
        void *va = UNTOUCHED;

        if (ranges[i].offset % pin_page(g) == 0) {
            CHECK_OK(gdr_map(g, handle, &va, ranges[i].size));
        } else {
            CHECK_ERROR(gdr_map(g, handle, &va, ranges[i].size), EINVAL);
            CHECK_EQUAL(va, UNTOUCHED);
            CHECK_EQUAL(info_of(g, handle).mapped, 0);
        }
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    end();
}

void unaligned_pins_are_refused_by_default(void)
{
    refused(NULL);
}

static void refused_unless_the_value_is_1(void)
{
    refused("0");
}

/* Checks that CPU and CUDA see the same bytes in the range, and that no byte next to it changes. */
static void shows_the_range(gdr_mh_t handle, unsigned char *range, CUdeviceptr address, size_t size)
{
    static unsigned char seen[2 * GPU_PAGE_SIZE + 2];

    check_shows(handle, range, address, size);
    gpu_read(seen, address - 1, size + 2);
    CHECK_EQUAL(seen[0], 0xee);
    CHECK_EQUAL(seen[size + 1], 0xee);
}

static void unaligned_pins_map_when_allowed(void)
{
    begin("1");
    for (size_t i = 0; i < RANGES; i++) {
        CUdeviceptr address = buffer.address + ranges[i].offset;
        gdr_mh_t handle = pin(g, address, ranges[i].size);
        unsigned char *va = map(g, handle, ranges[i].size);
        gdr_info_t info = info_of(g, handle);

        CHECK_EQUAL(info.va, round_down(address, pin_page(g)));
        CHECK_EQUAL(info.mapped, 1);
        CUDA(cuMemsetD8(buffer.address, 0xee, buffer.size));
        CUDA(cuCtxSynchronize()); /* cuMemsetD8 may return before it completes */
        shows_the_range(handle, va + (address - info.va), address, ranges[i].size);
        CHECK_OK(gdr_unmap(g, handle, va, ranges[i].size));
        CHECK_UNMAPPED(va + (address - info.va) + ranges[i].size - 1);
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    end();
}

/* GDRCOPY_ALLOW_UNALIGNED_MAP does not affect aligned pins, and does not permit a map beyond the end of a pin. */
static void sizes_beyond_the_pin_stay_refused_when_allowed(void)
{
    void *va = UNTOUCHED;

    begin("1");
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    CHECK_OK(gdr_unmap(g, handle, map(g, handle, GPU_PAGE_SIZE), GPU_PAGE_SIZE));
    CHECK_EQUAL(info_of(g, handle).va, buffer.address);
    CHECK_ERROR(gdr_map(g, handle, &va, GPU_PAGE_SIZE + 1), EINVAL);
    CHECK_OK(gdr_unpin_buffer(g, handle));

    /* The number of bytes from the pinned address to the end of the pin's last page. */
    size_t rest = round_up(4096 + 4096, pin_page(g)) - 4096;
    handle = pin(g, buffer.address + 4096, 4096);
    CHECK_ERROR(gdr_map(g, handle, &va, 0), EINVAL);
    CHECK_ERROR(gdr_map(g, handle, &va, rest + 1), EINVAL);
    CHECK_ERROR(gdr_map(g, handle, &va, SIZE_MAX), EINVAL);
    CHECK_EQUAL(va, UNTOUCHED);
    CHECK_OK(gdr_unmap(g, handle, map(g, handle, rest), 0));
    end();
}

static void map_and_unmap(void)
{
    begin("1");
    gdr_mh_t handle = pin(g, buffer.address + 4100, GPU_PAGE_SIZE);
    void *va = map(g, handle, GPU_PAGE_SIZE);
    unmap_and_unpin(g, handle, va, GPU_PAGE_SIZE);
    end();
}

static void unmap_with_the_arguments_of_map_logs_no_warning(void)
{
    CHECK_STRING(log_of(map_and_unmap, "3"), "");
}

int main(void)
{
    in_child(unaligned_pins_are_refused_by_default);
    in_child(refused_unless_the_value_is_1);
    in_child(unaligned_pins_map_when_allowed);
    in_child(sizes_beyond_the_pin_stay_refused_when_allowed);
    in_child(unmap_with_the_arguments_of_map_logs_no_warning);
    return passed("unaligned");
}
