/*
 * Tests that every function refuses invalid handles with EINVAL: forged ones (NULL included), those of another
 * connection, and those that were unpinned or closed, also after many later pins and opens.
 */

#include "kit/fault.h"
#include "kit/library.h"

#define UNTOUCHED 0x5a

static gdr_t g;
static struct gpu_buffer buffer;

static gdr_mh_t forged(const volatile void *address)
{
    gdr_mh_t handle = {(unsigned long)(uintptr_t)address};
    return handle;
}

static void refused(gdr_mh_t handle)
{
    check_handle_refused(g, handle, EINVAL);
    check_copies_refused(handle, EINVAL);
}

/* Checks that every function that takes a gdr_t refuses `stranger`. */
static void not_a_connection(gdr_t stranger, gdr_mh_t a_pin)
{
    gdr_mh_t handle = {UNTOUCHED};
    int major = 77, minor = 77, value = 77;

    check_handle_refused(stranger, a_pin, EINVAL);
    CHECK_ERROR(gdr_pin_buffer(stranger, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle), EINVAL);
    CHECK_ERROR(gdr_pin_buffer_v2(stranger, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, &handle), EINVAL);
    CHECK_EQUAL(handle.h, UNTOUCHED);
    CHECK_ERROR(gdr_driver_get_version(stranger, &major, &minor), EINVAL);
    CHECK_EQUAL(major + minor, 2 * 77);
    CHECK_ERROR(gdr_get_attribute(stranger, GDR_ATTR_USE_PERSISTENT_MAPPING, &value), EINVAL);
    CHECK_EQUAL(value, 0);
    CHECK_ERROR(gdr_close(stranger), EINVAL);
}

static void forged_handles(gdr_mh_t a_pin)
{
    static const unsigned long numbers[] = {0, 1, 8, 64, 4096, 0xdeadbeef, 0x7fffffffffff, 0x800000000000,
                                            0x8000000000000000, (unsigned long)-1, (unsigned long)-64};
    static const unsigned long near[] = {1, 4, 8, 16, 32, 64, 127, 128, 256, 4096, 1UL << 16, 1UL << 20};
    static unsigned char zeros[256];
    void *heap = calloc(1, 256);

    CHECK(heap != NULL);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        gdr_mh_t handle = {numbers[i]};

        refused(handle);
        not_a_connection((gdr_t)(uintptr_t)numbers[i], a_pin);
    }
    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
        gdr_mh_t above = {a_pin.h + near[i]};
        gdr_mh_t below = {a_pin.h - near[i]};

        refused(above);
        refused(below);
        not_a_connection((gdr_t)((uintptr_t)g + near[i]), a_pin);
        not_a_connection((gdr_t)((uintptr_t)g - near[i]), a_pin);
    }
    refused(forged(heap));
    refused(forged(zeros));
    not_a_connection((gdr_t)heap, a_pin);
    not_a_connection((gdr_t)(void *)zeros, a_pin);
    free(heap);
    check_works(g, a_pin, GPU_PAGE_SIZE);
}

static void foreign_handles(gdr_mh_t a_pin)
{
    gdr_t other = gdr_open();
    gdr_mh_t pin_of_other = pin(other, buffer.address, GPU_PAGE_SIZE);
    void *va = map(g, a_pin, GPU_PAGE_SIZE);

    check_handle_refused(other, a_pin, EINVAL);
    check_handle_refused(g, pin_of_other, EINVAL);
    CHECK_READABLE(va);
    CHECK_OK(gdr_unmap(g, a_pin, va, GPU_PAGE_SIZE));
    check_handle_refused(other, a_pin, EINVAL);

    /* A gdr_t in place of a pin's handle is refused, and so is a pin's handle in place of a gdr_t. */
    refused(forged((void *)g));
    refused(forged((void *)other));
    not_a_connection((gdr_t)(uintptr_t)a_pin.h, a_pin);
    not_a_connection((gdr_t)(uintptr_t)pin_of_other.h, pin_of_other);

    CHECK_OK(gdr_unpin_buffer(other, pin_of_other));
    CHECK_OK(gdr_close(other));
    check_works(g, a_pin, GPU_PAGE_SIZE);
}

static void used_up_handles(gdr_mh_t a_pin)
{
    gdr_t closed = gdr_open();
    gdr_mh_t pin_of_closed = pin(closed, buffer.address, GPU_PAGE_SIZE);
    gdr_mh_t unpinned = pin(g, buffer.address, GPU_PAGE_SIZE);

    CHECK_OK(gdr_close(closed));
    not_a_connection(closed, pin_of_closed);
    not_a_connection(closed, a_pin);
    refused(pin_of_closed);

    CHECK_OK(gdr_unpin_buffer(g, unpinned));
    refused(unpinned);
    check_works(g, a_pin, GPU_PAGE_SIZE);
}

/* The library issues the number of an ended handle again only after a very large number of other handles. */
static void stale_handles_stay_refused(gdr_mh_t a_pin)
{
    gdr_mh_t stale = pin(g, buffer.address, GPU_PAGE_SIZE);
    void *va = map(g, stale, GPU_PAGE_SIZE);
    long pins = rounds(1000000);

    unmap_and_unpin(g, stale, va, GPU_PAGE_SIZE);
    for (long i = 0; i < pins; i++) {
        gdr_mh_t handle = {0};

        CHECK_OK(gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle));
        CHECK(handle.h != stale.h);
        if (i % 50000 == 0) {
            va = map(g, handle, GPU_PAGE_SIZE);
            refused(stale);
        }
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    refused(stale);
    check_works(g, a_pin, GPU_PAGE_SIZE);
}

static void stale_connections_stay_refused(gdr_mh_t a_pin)
{
    gdr_t stale = gdr_open();
    long opens = rounds(1000);

    CHECK_OK(gdr_close(stale));
    for (long i = 0; i < opens; i++) {
        gdr_t opened = gdr_open();

        CHECK(opened != NULL && opened != stale);
        CHECK_ERROR(gdr_close(stale), EINVAL);
        CHECK_OK(gdr_close(opened));
    }
    not_a_connection(stale, a_pin);
}

int main(void)
{
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    g = open_driver();
    gdr_mh_t a_pin = pin(g, buffer.address, GPU_PAGE_SIZE);

    forged_handles(a_pin);
    foreign_handles(a_pin);
    used_up_handles(a_pin);
    stale_handles_stay_refused(a_pin);
    stale_connections_stay_refused(a_pin);

    CHECK_OK(gdr_unpin_buffer(g, a_pin));
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("handles");
}
