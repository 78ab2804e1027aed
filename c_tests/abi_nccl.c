/*
 * NCCL: loads libgdrapi.so, asks both versions right after opening and ignores the answer's status, finds its address
 * by the old gdr_get_info as info.va - address, and lets CPU threads dereference the mapping.
 */

#include "loaded.h"

/* NCCL's own copy of the struct, from times before mapping_type. */
struct info {
    uint64_t va;
    uint64_t mapped_size;
    uint32_t page_size;
    uint64_t tm_cycles;
    uint32_t cycles_per_ms;
    unsigned mapped : 1;
    unsigned wc_mapping : 1;
};

static void allocate_use_and_free(const struct loaded *gdr, gdr_t g)
{
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    struct info info;
    gdr_mh_t handle;
    void *mapping;
    volatile uint64_t *flag;
    uint64_t seen;

    CHECK_OK(gdr->pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle));
    CHECK_OK(gdr->map(g, handle, &mapping, GPU_PAGE_SIZE));
    CHECK_OK(gdr->get_info(g, handle, &info));
    flag = (volatile uint64_t *)((char *)mapping + (info.va - buffer.address));
    CHECK_EQUAL(info.va, buffer.address);
    CHECK_EQUAL(info.mapped, 1);

    *flag = 0x1122334455667788;
    __sync_synchronize();
    gpu_read(&seen, buffer.address, sizeof(seen));
    CHECK_EQUAL(seen, 0x1122334455667788);

    CHECK_OK(gdr->unmap(g, handle, mapping, GPU_PAGE_SIZE));
    CHECK_OK(gdr->unpin_buffer(g, handle));
    gpu_free(&buffer);
}

static void session(void)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so", RTLD_NOW);
    int library_major, library_minor, driver_major, driver_minor;
    gdr_t g = gdr.open();

    CHECK(g != NULL);
    gdr.driver_get_version(g, &driver_major, &driver_minor);
    gdr.runtime_get_version(&library_major, &library_minor);
    CHECK(library_major == 2 && library_minor >= 1);
    if (driver_major == 2 && driver_minor < 1)
        waive("abi_nccl", "it needs a driver of 2.1 or later");
    CHECK_EQUAL(driver_major, 2);
    allocate_use_and_free(&gdr, g);
    CHECK_OK(gdr.close(g));
    CHECK(dlclose(gdr.library) == 0);
}

int main(void)
{
    gpu_init();
    session();
    session(); /* loaded anew */
    return passed("abi_nccl");
}
