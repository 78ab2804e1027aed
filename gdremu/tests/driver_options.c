/*
 * Behavior that options of the emulated driver change and the contract of /dev/gdrdrv (tests/gdrdrv) leaves open.
 * Expected values that depend on the options are arguments.
 */
#include "device.h"
#include "tests.h"

#include <sys/resource.h>

static int fd;
static CUdeviceptr memory;

static uint64_t expected(int index)
{
    CHECK(arguments[index] != NULL);
    return strtoull(arguments[index], NULL, 0);
}

static void begin(void)
{
    memory = gpu_memory(ALIGNED_SIZE);
    fd = driver_open();
}

/* The `n`th page of the memory. */
static uint64_t pin_page(int n)
{
    return pinned(fd, memory + (CUdeviceptr)n * GPU_PAGE, GPU_PAGE);
}

static void unmap(unsigned char *va, size_t size)
{
    CHECK_EQUAL(munmap(va, size), 0);
}

/* Arguments: version, oldest library. */
TEST(versions)
{
    struct gdrdrv_get_version version;

    CHECK_OK(command(driver_open(), GDRDRV_IOC_GET_VERSION, &version));
    CHECK_EQUAL(version.gdrdrv_version, expected(0));
    CHECK_EQUAL(version.minimum_gdr_api_version, expected(1));
}

/* Arguments: both attributes, and the error of a forced pin. */
TEST(forced_pins)
{
    struct gdrdrv_get_attr attribute = {.attr = GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE};

    begin();
    struct gdrdrv_pin_buffer_v2 v2 = {.addr = memory, .size = 1, .flags = GDRDRV_PIN_FLAG_FORCE_PCIE};
    CHECK_EQUAL(persistent(fd), expected(0));
    CHECK_OK(command(fd, GDRDRV_IOC_GET_ATTR, &attribute));
    CHECK_EQUAL(attribute.val, expected(1));
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), (int)expected(2));
    if (expected(2) == 0) {
        unsigned char *va = mapped(fd, v2.handle, GPU_PAGE);
        CHECK_EQUAL(info_of(fd, v2.handle).wc_mapping, 1); /* Not cached, whatever the platform. */
        unmap(va, GPU_PAGE);
    }
    CHECK_EQUAL(pins(), expected(2) == 0);
}

/* Argument: whether a free ends the pin. */
TEST(free_of_a_pin)
{
    begin();
    uint64_t handle = pin_page(0);
    CUDA(cuMemFree(memory));
    CHECK_EQUAL(flag_of(fd, handle), expected(0));
    CHECK_EQUAL(pins(), expected(0) == 0);
}

/* Arguments: the sizes of pins whose end, or start and end, are within a page; 0 if they are refused. */
TEST(sizes)
{
    begin();
    const struct {
        uint64_t start, size, pinned;
    } pins[] = {{0, GPU_PAGE, GPU_PAGE}, {16, GPU_PAGE - 16, GPU_PAGE}, {0, PAGE, expected(0)}, {16, GPU_PAGE, expected(1)}};
    for (size_t i = 0; i < sizeof(pins) / sizeof(pins[0]); i++) {
        uint64_t handle = 77;
        CHECK_ERROR(pin(fd, memory + pins[i].start, pins[i].size, &handle), pins[i].pinned ? 0 : EINVAL);
        if (pins[i].pinned == 0)
            continue;
        CHECK_EQUAL(info_of(fd, handle).va, memory);
        CHECK_EQUAL(info_of(fd, handle).mapped_size, pins[i].pinned);
    }
}

/* Under --handle-base 0xfffffffffffef, the first of 16 handles, whose last is the largest that has an offset. */
TEST(handles_run_out)
{
    struct gdrdrv_pin_buffer_v2 v2 = {.size = GPU_PAGE};

    begin();
    v2.addr = memory;
    size_t before = free_bytes();
    uint64_t handle = pin_page(0);
    CHECK_EQUAL(handle, ~0ull / PAGE - 16);
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), ENOMEM);
    CHECK_EQUAL(pins(), 1);
    /* The refused pin keeps no pages. */
    CHECK_OK(unpin(fd, handle));
    CUDA(cuMemFree(memory));
    CHECK_EQUAL(free_bytes(), before + ALIGNED_SIZE);
}

TEST(failed_mapping_changes_nothing)
{
    enum { SIZE = 1 << 30 };
    struct rlimit all, now = {0};
    unsigned char *va;
    FILE *statm = fopen("/proc/self/statm", "r");

    memory = gpu_memory(SIZE);
    fd = driver_open();
    uint64_t handle = pinned(fd, memory, SIZE);
    CHECK(statm != NULL && fscanf(statm, "%lu", &now.rlim_cur) == 1);
    CHECK_EQUAL(getrlimit(RLIMIT_AS, &all), 0);
    now.rlim_cur = now.rlim_cur * PAGE + SIZE / 2;
    now.rlim_max = all.rlim_max;
    CHECK_EQUAL(setrlimit(RLIMIT_AS, &now), 0);
    CHECK_ERROR(map(fd, handle, SIZE, &va), ENOMEM);
    CHECK_EQUAL(setrlimit(RLIMIT_AS, &all), 0);
    CHECK(!is_mapped(fd, handle));
    unmap(mapped(fd, handle, SIZE), SIZE);
    fclose(statm);
}

TEST(rest_of_an_old_mapping_is_none_of_the_pin)
{
    begin();
    uint64_t handle = pin_page(0);
    unsigned char *old = mapped(fd, handle, GPU_PAGE);
    unmap(old, PAGE);
    unsigned char *va = mapped(fd, handle, GPU_PAGE);
    unmap(old + PAGE, GPU_PAGE - PAGE);
    CHECK(is_mapped(fd, handle));
    unmap(va, GPU_PAGE);
}

/* Under --traditional. */
TEST(close_after_a_free)
{
    gpu_start(0);
    size_t before = free_bytes();
    begin();
    pin_page(0);
    pin_page(1);
    int other = driver_open();
    CUdeviceptr kept = gpu_memory(ALIGNED_SIZE);
    pinned(other, kept, GPU_PAGE);
    CUDA(cuMemFree(memory));
    CHECK_EQUAL(pins(), 1);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(pins(), 1);
    CHECK_EQUAL(close(other), 0);
    CHECK_EQUAL(pins(), 0);
    CUDA(cuMemFree(kept));
    CHECK_EQUAL(free_bytes(), before);
}

static void check_no_pins(void)
{
    CHECK_EQUAL(pins(), 0);
}

TEST(forked_child_has_no_pins)
{
    begin();
    unsigned char *va = mapped(fd, pin_page(0), GPU_PAGE);
    in_child(check_no_pins);
    CHECK_EQUAL(pins(), 1);
    unmap(va, GPU_PAGE);
}

/* ---- --module-defects ---- */

TEST(wrong_handle_finds_the_oldest_pin)
{
    const uint64_t wrong = 0x1000;

    begin();
    uint64_t oldest = pin_page(0), second = pin_page(1);
    CHECK_EQUAL(flag_of(fd, wrong), 0);
    CHECK_OK(request_type(fd, wrong, GDRDRV_MAPPING_TYPE_WC));
    unsigned char *va = mapped(fd, wrong, GPU_PAGE);
    CHECK(is_mapped(fd, oldest));
    CHECK_OK(unpin(fd, wrong));
    CHECK_PAGES_GONE(va, GPU_PAGE);
    CHECK_EQUAL(info_of(fd, oldest).va, memory + GPU_PAGE); /* Now the second. */
    CHECK_OK(unpin(fd, oldest));
    CHECK_ERROR(unpin(fd, second), EINVAL);
    unmap(va, GPU_PAGE);
}

TEST(second_mmap_forgets_the_mapping)
{
    unsigned char *second;

    begin();
    uint64_t handle = pin_page(0);
    unsigned char *first = mapped(fd, handle, GPU_PAGE);
    CHECK_ERROR(map(fd, handle, GPU_PAGE, &second), EINVAL);
    CHECK(!is_mapped(fd, handle));
    unsigned char *third = mapped(fd, handle, GPU_PAGE);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(third, GPU_PAGE);
    CHECK_PAGES(first, GPU_PAGE, 0);
    unmap(first, GPU_PAGE);
    unmap(third, GPU_PAGE);
}

/* As does a mapping at its addresses, with the argument "covered". The oldest pin's mapping is no more torn down. */
TEST(late_munmap_marks_the_oldest_pin_unmapped)
{
    begin();
    uint64_t oldest = pin_page(0), late = pin_page(1);
    unsigned char *first = mapped(fd, oldest, GPU_PAGE), *second = mapped(fd, late, GPU_PAGE);
    CHECK_OK(unpin(fd, late));
    CHECK(is_mapped(fd, oldest));
    if (arguments[0] == NULL)
        unmap(second, GPU_PAGE);
    else
        CHECK(mmap(second, GPU_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == second);
    CHECK(!is_mapped(fd, oldest));
    CHECK_OK(unpin(fd, oldest));
    CHECK_PAGES(first, GPU_PAGE, 0);
    unmap(first, GPU_PAGE);
}
