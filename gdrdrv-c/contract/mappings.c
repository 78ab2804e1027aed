/* Tests of mmap, munmap and mremap of pins, and of mappings after UNPIN and after close. */
#include "contract.h"

#define SIZE (8 * GPU_PAGE)

static void check_mmap(size_t size, int protection, int flags, int error)
{
    errno = 0;
    void *va = mmap(NULL, size, protection, flags, fd, (off_t)(handle * PAGE));
    CHECK_EQUAL(errno, error);
    CHECK_EQUAL(va == MAP_FAILED, error != 0);
    CHECK_EQUAL(mapping_type(fd, handle) != GDRDRV_MAPPING_TYPE_NONE, error == 0);
    if (error == 0)
        unmap(va, size);
}

/* Moves part of a mapping to another address, and returns that address. */
static unsigned char *moved(unsigned char *va, size_t size)
{
    void *place = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(place != MAP_FAILED);
    CHECK(mremap(va, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    return place;
}

TEST(lengths_are_whole_pages_inside_the_pin)
{
    const size_t good[] = {1, PAGE, GPU_PAGE - 1, GPU_PAGE, SIZE - 1, SIZE};

    begin_unmapped(SIZE);
    for (size_t i = 0; i < COUNT(good); i++)
        check_mmap(good[i], PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    check_mmap(0, PROT_READ, MAP_SHARED, EINVAL);
    check_mmap(SIZE + 1, PROT_READ, MAP_SHARED, EINVAL);
    check_mmap(SIZE + GPU_PAGE, PROT_READ, MAP_SHARED, EINVAL);
    check_mmap(1UL << 40, PROT_READ, MAP_SHARED, EINVAL);
    check_mmap(~(size_t)0, PROT_READ, MAP_SHARED, ENOMEM);
    check_mmap(~(size_t)0 - PAGE + 1, PROT_READ, MAP_SHARED, ENOMEM);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, (off_t)(handle * PAGE + 1)) == MAP_FAILED);
    CHECK_EQUAL(errno, EINVAL);
}

TEST(mappings_are_shared)
{
    begin_unmapped(SIZE);
    int error = (int)expected("mmap with MAP_PRIVATE", EINVAL);
    if (error != ANY) {
        check_mmap(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, error);
        check_mmap(SIZE, PROT_READ, MAP_PRIVATE, error);
        check_mmap(GPU_PAGE, PROT_READ, MAP_PRIVATE, error); /* a module may map a single page differently */
    }
    check_mmap(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE, 0);
}

TEST(mappings_have_the_requested_protection)
{
    unsigned char value;

    begin_unmapped(SIZE);
    check_mmap(SIZE, PROT_READ | PROT_EXEC, MAP_SHARED, (int)expected("mmap with PROT_EXEC", EACCES));
    va = mmap(NULL, SIZE, PROT_NONE, MAP_SHARED, fd, (off_t)(handle * PAGE));
    CHECK(va != MAP_FAILED);
    CHECK_EQUAL(touch(va, &value), SIGSEGV);
    CHECK(mprotect(va, SIZE, PROT_READ) == 0);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_EQUAL(mprotect(va, SIZE, PROT_READ | PROT_EXEC) != 0, expected("mmap with PROT_EXEC", EACCES) != 0);
}

/* Linux itself refuses mappings that need more access than the file was opened with. */
TEST(protection_is_within_the_access_of_the_open)
{
    begin(SIZE);
    fd = open(GDRDRV_DEVICE, O_RDONLY | O_CLOEXEC);
    handle = pinned(fd, memory, SIZE);
    check_mmap(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, EACCES);
    va = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, (off_t)(handle * PAGE));
    CHECK(va != MAP_FAILED);
    CHECK_PAGES(va, SIZE, OURS);
    if (implementation() != GDREMU && implementation() != DEFECTS) /* gdremu does not emulate mprotect */
        CHECK(mprotect(va, SIZE, PROT_READ | PROT_WRITE) != 0);
    fd = open(GDRDRV_DEVICE, O_WRONLY | O_CLOEXEC);
    handle = pinned(fd, memory, SIZE);
    check_mmap(SIZE, PROT_READ, MAP_SHARED, EACCES);
    check_mmap(SIZE, PROT_WRITE, MAP_SHARED, EACCES);
}

TEST(address_is_the_requested_one)
{
    begin_unmapped(SIZE);
    CHECK(mmap(va, SIZE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)(handle * PAGE)) == va);
    CHECK_PAGES(va, SIZE, OURS);
}

TEST(pins_that_start_within_a_gpu_page_cannot_be_mapped)
{
    const uint64_t offsets[] = {1, 8, 512, PAGE};

    begin(SIZE);
    for (size_t i = 0; i < COUNT(offsets); i++) {
        if (pin(fd, memory.va + offsets[i], GPU_PAGE - offsets[i], &handle) != 0)
            waive("this release and GPU driver pin whole GPU pages only");
        check_mmap(PAGE, PROT_READ, MAP_SHARED, EINVAL);
    }
}

TEST(writes_arrive_in_order)
{
    begin(SIZE);
    for (size_t i = 0; i < SIZE; i += 1021)
        va[i] = (unsigned char)(i * 7);
    __sync_synchronize();
    for (size_t i = 0; i < SIZE; i += 4 * 1021)
        CHECK_EQUAL(memory_byte(memory, i), (unsigned char)(i * 7));
    memory_fill(memory, 0x33);
    CHECK_PAGES(va, SIZE, 0x33);
}

TEST(pins_of_the_same_memory_show_the_same_bytes)
{
    begin(SIZE);
    uint64_t other;

    CHECK_OK(pin(fd, memory.va + GPU_PAGE, GPU_PAGE, &other));
    unsigned char *other_va = mapped(fd, other, 100);
    va[GPU_PAGE] = 0x44;
    CHECK_EQUAL(other_va[0], 0x44);
}

/* ---- Types of mappings ---- */

TEST(platform_has_the_types_of_its_default)
{
    static const bool has[][4] = {
        [GDRDRV_MAPPING_TYPE_WC] = {true, true, false, false},
        [GDRDRV_MAPPING_TYPE_CACHING] = {true, true, true, false},
        [GDRDRV_MAPPING_TYPE_DEVICE] = {true, false, false, true},
    };
    begin(SIZE);
    uint32_t usual = mapping_type(fd, handle);

#ifdef __x86_64__
    if (expected("default mapping type on x86", GDRDRV_MAPPING_TYPE_WC) != ANY)
        CHECK_EQUAL(usual, GDRDRV_MAPPING_TYPE_WC);
#endif
    CHECK(usual >= GDRDRV_MAPPING_TYPE_WC && usual <= GDRDRV_MAPPING_TYPE_DEVICE);
    struct gdrdrv_get_info v1 = {.handle = handle};
    CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &v1));
    CHECK_EQUAL(v1.mapped, 1);
    CHECK_EQUAL(v1.wc_mapping, usual == GDRDRV_MAPPING_TYPE_WC);
    unmap(va, SIZE);
    if (!since(5))
        waive("types can be requested since 2.5");
    for (uint32_t type = GDRDRV_MAPPING_TYPE_NONE; type <= GDRDRV_MAPPING_TYPE_DEVICE; type++) {
        CHECK_ERROR(request_type(fd, handle, type), has[usual][type] ? 0 : EOPNOTSUPP);
        if (!has[usual][type])
            continue;
        va = mapped(fd, handle, SIZE);
        CHECK_EQUAL(mapping_type(fd, handle), type == GDRDRV_MAPPING_TYPE_NONE ? usual : type);
        unmap(va, SIZE);
        /* A refused request changes nothing, and an accepted one also holds for later mappings. */
        CHECK_ERROR(request_type(fd, handle, 4), EINVAL);
        va = mapped(fd, handle, SIZE);
        CHECK_EQUAL(mapping_type(fd, handle), type == GDRDRV_MAPPING_TYPE_NONE ? usual : type);
        unmap(va, SIZE);
    }
    CHECK_ERROR(request_type(fd, handle, ~0U), EINVAL);
}

TEST(type_of_a_mapped_pin_cannot_be_requested)
{
    begin(SIZE);
    if (since(5)) {
        for (uint32_t type = GDRDRV_MAPPING_TYPE_NONE; type <= GDRDRV_MAPPING_TYPE_DEVICE; type++)
            CHECK_ERROR(request_type(fd, handle, type), EBUSY);
        CHECK_ERROR(request_type(fd, handle, 4), EINVAL);
        CHECK_ERROR(request_type(fd, handle, ~0U), EINVAL);
    }
}

/* ---- The end of mappings ---- */

TEST(pin_can_be_mapped_again_after_munmap)
{
    unsigned char value;

    begin(SIZE);
    CHECK_MAPPED(fd, handle);
    unmap(va, SIZE);
    CHECK_NOT_MAPPED(fd, handle);
    CHECK_EQUAL(touch(va, &value), SIGSEGV);
    va = mapped(fd, handle, GPU_PAGE);
    CHECK_PAGES(va, GPU_PAGE, OURS);
}

TEST(unpin_removes_the_pages_of_a_mapping)
{
    unsigned char value;

    begin(SIZE);
    CHECK_PINNED(1);
    CHECK_OK(unpin(fd, handle));
    CHECK_PINNED(0);
    CHECK_PAGES_GONE(va, SIZE);
    memory_free(memory);
    memory = memory_alloc(UNIT);
    CHECK_PAGES_GONE(va, SIZE);
    unmap(va, SIZE);
    CHECK_EQUAL(touch(va, &value), SIGSEGV);
}

TEST(unpin_removes_pages_of_a_single_gpu_page)
{
    begin_partly_mapped(GPU_PAGE, 3 * PAGE);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, 3 * PAGE);
}

/* Checks this part of a mapping after UNPIN. Before UNPIN, munmap or mremap has removed other parts. */
static void check_left(const unsigned char *va, size_t size)
{
    if (expected("a pin is mapped while a part of its mapping is", 1))
        CHECK_PAGES_GONE(va, size);
    else
        CHECK_PAGES(va, size, OURS);
}

TEST(unpin_ends_what_munmap_left)
{
    unsigned char *other, value;

    begin(SIZE);
    unsigned char *rest = va + 3 * GPU_PAGE + 6 * PAGE;
    size_t size = (size_t)(va + SIZE - rest);
    int whole = (int)expected("a pin is mapped while a part of its mapping is", 1);
    unmap(va, PAGE);
    CHECK_EQUAL(mapping_type(fd, handle) != GDRDRV_MAPPING_TYPE_NONE, whole);
    unmap(va + 3 * GPU_PAGE + PAGE, 5 * PAGE);
    CHECK_EQUAL(touch(va, &value), SIGSEGV);
    CHECK_EQUAL(touch(rest - PAGE, &value), SIGSEGV);
    CHECK_PAGES(va + PAGE, 3 * GPU_PAGE, OURS);
    CHECK_PAGES(rest, size, OURS);
    if (whole)
        CHECK_ERROR(map(fd, handle, SIZE, &other), EINVAL);
    CHECK_OK(unpin(fd, handle));
    check_left(va + PAGE, 3 * GPU_PAGE);
    check_left(rest, size);
}

TEST(unpin_ends_what_mremap_moved)
{
    begin(SIZE);
    unsigned char *part = moved(va + GPU_PAGE, 2 * GPU_PAGE);

    CHECK_EQUAL(mapping_type(fd, handle) != GDRDRV_MAPPING_TYPE_NONE,
                expected("a pin is mapped while a part of its mapping is", 1));
    CHECK_PAGES(part, 2 * GPU_PAGE, OURS);
    CHECK_PAGES(va, GPU_PAGE, OURS);
    CHECK_OK(unpin(fd, handle));
    check_left(va, GPU_PAGE);
    check_left(part, 2 * GPU_PAGE);
    check_left(va + 3 * GPU_PAGE, SIZE - 3 * GPU_PAGE);
}

TEST(unpin_ends_parts_of_a_single_gpu_page)
{
    begin_partly_mapped(GPU_PAGE, 3 * PAGE);
    unmap(va + PAGE, PAGE);
    unsigned char *part = moved(va + 2 * PAGE, PAGE);
    CHECK_PAGES(va, PAGE, OURS);
    CHECK_PAGES(part, PAGE, OURS);
    CHECK_OK(unpin(fd, handle));
    check_left(va, PAGE);
    check_left(part, PAGE);
}

TEST(mappings_neither_grow_nor_double)
{
    begin_partly_mapped(SIZE, GPU_PAGE);
    CHECK(mremap(va, GPU_PAGE, SIZE, MREMAP_MAYMOVE) == MAP_FAILED);
    CHECK_EQUAL(errno, EFAULT);
    CHECK(mremap(va, 0, PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
    CHECK_MAPPED(fd, handle);
    CHECK_PAGES(va, GPU_PAGE, OURS);
}

/* mremap to the addresses of another mapping ends that mapping. */
TEST(mapping_under_a_moved_one_is_unmapped)
{
    begin_partly_mapped(SIZE, GPU_PAGE);
    uint64_t other = pinned(fd, memory, GPU_PAGE);
    unsigned char *place = mapped(fd, other, GPU_PAGE);

    CHECK(mremap(va, GPU_PAGE, GPU_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    CHECK_NOT_MAPPED(fd, other);
    CHECK_EQUAL(mapping_type(fd, handle) != GDRDRV_MAPPING_TYPE_NONE,
                expected("a pin is mapped while a part of its mapping is", 1));
    CHECK_PAGES(place, GPU_PAGE, OURS);
    unmap(place, GPU_PAGE);
    CHECK_NOT_MAPPED(fd, handle);
}

/* A new mapping at the addresses of an old one ends the old one as munmap does. */
TEST(covered_mapping_is_unmapped)
{
    begin(SIZE);
    CHECK(mmap(va, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == va);
    CHECK_NOT_MAPPED(fd, handle);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES(va, SIZE, 0);
}

/* As in POSIX, a mapping needs no open descriptor: it keeps the device open, and so the pin lives on. */
TEST(close_does_not_end_a_mapping)
{
    begin(SIZE);
    unsigned char *part = moved(va, GPU_PAGE);
    CHECK(close(fd) == 0);
    CHECK_PINNED(1);
    CHECK_PAGES(part, GPU_PAGE, OURS);
    CHECK_PAGES(va + GPU_PAGE, SIZE - GPU_PAGE, OURS);
    unmap(part, GPU_PAGE);
    CHECK_PINNED(1);
    unmap(va + GPU_PAGE, SIZE - GPU_PAGE);
    CHECK_PINNED(0);
}
