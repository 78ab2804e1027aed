/* Tests that a free of pinned memory ends the pins, unless they are persistent. */
#include "contract.h"

#define SIZE (8 * GPU_PAGE)
#define THEIRS 0x5e

static void begin_if_persistent(bool wanted)
{
    begin(SIZE);
    if (persistent(fd) != wanted)
        waive(wanted ? "pins are not persistent" : "pins are persistent");
    CHECK_EQUAL(flag_of(fd, handle), 0);
}

TEST(free_ends_pins_that_are_not_persistent)
{
    unsigned char *unused;

    begin_if_persistent(false);
    struct gdrdrv_get_info v1 = {.handle = handle};
    struct memory other = memory_alloc(SIZE);
    memory_fill(other, THEIRS);
    uint64_t kept = pinned(fd, other, SIZE);
    unsigned char *other_va = mapped(fd, kept, SIZE);
    CHECK_PINNED(2);
    memory_free(memory);
    CHECK_EQUAL(flag_of(fd, handle), 1);
    CHECK_PINNED(1);
    CHECK_PAGES_GONE(va, SIZE);
    CHECK_EQUAL(mapping_type(fd, handle) == GDRDRV_MAPPING_TYPE_NONE, expected("a free marks the pin unmapped", 1));

    CHECK_EQUAL(flag_of(fd, kept), 0);
    CHECK_PAGES(other_va, SIZE, THEIRS);

    CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &v1));
    CHECK_EQUAL(v1.va, memory.va);
    CHECK_EQUAL(v1.mapped_size, SIZE);
    if (since(5))
        CHECK_OK(request_type(fd, handle, GDRDRV_MAPPING_TYPE_NONE));
    unmap(va, SIZE);
    CHECK_NOT_MAPPED(fd, handle);
    CHECK_ERROR(map(fd, handle, SIZE, &unused), EINVAL);
    unmap(other_va, SIZE);
    CHECK_OK(unpin(fd, handle));
    CHECK_OK(unpin(fd, kept));
    CHECK_ERROR(unpin(fd, handle), EINVAL);
}

TEST(free_ends_what_munmap_left)
{
    begin_if_persistent(false);
    int gone = (int)expected("a pin is mapped while a part of its mapping is", 1);
    unmap(va + GPU_PAGE, GPU_PAGE);
    memory_free(memory);
    CHECK_EQUAL(flag_of(fd, handle), 1);
    if (gone) {
        CHECK_PAGES_GONE(va, GPU_PAGE);
        CHECK_PAGES_GONE(va + 2 * GPU_PAGE, SIZE - 2 * GPU_PAGE);
    }
}

TEST(free_leaves_persistent_pins)
{
    uint64_t failed;

    begin_if_persistent(true);
    memory_free(memory);
    CHECK_PINNED(1);
    CHECK_ERROR(pin(fd, memory.va, SIZE, &failed), EINVAL);
    struct memory next = memory_alloc(SIZE);
    memory_fill(next, THEIRS);
    CHECK_EQUAL(flag_of(fd, handle), 0);
    CHECK_PAGES(va, SIZE, OURS);
    unmap(va, SIZE);
    va = mapped(fd, handle, SIZE);
    CHECK_PAGES(va, SIZE, OURS);
    memory_free(next);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
    next = memory_alloc(SIZE);
    memory_fill(next, THEIRS);
    CHECK_PAGES_GONE(va, SIZE);
}
