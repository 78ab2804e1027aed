/* Tests that commands and mmap refuse a handle if no pin has it, and that they then change no pin. */
#include "contract.h"

#define SIZE (2 * GPU_PAGE)

static struct memory other_memory;

static void check_refused(uint64_t handle)
{
    struct gdrdrv_get_info_v2 v2 = {.handle = handle, .va = 77};
    struct gdrdrv_get_info v1 = {.handle = handle, .va = 77};
    unsigned char *unused;
    uint32_t flag = 77;
    struct gdrdrv_get_info_v2 untouched = v2;

    if (since(4))
        CHECK_ERROR(command(fd, GDRDRV_IOC_GET_INFO_V2, &v2), EINVAL);
    CHECK_BYTES(&v2, &untouched, sizeof(v2));
    CHECK_ERROR(command(fd, GDRDRV_IOC_GET_INFO, &v1), EINVAL);
    CHECK_EQUAL(v1.va, 77);
    CHECK_ERROR(callback_flag(fd, handle, &flag), EINVAL);
    CHECK_EQUAL(flag, 77);
    if (since(5))
        CHECK_ERROR(request_type(fd, handle, GDRDRV_MAPPING_TYPE_NONE), EINVAL);
    if (handle < 1ULL << 51) /* the handle is an offset in pages; a larger one does not fit into mmap's argument */
        CHECK_ERROR(map(fd, handle, PAGE, &unused), EINVAL);
    CHECK_ERROR(unpin(fd, handle), EINVAL);
}

/* Makes the oldest pin, which commands with wrong handles must not affect, and allocates memory for other pins. */
static void begin_with_other_memory(void)
{
    other_memory = memory_alloc(SIZE);
    begin(SIZE);
}

static void check_oldest(bool is_mapped)
{
    struct gdrdrv_get_info i = {.handle = handle};

    CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &i));
    CHECK_EQUAL(i.va, memory.va);
    CHECK_EQUAL(i.mapped_size, SIZE);
    CHECK_EQUAL(i.mapped, is_mapped);
    CHECK_EQUAL(flag_of(fd, handle), 0);
    CHECK_PAGES(va, SIZE, 0x11);
}

TEST(without_pins_all_handles_are_refused)
{
    fd = driver_open();
    check_refused(0);
    check_refused(1);
    check_refused(~0ULL);
}

TEST(handles_that_no_pin_has_are_refused)
{
    struct gdrdrv_get_info wrong = {0};

    begin_with_other_memory();
    uint64_t beyond = pinned(fd, other_memory, SIZE) + SIZE / PAGE;
    wrong.handle = beyond;
    if (expected("GET_INFO of a handle that no pin has", EINVAL) == 0) {
        CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &wrong));
        CHECK_EQUAL(wrong.va, memory.va);
    } else {
        /* No pin has these handles. A pin takes up a number for each of its pages, but only the first is its handle. */
        check_refused(handle + 1);
        check_refused(beyond);
        check_refused(handle ^ 1ULL << 33);
        check_refused(~0ULL >> 12);
        check_refused(1ULL << 63);
        check_refused(~0ULL);
        CHECK_PINNED(2);
    }
    check_oldest(true);
}

TEST(second_unpin_is_refused)
{
    if (expected("GET_INFO of a handle that no pin has", EINVAL) == 0)
        waive("the second one would unpin the oldest pin");
    begin_with_other_memory();
    uint64_t gone = pinned(fd, other_memory, SIZE);
    CHECK_OK(unpin(fd, gone));
    check_refused(gone);
    CHECK_PINNED(1);
    check_oldest(true);
    CHECK_OK(unpin(fd, handle));
    CHECK_PINNED(0);
    check_refused(handle);
}

/* For a wrong handle, NVIDIA's gdrdrv uses the oldest pin. If there is no pin, even NVIDIA's must refuse the handle. */
TEST(second_unpin_of_the_only_pin_is_refused)
{
    other_memory = memory_alloc(SIZE);
    fd = driver_open();
    uint64_t handle = pinned(fd, other_memory, SIZE);
    CHECK_OK(unpin(fd, handle));
    check_refused(handle);
}

TEST(munmap_after_unpin_affects_only_its_own_pin)
{
    begin_with_other_memory();
    uint64_t gone = pinned(fd, other_memory, SIZE);
    unsigned char *gone_va = mapped(fd, gone, SIZE);
    CHECK_OK(unpin(fd, gone));
    CHECK_PAGES_GONE(gone_va, SIZE);
    check_oldest(true);
    unmap(gone_va, SIZE);
    check_oldest(expected("munmap after UNPIN leaves the oldest pin mapped", 1));
}

TEST(second_mmap_is_refused_without_effect)
{
    unsigned char *unused;

    begin_with_other_memory();
    CHECK_ERROR(map(fd, handle, SIZE, &unused), EINVAL);
    check_oldest(expected("a second mmap leaves the pin mapped", 1));
    if (expected("a second mmap leaves the pin mapped", 1))
        CHECK_ERROR(map(fd, handle, PAGE, &unused), EINVAL);
}

TEST(opens_number_their_handles_separately)
{
    begin_with_other_memory();
    memory_fill(other_memory, 0x22);
    int other = driver_open();
    CHECK_EQUAL(pinned(other, other_memory, SIZE), handle);
    unsigned char *other_va = mapped(other, handle, SIZE);
    CHECK_OK(unpin(other, handle));
    CHECK_PAGES_GONE(other_va, SIZE);
    check_oldest(true);
    CHECK_ERROR(unpin(other, handle), EINVAL);
    unmap(other_va, SIZE);
    CHECK(close(other) == 0);
    check_oldest(true);
}
