/* Tests of PIN_BUFFER and PIN_BUFFER_V2 with ranges, tokens, flags and handles, and of GET_INFO for
   their pins. */
#include "contract.h"

/* Checks that both PIN_BUFFER commands pin the range; or, if mapped_size is 0, fail with EINVAL and change nothing. */
static void check_range(uint64_t addr, uint64_t size, uint64_t va, uint64_t mapped_size)
{
    struct gdrdrv_pin_buffer_v2 a = {.addr = addr, .size = size, .handle = 77};
    struct gdrdrv_get_info v1 = {.mapped = 77, .wc_mapping = 77};
    struct gdrdrv_get_info_v2 v2;
    uint64_t handle = 77;
    int error = pin(fd, addr, size, &handle);

    if (error != (mapped_size ? 0 : EINVAL)) {
        fprintf(stderr, "pin of %#llx bytes at %#llx: %s\n", (unsigned long long)size, (unsigned long long)addr,
                strerror(error));
        exit(1);
    }
    if (since(5))
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &a), error);
    if (error) {
        CHECK_EQUAL(handle, 77);
        CHECK_EQUAL(a.handle, 77);
        CHECK_PINNED(0);
        return;
    }
    v1.handle = handle;
    CHECK_OK(command(fd, GDRDRV_IOC_GET_INFO, &v1));
    CHECK_EQUAL(v1.va, va);
    CHECK_EQUAL(v1.mapped_size, mapped_size);
    CHECK_EQUAL(v1.page_size, GPU_PAGE);
    CHECK(v1.tsc_khz > 0 && v1.tm_cycles > 0);
    CHECK_EQUAL(v1.mapped, 0);
    CHECK_EQUAL(v1.wc_mapping, 0);
    if (since(4)) {
        CHECK_OK(info(fd, handle, &v2));
        CHECK_EQUAL(v2.va, v1.va);
        CHECK_EQUAL(v2.mapped_size, v1.mapped_size);
        CHECK_EQUAL(v2.page_size, v1.page_size);
        CHECK_EQUAL(v2.tsc_khz, v1.tsc_khz);
        CHECK_EQUAL(v2.tm_cycles, v1.tm_cycles);
        CHECK_EQUAL(v2.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
    }
    CHECK_OK(unpin(fd, handle));
    if (since(5))
        CHECK_OK(unpin(fd, a.handle));
}

static void open_and_allocate(void)
{
    memory = memory_alloc(UNIT);
    fd = driver_open();
}

TEST(whole_gpu_pages_are_pinned)
{
    open_and_allocate();
    check_range(memory.va, GPU_PAGE, memory.va, GPU_PAGE);
    check_range(memory.va, memory.size, memory.va, memory.size);
    check_range(memory.va + GPU_PAGE, GPU_PAGE, memory.va + GPU_PAGE, GPU_PAGE);
    check_range(memory.va + memory.size - GPU_PAGE, GPU_PAGE, memory.va + memory.size - GPU_PAGE, GPU_PAGE);
}

TEST(ranges_are_rounded_out_to_gpu_pages)
{
    if (expected("pins are whole GPU pages", 1) == ANY)
        waive("release 2.4.2 is the first that rounds, and reports itself as 2.4");
    open_and_allocate();
    check_range(memory.va, 1, memory.va, GPU_PAGE);
    check_range(memory.va, GPU_PAGE + 1, memory.va, 2 * GPU_PAGE);
    check_range(memory.va + 5, 0, memory.va, GPU_PAGE);
    check_range(memory.va + 5, GPU_PAGE - 5, memory.va, GPU_PAGE);
    check_range(memory.va + 5, GPU_PAGE - 4, memory.va, 2 * GPU_PAGE);
    check_range(memory.va + PAGE, GPU_PAGE, memory.va, 2 * GPU_PAGE);
    check_range(memory.va + GPU_PAGE - 1, 1, memory.va, GPU_PAGE);
}

TEST(ranges_beyond_the_memory_are_einval)
{
    open_and_allocate();
    check_range(0, GPU_PAGE, 0, 0);
    check_range(memory.va, 0, 0, 0);
    check_range(memory.va, memory.size + 1, 0, 0);
    check_range(memory.va - 1, 2, 0, 0);
    check_range(memory.va, ~0ULL, 0, 0);
    check_range(memory.va + 1, ~0ULL - 1, 0, 0);
    check_range(memory.va + 5, ~0ULL - 4, 0, 0);
    check_range(~0ULL, 1, 0, 0);
    check_range(~0ULL, ~0ULL, 0, 0);
    check_range(1ULL << 63, 1ULL << 63, 0, 0);
    check_range(NO_GPU_MEMORY, GPU_PAGE, 0, 0);
    check_range((uint64_t)(uintptr_t)&fd, GPU_PAGE, 0, 0);
}

TEST(tokens_are_refused_with_persistent_pins_only)
{
    const struct {
        uint64_t p2p_token;
        uint32_t va_space;
    } wrong[] = {{1, 0}, {0, 77}, {1, 1}};

    open_and_allocate();
    long error = persistent(fd) ? EINVAL : expected("PIN_BUFFER with tokens that no process has", 0);
    struct gdrdrv_pin_buffer a = {.addr = memory.va, .size = GPU_PAGE};
    if (memory_tokens(memory, &a)) {
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER, &a), persistent(fd) ? EINVAL : 0);
        if (!persistent(fd))
            CHECK_OK(unpin(fd, a.handle));
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        a.p2p_token = wrong[i].p2p_token;
        a.va_space = wrong[i].va_space;
        a.handle = 77;
        if (error == ANY)
            CHECK(command(fd, GDRDRV_IOC_PIN_BUFFER, &a) != 0);
        else
            CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER, &a), error);
        if (error)
            CHECK_EQUAL(a.handle, 77);
        else
            CHECK_OK(unpin(fd, a.handle));
    }
}

TEST(unknown_flags_are_einval)
{
    if (!since(5))
        waive("flags exist since 2.5");
    open_and_allocate();
    struct gdrdrv_pin_buffer_v2 a = {.addr = memory.va, .size = GPU_PAGE, .handle = 77};
    for (a.flags = 2; a.flags != 0; a.flags <<= 1)
        CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &a), EINVAL);
    a.flags = 3;
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &a), EINVAL);
    CHECK_EQUAL(a.handle, 77);
}

/* A GPU without a coherent link has only PCIe. For such a GPU, the GPU driver refuses the flag with error 524. */
TEST(force_pcie_works_where_the_attribute_says_so)
{
    struct gdrdrv_get_attr attribute = {.attr = GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE};

    if (!since(5))
        waive("flags exist since 2.5");
    open_and_allocate();
    struct gdrdrv_pin_buffer_v2 a = {
        .addr = memory.va, .size = GPU_PAGE, .flags = GDRDRV_PIN_FLAG_FORCE_PCIE, .handle = 77};
    CHECK_OK(command(fd, GDRDRV_IOC_GET_ATTR, &attribute));
    CHECK(!attribute.val || persistent(fd));
    int error = command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &a);
    if (!attribute.val)
        CHECK_EQUAL(error, EINVAL);
    else if (error) {
        CHECK_EQUAL(error, 524);
    } else {
        CHECK_ERROR(request_type(fd, a.handle, GDRDRV_MAPPING_TYPE_CACHING), EOPNOTSUPP);
        CHECK_OK(unpin(fd, a.handle));
    }
    if (error)
        CHECK_EQUAL(a.handle, 77);
}

TEST(handles_are_page_offsets)
{
    uint64_t failed;

    open_and_allocate();
    uint64_t first = pinned(fd, memory, 2 * GPU_PAGE);
    if (expected("first handle", 0) == 0)
        CHECK_EQUAL(first, 0);
    CHECK_ERROR(pin(fd, NO_GPU_MEMORY, GPU_PAGE, &failed), EINVAL);
    uint64_t handle = pinned(fd, memory, GPU_PAGE);
    CHECK_EQUAL(handle, first + 2 * GPU_PAGE / PAGE);
    CHECK_OK(unpin(fd, handle));
    handle = pinned(fd, memory, GPU_PAGE);
    CHECK_EQUAL(handle, first + 3 * GPU_PAGE / PAGE);
}

/* Skipped if a pin of 8 bytes fails: the module does not round sizes up, and the GPU driver pins only whole pages. */
TEST(small_pins_have_handles_of_their_own)
{
    uint64_t first, second;

    open_and_allocate();
    if (pin(fd, memory.va, 8, &first) != 0)
        waive("this release passes sizes on unchanged, and the GPU driver refuses 8 bytes");
    CHECK_OK(pin(fd, memory.va + 8, 8, &second));
    CHECK_EQUAL(first != second, expected("pins of less than a page have handles of their own", 1));
}

TEST(memory_can_be_pinned_twice)
{
    open_and_allocate();
    uint64_t first = pinned(fd, memory, GPU_PAGE);
    uint64_t second = pinned(fd, memory, GPU_PAGE);
    CHECK(first != second);
    CHECK_PINNED(2);
    CHECK_OK(unpin(fd, first));
    CHECK_PINNED(1);
}
