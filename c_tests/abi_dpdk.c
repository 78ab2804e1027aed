/* DPDK's CUDA driver resolves five functions lazily, passes the device address to gdr_unmap, and never closes. */

#include "loaded.h"

int main(void)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so", RTLD_LAZY);
    uint32_t word = 0xfeedbeef, seen;
    gdr_mh_t handle;
    void *mapping;

    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    gdr_t g = gdr.open();
    CHECK(g != NULL);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(gdr.pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle));
        CHECK_OK(gdr.map(g, handle, &mapping, GPU_PAGE_SIZE));
        *(volatile uint32_t *)mapping = word + (uint32_t)i;
        __sync_synchronize();
        gpu_read(&seen, buffer.address, sizeof(seen));
        CHECK_EQUAL(seen, word + (uint32_t)i);
        CHECK_OK(gdr.unmap(g, handle, (void *)(uintptr_t)buffer.address, GPU_PAGE_SIZE));
        CHECK_OK(gdr.unpin_buffer(g, handle));
    }
    gpu_free(&buffer);
    return passed("abi_dpdk");
}
