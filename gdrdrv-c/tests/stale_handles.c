/*
 * Handles that no pin has. NVIDIA's gdrdrv 2.6 takes any of them for the oldest pin: a call for a pin that is gone
 * affects another buffer. Here they must be refused, and other pins must not change.
 */

#include "device.h"

#define SIZE (2 * GPU_PAGE)

static int fd;
static struct gpu_memory oldest_memory;
static uint64_t oldest;

static void check_oldest_is_unharmed(uint32_t mapping_type)
{
    struct gdrdrv_get_info_v2 i;
    uint32_t flag = 77;

    CHECK_OK(info(fd, oldest, &i));
    CHECK_EQUAL(i.va, oldest_memory.va);
    CHECK_EQUAL(i.mapped_size, SIZE);
    CHECK_EQUAL(i.mapping_type, mapping_type);
    CHECK_OK(callback_flag(fd, oldest, &flag));
    CHECK_EQUAL(flag, 0);
}

static void check_refused(uint64_t handle)
{
    struct gdrdrv_get_info_v2 untouched, v2 = {.handle = handle, .va = 77};
    struct gdrdrv_get_info v1 = {.handle = handle, .va = 77};
    unsigned char *va = NULL;
    uint32_t flag = 77;

    untouched = v2;
    CHECK_ERROR(command(fd, GDRDRV_IOC_GET_INFO_V2, &v2), EINVAL);
    CHECK_BYTES(&v2, &untouched, sizeof(v2));
    CHECK_ERROR(command(fd, GDRDRV_IOC_GET_INFO, &v1), EINVAL);
    CHECK_EQUAL(v1.va, 77);
    CHECK_ERROR(callback_flag(fd, handle, &flag), EINVAL);
    CHECK_EQUAL(flag, 77);
    CHECK_ERROR(request_type(fd, handle, GDRDRV_MAPPING_TYPE_WC), EINVAL);
    if (handle < 1ULL << 51) /* larger ones are not offsets in bytes */
        CHECK_ERROR(map(fd, handle, PAGE, &va), EINVAL);
    CHECK_ERROR(unpin(fd, handle), EINVAL);
}

int main(void)
{
    struct gpu_memory memory;
    uint64_t gone, beyond;
    unsigned char *va, *gone_va;

    catch_faults();
    fd = driver_open();
    check_refused(0);

    oldest_memory = gpu_alloc(SIZE);
    memory = gpu_alloc(SIZE);
    oldest = pinned(fd, oldest_memory);
    gone = pinned(fd, memory);
    memset(oldest_memory.view, 0x11, SIZE);
    va = mapped(fd, oldest, SIZE);
    beyond = gone + SIZE / PAGE;

    /* Double unpin: in NVIDIA's gdrdrv 2.6 the second one frees the oldest pin. */
    CHECK_OK(unpin(fd, gone));
    check_refused(gone);
    CHECK_EQUAL(page_tables(), 1);

    /* Handles within a pin, beyond all pins, and equal to a pin in the lower 32 bits. */
    check_refused(oldest + 1);
    check_refused(beyond);
    check_refused(oldest | 1ULL << 32);
    check_refused(~0ULL >> 12);
    check_refused(1ULL << 63);
    check_refused(~0ULL);
    check_oldest_is_unharmed(GDRDRV_MAPPING_TYPE_WC);
    CHECK_SHOWS(va, SIZE, 0x11);

    /* In NVIDIA's gdrdrv 2.6 a munmap after the unpin marks the oldest pin unmapped: it can be mapped twice. */
    gone = pinned(fd, memory);
    CHECK_EQUAL(gone, beyond);
    gone_va = mapped(fd, gone, SIZE);
    CHECK_OK(unpin(fd, gone));
    CHECK_GONE(gone_va, SIZE);
    CHECK(munmap(gone_va, SIZE) == 0);
    check_oldest_is_unharmed(GDRDRV_MAPPING_TYPE_WC);
    CHECK_ERROR(map(fd, oldest, SIZE, &gone_va), EINVAL);
    /* The refused second mmap has the same effect there, on the pin that it was refused for. */
    check_oldest_is_unharmed(GDRDRV_MAPPING_TYPE_WC);
    CHECK_ERROR(map(fd, oldest, SIZE, &gone_va), EINVAL);
    CHECK_SHOWS(va, SIZE, 0x11);

    /* Each open numbers its handles separately. */
    {
        int other = driver_open();
        uint64_t first = pinned(other, memory);

        CHECK_EQUAL(first, 0);
        CHECK_OK(unpin(other, first));
        CHECK_ERROR(unpin(other, oldest), EINVAL);
        CHECK(close(other) == 0);
    }
    check_oldest_is_unharmed(GDRDRV_MAPPING_TYPE_WC);

    CHECK_OK(unpin(fd, oldest));
    CHECK_GONE(va, SIZE);
    check_refused(oldest);
    CHECK_EQUAL(page_tables(), 0);
    return passed("stale_handles");
}
