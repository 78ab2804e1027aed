/*
 * MSCCL++ is linked. It checks for the device node and for gdrdrv 2.5 or later, pins over PCIe or, where that is
 * refused, with default flags, and keeps one mapping for semaphores.
 */

#include "kit/library.h"

int main(void)
{
    struct gpu_buffer buffer;
    int major, minor, value, result;
    uint64_t semaphore = 0x0102030405060708, seen = 0;
    gdr_mh_t handle;
    void *mapping;
    gdr_t g = gdr_open();

    CHECK(g != NULL);
    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
    CHECK_EQUAL(access("/dev/gdrdrv", R_OK | W_OK) != 0, value); /* the node exists, or is not needed */
    CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    if (major != 2 || minor < 5) {
        CHECK_OK(gdr_close(g));
        waive("MSCCL++ requires gdrdrv 2.5 or later");
    }

    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    result = gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle);
    if (result != 0)
        CHECK_OK(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_DEFAULT, &handle));
    CHECK_OK(gdr_map(g, handle, &mapping, GPU_PAGE_SIZE));
    CHECK_OK(gdr_copy_to_mapping(handle, mapping, &semaphore, sizeof(semaphore)));
    gpu_read(&seen, buffer.address, sizeof(seen));
    CHECK_EQUAL(seen, semaphore);
    CHECK_OK(gdr_copy_from_mapping(handle, &seen, mapping, sizeof(seen)));
    CHECK_EQUAL(seen, semaphore);
    CHECK_OK(gdr_unmap(g, handle, mapping, GPU_PAGE_SIZE));
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("abi_mscclpp");
}
