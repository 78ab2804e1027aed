/* Tests of gdr_get_callback_flag, and of memory that is freed while it is pinned. */

#include "bodies.h"
#include "kit/fault.h"

/* With persistent mapping, pinned memory outlives cuMemFree until it is unpinned. */
static void freed_memory_stays_usable_in_persistent_mode(enum gpu_memory kind)
{
    struct gpu_buffer buffer = gpu_alloc(kind, 4 * GPU_PAGE_SIZE);
    CUdeviceptr address = buffer.address;
    gdr_t g = gdr_open();
    gdr_mh_t handle = pin(g, address, 4 * GPU_PAGE_SIZE);
    uint32_t *va = map(g, handle, 4 * GPU_PAGE_SIZE);
    uint32_t written = 0xfeedface, read = 0;

    CHECK_OK(gdr_copy_to_mapping(handle, va, &written, sizeof(written)));
    CHECK_EQUAL(flag_of(g, handle), 0);

    gpu_free(&buffer);
    CHECK_EQUAL(flag_of(g, handle), 0);
    CHECK_READABLE(va);
    CHECK_EQUAL(info_of(g, handle).mapped, 1);
    CHECK_OK(gdr_copy_from_mapping(handle, &read, va, sizeof(read)));
    CHECK_EQUAL(read, written);
    CHECK_OK(gdr_copy_to_mapping(handle, va, &written, sizeof(written)));

    CHECK_OK(gdr_unmap(g, handle, va, 4 * GPU_PAGE_SIZE));
    va = map(g, handle, 4 * GPU_PAGE_SIZE);
    read = 0;
    CHECK_OK(gdr_copy_from_mapping(handle, &read, va, sizeof(read)));
    CHECK_EQUAL(read, written);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
}

/* Without persistent mapping, a free of pinned memory ends the mapping and sets the pin's callback flag. */
static void freed_memory_otherwise_sets_the_flag(enum gpu_memory kind)
{
    struct gpu_buffer buffer = gpu_alloc(kind, 4 * GPU_PAGE_SIZE);
    CUdeviceptr address = buffer.address;
    gdr_t g = gdr_open();
    gdr_mh_t handle = pin(g, address, 4 * GPU_PAGE_SIZE);
    gdr_mh_t unmapped = pin(g, address, GPU_PAGE_SIZE);
    void *va = map(g, handle, 4 * GPU_PAGE_SIZE);
    void *second = NULL;

    CHECK_READABLE(va);
    CHECK_EQUAL(flag_of(g, handle), 0);

    gpu_free(&buffer);
    CHECK_EQUAL(flag_of(g, handle), 1);
    CHECK_EQUAL(flag_of(g, unmapped), 1);
    CHECK_REVOKED(va);
    CHECK_REVOKED((char *)va + 4 * GPU_PAGE_SIZE - 1);
    CHECK_OK(gdr_unmap(g, handle, va, 4 * GPU_PAGE_SIZE));
    CHECK_ERROR(gdr_map(g, handle, &second, 4 * GPU_PAGE_SIZE), EINVAL);
    CHECK_ERROR(gdr_map(g, unmapped, &second, GPU_PAGE_SIZE), EINVAL);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_unpin_buffer(g, unmapped));
    CHECK_OK(gdr_close(g));
}

void freed_memory_keeps_or_loses_its_mapping(enum gpu_memory kind)
{
    gdr_t g = open_driver();
    int persistent = is_persistent(g);

    CHECK_OK(gdr_close(g));
    gpu_init();
    if (persistent)
        freed_memory_stays_usable_in_persistent_mode(kind);
    else
        freed_memory_otherwise_sets_the_flag(kind);
}

void freeing_one_buffer_does_not_affect_another(enum gpu_memory kind)
{
    gpu_init();
    struct gpu_buffer one = gpu_alloc(kind, GPU_PAGE_SIZE), other = gpu_alloc(kind, GPU_PAGE_SIZE);
    gdr_t g = gdr_open();
    gdr_mh_t pin_of_one = pin(g, one.address, GPU_PAGE_SIZE);
    gdr_mh_t pin_of_other = pin(g, other.address, GPU_PAGE_SIZE);
    void *va = map(g, pin_of_other, GPU_PAGE_SIZE);

    map(g, pin_of_one, GPU_PAGE_SIZE);
    gpu_free(&one);
    CHECK_OK(gdr_unpin_buffer(g, pin_of_one));
    CHECK_EQUAL(flag_of(g, pin_of_other), 0);
    check_shows(pin_of_other, va, other.address, GPU_PAGE_SIZE);
    CHECK_OK(gdr_close(g));
    gpu_free(&other);
}

int main(void)
{
    freed_memory_keeps_or_loses_its_mapping(MEM_ALLOC);
    freed_memory_keeps_or_loses_its_mapping(MEM_CREATE);
    freeing_one_buffer_does_not_affect_another(MEM_ALLOC);
    freeing_one_buffer_does_not_affect_another(MEM_CREATE);
    return passed("callback_flag");
}
