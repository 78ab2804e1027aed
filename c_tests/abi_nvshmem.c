/*
 * NVSHMEM: loads libgdrapi.so.2, insists on its header's major version and at least its minor one, passes the old
 * gdr_get_info a struct of today's type, pins whole pages and maps less, and does its atomics by plain loads and
 * stores at address - info.va.
 */

#include "loaded.h"

static void session(void)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so.2", RTLD_LAZY);
    struct gpu_buffer buffer = gpu_alloc(MEM_CREATE, 4 * GPU_PAGE_SIZE);
    CUdeviceptr address = buffer.address + GPU_PAGE_SIZE;
    int major, minor;
    gdr_info_t info;
    gdr_mh_t handle;
    void *mapping;
    volatile uint64_t *counter;
    uint64_t seen, sent = 41;
    gdr_t g;

    gdr.runtime_get_version(&major, &minor);
    CHECK(major == GDR_API_MAJOR_VERSION && minor >= GDR_API_MINOR_VERSION);
    g = gdr.open();
    CHECK(g != NULL);
    CHECK_OK(gdr.driver_get_version(g, &major, &minor));
    CHECK_EQUAL(major, 2);

    CHECK_OK(gdr.pin_buffer(g, (unsigned long)address, 2 * GPU_PAGE_SIZE, 0, 0, &handle));
    CHECK_OK(gdr.map(g, handle, &mapping, GPU_PAGE_SIZE + 8));
    memset(&info, 0x5a, sizeof(info));
    CHECK_OK(gdr.get_info(g, handle, &info));
    CHECK_EQUAL(info.mapping_type, 0x5a5a5a5a); /* the old entry does not know it */
    CHECK_EQUAL(info.mapped_size, 2 * GPU_PAGE_SIZE);

    counter = (volatile uint64_t *)((char *)mapping + (address - info.va));
    CHECK_OK(gdr.copy_to_mapping(handle, (void *)counter, &sent, sizeof(sent)));
    *counter = *counter + 1;
    __sync_synchronize();
    gpu_read(&seen, address, sizeof(seen));
    CHECK_EQUAL(seen, 42);

    CHECK_OK(gdr.unmap(g, handle, mapping, GPU_PAGE_SIZE + 8));
    CHECK_OK(gdr.unpin_buffer(g, handle));
    CHECK_OK(gdr.close(g));
    CHECK(dlclose(gdr.library) == 0);
    gpu_free(&buffer);
}

int main(void)
{
    gpu_init();
    session();
    session();
    return passed("abi_nvshmem");
}
