/*
 * Mappings after munmap, mremap and close: whatever is left of them ends with the pin, and never shows the next
 * allocation.
 */

#include "device.h"

#define SIZE (8 * GPU_PAGE)
#define OURS 0x11
#define THEIRS 0x5e

static int fd;

/* The next allocation gets the pages that were freed last: no others are free. */
static void check_next_allocation_is_out_of_reach(const unsigned char *va, size_t size)
{
    struct gpu_memory next = gpu_alloc(SIZE);

    memset(next.view, THEIRS, SIZE);
    CHECK_GONE(va, size);
    gpu_free(next);
}

/* Moves part of a mapping to another address. */
static unsigned char *moved(unsigned char *va, size_t size)
{
    void *place = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(place != MAP_FAILED);
    CHECK(mremap(va, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    return place;
}

/* Pins and maps new memory. */
static unsigned char *mapped_new(struct gpu_memory *memory, uint64_t *handle)
{
    unsigned char *va;

    *memory = gpu_alloc(SIZE);
    memset(memory->view, OURS, SIZE);
    *handle = pinned(fd, *memory);
    va = mapped(fd, *handle, SIZE);
    CHECK_SHOWS(va, SIZE, OURS);
    return va;
}

static void writes_arrive(void)
{
    struct gpu_memory memory;
    uint64_t handle;
    unsigned char *va = mapped_new(&memory, &handle);
    size_t i;

    /* Physically the pages are scattered; the mapping must be in order. */
    for (i = 0; i < SIZE; i += 1021)
        va[i] = (unsigned char)(i * 7);
    for (i = 0; i < SIZE; i += 1021)
        CHECK_EQUAL(memory.view[i], (unsigned char)(i * 7));
    CHECK(munmap(va, SIZE) == 0);
    CHECK_OK(unpin(fd, handle));
    gpu_free(memory);
}

static void pin_can_be_mapped_again_after_munmap(void)
{
    struct gdrdrv_get_info_v2 i;
    struct gpu_memory memory;
    uint64_t handle;
    unsigned char *va = mapped_new(&memory, &handle);

    CHECK(munmap(va, SIZE) == 0);
    CHECK_OK(info(fd, handle, &i));
    CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
    va = mapped(fd, handle, GPU_PAGE);
    CHECK_SHOWS(va, GPU_PAGE, OURS);
    CHECK_OK(unpin(fd, handle));
    CHECK_GONE(va, GPU_PAGE);
    CHECK(munmap(va, GPU_PAGE) == 0);
    gpu_free(memory);
}

static void unpin_ends_what_munmap_left(void)
{
    struct gdrdrv_get_info_v2 i;
    struct gpu_memory memory;
    uint64_t handle;
    unsigned char *other, *va = mapped_new(&memory, &handle);

    CHECK(munmap(va, PAGE) == 0);
    CHECK(munmap(va + 3 * GPU_PAGE + PAGE, 5 * PAGE) == 0);
    CHECK_OK(info(fd, handle, &i));
    CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_WC);
    CHECK_ERROR(map(fd, handle, SIZE, &other), EINVAL);
    CHECK_OK(unpin(fd, handle));
    gpu_free(memory);
    check_next_allocation_is_out_of_reach(va + PAGE, 3 * GPU_PAGE);
    check_next_allocation_is_out_of_reach(va + 3 * GPU_PAGE + 6 * PAGE, SIZE - 3 * GPU_PAGE - 6 * PAGE);
    CHECK(munmap(va + PAGE, 3 * GPU_PAGE) == 0);
    CHECK(munmap(va + 3 * GPU_PAGE + 6 * PAGE, SIZE - 3 * GPU_PAGE - 6 * PAGE) == 0);
}

static void unpin_ends_what_mremap_moved(void)
{
    struct gpu_memory memory;
    uint64_t handle;
    unsigned char *va = mapped_new(&memory, &handle);
    unsigned char *part = moved(va + GPU_PAGE, 2 * GPU_PAGE);

    CHECK_SHOWS(part, 2 * GPU_PAGE, OURS);
    /* Mappings can be neither extended nor duplicated. */
    CHECK(mremap(part, 2 * GPU_PAGE, SIZE, MREMAP_MAYMOVE) == MAP_FAILED);
    CHECK(mremap(va, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
    CHECK_OK(unpin(fd, handle));
    gpu_free(memory);
    check_next_allocation_is_out_of_reach(va, GPU_PAGE);
    check_next_allocation_is_out_of_reach(va + 3 * GPU_PAGE, SIZE - 3 * GPU_PAGE);
    check_next_allocation_is_out_of_reach(part, 2 * GPU_PAGE);
    CHECK(munmap(va, GPU_PAGE) == 0);
    CHECK(munmap(va + 3 * GPU_PAGE, SIZE - 3 * GPU_PAGE) == 0);
    CHECK(munmap(part, 2 * GPU_PAGE) == 0);
}

/* As in POSIX, a mapping needs no open descriptor. */
static void close_does_not_end_a_mapping(void)
{
    struct gpu_memory memory;
    uint64_t handle;
    int mine = fd;
    unsigned char *va, *part;

    fd = driver_open();
    va = mapped_new(&memory, &handle);
    part = moved(va, GPU_PAGE);
    CHECK(close(fd) == 0);
    CHECK_EQUAL(page_tables(), 1);
    CHECK_SHOWS(part, GPU_PAGE, OURS);
    CHECK_SHOWS(va + GPU_PAGE, SIZE - GPU_PAGE, OURS);
    CHECK(munmap(part, GPU_PAGE) == 0);
    CHECK_EQUAL(page_tables(), 1);
    CHECK(munmap(va + GPU_PAGE, SIZE - GPU_PAGE) == 0);
    CHECK_EQUAL(page_tables(), 0);
    gpu_free(memory);
    fd = mine;
}

/* Pins whose pages are one contiguous physical range. */
static void contiguous_pins(void)
{
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    unsigned char *va, *part;
    uint64_t handle;

    memset(memory.view, OURS, GPU_PAGE);
    /* Unpinned while mapped: whole, shortened, split and moved. */
    handle = pinned(fd, memory);
    va = mapped(fd, handle, GPU_PAGE);
    CHECK_SHOWS(va, GPU_PAGE, OURS);
    CHECK_OK(unpin(fd, handle));
    CHECK_GONE(va, GPU_PAGE);
    CHECK(munmap(va, GPU_PAGE) == 0);

    handle = pinned(fd, memory);
    va = mapped(fd, handle, 3 * PAGE);
    CHECK_SHOWS(va, 3 * PAGE, OURS);
    CHECK(munmap(va + PAGE, PAGE) == 0);
    part = moved(va + 2 * PAGE, PAGE);
    CHECK_SHOWS(va, PAGE, OURS);
    CHECK_SHOWS(part, PAGE, OURS);
    CHECK_OK(unpin(fd, handle));
    CHECK_GONE(va, PAGE);
    CHECK_GONE(part, PAGE);
    CHECK(munmap(va, PAGE) == 0);
    CHECK(munmap(part, PAGE) == 0);
    gpu_free(memory);
}

static void free_ends_ordinary_pins(void)
{
    struct gdrdrv_get_info_v2 i;
    struct gpu_memory memory;
    uint32_t flag = 77;
    uint64_t handle;
    unsigned char *other, *va = mapped_new(&memory, &handle);

    CHECK(munmap(va + GPU_PAGE, GPU_PAGE) == 0);
    gpu_free(memory);
    CHECK_OK(callback_flag(fd, handle, &flag));
    CHECK_EQUAL(flag, 1);
    CHECK_EQUAL(page_tables(), 0);
    check_next_allocation_is_out_of_reach(va, GPU_PAGE);
    check_next_allocation_is_out_of_reach(va + 2 * GPU_PAGE, SIZE - 2 * GPU_PAGE);

    CHECK_OK(info(fd, handle, &i));
    CHECK_EQUAL(i.va, memory.va);
    CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
    CHECK_OK(request_type(fd, handle, GDRDRV_MAPPING_TYPE_WC));
    CHECK(munmap(va, GPU_PAGE) == 0);
    CHECK(munmap(va + 2 * GPU_PAGE, SIZE - 2 * GPU_PAGE) == 0);
    CHECK_ERROR(map(fd, handle, SIZE, &other), EINVAL);
    CHECK_OK(unpin(fd, handle));
    CHECK_ERROR(unpin(fd, handle), EINVAL);
}

static void free_does_not_end_persistent_pins(void)
{
    struct gpu_memory memory, next;
    uint32_t flag = 77;
    uint64_t handle;
    unsigned char *va = mapped_new(&memory, &handle);

    gpu_free(memory);
    next = gpu_alloc(SIZE);
    memset(next.view, THEIRS, SIZE);
    CHECK_OK(callback_flag(fd, handle, &flag));
    CHECK_EQUAL(flag, 0);
    CHECK_SHOWS(va, SIZE, OURS);
    gpu_free(next);
    CHECK_OK(unpin(fd, handle));
    check_next_allocation_is_out_of_reach(va, SIZE);
    CHECK(munmap(va, SIZE) == 0);
}

static void unpin_of_handle_0_does_not_affect_handle_0_of_another_file(void)
{
    struct gpu_memory first = gpu_alloc(SIZE), second = gpu_alloc(SIZE);
    int a = driver_open(), b = driver_open();
    unsigned char *va_a, *va_b;

    memset(first.view, 1, SIZE);
    memset(second.view, 2, SIZE);
    CHECK_EQUAL(pinned(a, first), 0);
    CHECK_EQUAL(pinned(b, second), 0);
    va_a = mapped(a, 0, SIZE);
    va_b = mapped(b, 0, SIZE);
    CHECK_OK(unpin(a, 0));
    CHECK_GONE(va_a, SIZE);
    CHECK_SHOWS(va_b, SIZE, 2);
    CHECK(munmap(va_a, SIZE) == 0);
    CHECK(munmap(va_b, SIZE) == 0);
    CHECK(close(a) == 0);
    CHECK(close(b) == 0);
    gpu_free(first);
    gpu_free(second);
}

int main(void)
{
    catch_faults();
    fd = driver_open();
    gpu_leave_free(2 * SIZE);
    writes_arrive();
    pin_can_be_mapped_again_after_munmap();
    unpin_ends_what_munmap_left();
    unpin_ends_what_mremap_moved();
    close_does_not_end_a_mapping();
    contiguous_pins();
    unpin_of_handle_0_does_not_affect_handle_0_of_another_file();
    if (persistent(fd))
        free_does_not_end_persistent_pins();
    else
        free_ends_ordinary_pins();
    CHECK_EQUAL(page_tables(), 0);
    return passed("mappings");
}
