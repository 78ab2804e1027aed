/*
 * MSCCL++ is linked. It checks for the device node and for gdrdrv 2.5 or later, pins over PCIe or, where that is
 * refused, with default flags, and keeps one mapping for semaphores.
 */

#include "kit/library.h"

int main(void)
{
    int major, minor, value;
    gdr_mh_t handle;
    void *mapping;
    gdr_t g = open_driver();

    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &value));
    CHECK_EQUAL(access("/dev/gdrdrv", R_OK | W_OK) != 0, value); /* the node exists, or is not needed */
    CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    if (major != 2 || minor < 5) {
        CHECK_OK(gdr_close(g));
        waive("MSCCL++ requires gdrdrv 2.5 or later");
    }

    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    int result = gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle);
    if (result != 0)
        CHECK_OK(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_DEFAULT, &handle));
    CHECK_OK(gdr_map(g, handle, &mapping, GPU_PAGE_SIZE));
    check_shows(handle, mapping, buffer.address, sizeof(uint64_t));
    unmap_and_unpin(g, handle, mapping, GPU_PAGE_SIZE);
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("abi_mscclpp");
}
