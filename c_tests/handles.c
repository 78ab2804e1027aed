/* Handles: every function refuses forged, stale, NULL, foreign and used-up ones with EINVAL. */

#include "kit/fault.h"
#include "kit/library.h"

#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

#define UNTOUCHED 0x5a

static gdr_t g;
static struct gpu_buffer buffer;

static gdr_mh_t forged(const volatile void *address)
{
    gdr_mh_t handle = {(unsigned long)(uintptr_t)address};
    return handle;
}

/* Every function that takes a handle refuses this one and writes to none of its output arguments. */
static void refused_with(gdr_t owner, gdr_mh_t handle)
{
    unsigned char untouched[64], out[64], other[64];

    memset(untouched, UNTOUCHED, sizeof(untouched));
    memset(out, UNTOUCHED, sizeof(out));
    memset(other, 0, sizeof(other));
    CHECK_ERROR(gdr_get_info_v2(owner, handle, (gdr_info_v2_t *)(void *)out), EINVAL);
    CHECK_ERROR(gdr_get_info(owner, handle, (gdr_info_v2_t *)(void *)out), EINVAL);
    CHECK_ERROR(gdr_get_callback_flag(owner, handle, (int *)(void *)out), EINVAL);
    CHECK_ERROR(gdr_map(owner, handle, (void **)(void *)out, GPU_PAGE_SIZE), EINVAL);
    CHECK_ERROR(gdr_map_v2(owner, handle, (void **)(void *)out, GPU_PAGE_SIZE, GDR_MAP_FLAG_REQ_WC_MAPPING), EINVAL);
    CHECK_ERROR(gdr_unmap(owner, handle, out, sizeof(out)), EINVAL);
    CHECK_ERROR(gdr_unpin_buffer(owner, handle), EINVAL);
    CHECK_BYTES(out, untouched, sizeof(out));
}

/* Copies take no g, and refuse every handle that is not a mapped pin. */
static void copies_refuse(gdr_mh_t handle)
{
    unsigned char untouched[16], out[16], other[16];

    memset(untouched, UNTOUCHED, sizeof(untouched));
    memset(out, UNTOUCHED, sizeof(out));
    memset(other, 0, sizeof(other));
    for (size_t size = 0; size <= sizeof(out); size += 8) {
        CHECK_ERROR(gdr_copy_to_mapping(handle, out, other, size), EINVAL);
        CHECK_ERROR(gdr_copy_from_mapping(handle, out, other, size), EINVAL);
    }
    CHECK_BYTES(out, untouched, sizeof(out));
}

static void refused(gdr_mh_t handle)
{
    refused_with(g, handle);
    copies_refuse(handle);
}

/* Every function that takes a g refuses this one. */
static void not_a_connection(gdr_t stranger, gdr_mh_t a_pin)
{
    gdr_mh_t handle = {UNTOUCHED};
    int major = 77, minor = 77, value = 77;

    refused_with(stranger, a_pin);
    CHECK_ERROR(gdr_pin_buffer(stranger, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle), EINVAL);
    CHECK_ERROR(gdr_pin_buffer_v2(stranger, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, &handle), EINVAL);
    CHECK_EQUAL(handle.h, UNTOUCHED);
    CHECK_ERROR(gdr_driver_get_version(stranger, &major, &minor), EINVAL);
    CHECK_EQUAL(major + minor, 2 * 77);
    CHECK_ERROR(gdr_get_attribute(stranger, GDR_ATTR_USE_PERSISTENT_MAPPING, &value), EINVAL);
    CHECK_EQUAL(value, 0);
    CHECK_ERROR(gdr_close(stranger), EINVAL);
}

static void handles_are_readable(gdr_mh_t handle)
{
    unsigned char of_g[64], of_pin[128];

    memcpy(of_g, (const void *)g, sizeof(of_g));
    memcpy(of_pin, (const void *)(uintptr_t)handle.h, sizeof(of_pin));
    CHECK_READABLE((const unsigned char *)(uintptr_t)handle.h + sizeof(of_pin) - 1);
}

static void forged_handles(gdr_mh_t a_pin)
{
    static const unsigned long numbers[] = {0, 1, 8, 64, 4096, 0xdeadbeef, 0x7fffffffffff, 0x800000000000,
                                            0x8000000000000000, (unsigned long)-1, (unsigned long)-64};
    static const unsigned long near[] = {1, 4, 8, 16, 32, 64, 127, 128, 256, 4096, 1UL << 20};
    static unsigned char zeros[256];
    unsigned char copy[128];
    void *heap = calloc(1, 256);

    CHECK(heap != NULL);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        gdr_mh_t handle = {numbers[i]};

        refused(handle);
        not_a_connection((gdr_t)(uintptr_t)numbers[i], a_pin);
    }
    for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
        gdr_mh_t above = {a_pin.h + near[i]}, below = {a_pin.h - near[i]};

        refused(above);
        refused(below);
        not_a_connection((gdr_t)((uintptr_t)g + near[i]), a_pin);
        not_a_connection((gdr_t)((uintptr_t)g - near[i]), a_pin);
    }
    refused(forged(heap));
    refused(forged(zeros));
    not_a_connection((gdr_t)heap, a_pin);
    not_a_connection((gdr_t)(void *)zeros, a_pin);

    /* Exact copies of what the handles point to, as the test-suite of NVIDIA's libgdrapi 2.6 makes them. */
    memcpy(copy, (const void *)(uintptr_t)a_pin.h, 128);
    refused(forged(copy));
    memcpy(copy, (const void *)g, 64);
    not_a_connection((gdr_t)(void *)copy, a_pin);
    free(heap);
    check_works(g, a_pin, GPU_PAGE_SIZE);
}

static void foreign_handles(gdr_mh_t a_pin)
{
    gdr_t other = gdr_open();
    gdr_mh_t pin_of_other = pin(other, buffer.address, GPU_PAGE_SIZE);
    void *va = map(g, a_pin, GPU_PAGE_SIZE);

    refused_with(other, a_pin);
    refused_with(g, pin_of_other);
    CHECK_READABLE(va);
    CHECK_OK(gdr_unmap(g, a_pin, va, GPU_PAGE_SIZE));
    refused_with(other, a_pin);

    /* A g as a handle, and a handle as g. */
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

/* Slots are reused as late as possible. */
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

    handles_are_readable(a_pin);
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
