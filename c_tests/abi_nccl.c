/*
 * NCCL loads libgdrapi.so and lets CPU threads dereference the mapping, at info.va - address.
 *
 * Up to 2.30 it asks for both versions right after opening, ignores the returned status, and uses the old
 * gdr_get_info. From 2.31 on it uses gdr_pin_buffer_v2, gdr_get_info_v2 and gdr_get_attribute where the library has
 * them. It asks for the driver version only without dma-bufs, and pins with gdr_pin_buffer_v2 with any driver. Its
 * GPUNetIO loads libgdrapi.so.2; if attribute 2 reports support for pins over PCIe, they must work.
 */

#include "loaded.h"

/* Stores through the mapping, at info.va - address, and returns what the GPU sees. */
static void store_and_read_back(CUdeviceptr address, uint64_t va, void *mapping, uint64_t value)
{
    volatile uint64_t *flag = (volatile uint64_t *)((char *)mapping + (va - address));
    uint64_t seen;

    CHECK_EQUAL(va, address);
    *flag = value;
    __sync_synchronize();
    gpu_read(&seen, address, sizeof(seen));
    CHECK_EQUAL(seen, value);
}

static void release(const struct loaded *gdr, gdr_t g, gdr_mh_t handle, void *mapping)
{
    CHECK_OK(gdr->unmap(g, handle, mapping, GPU_PAGE_SIZE));
    CHECK_OK(gdr->unpin_buffer(g, handle));
}

/* ---- Up to 2.30 ---- */

static void use_v1(const struct loaded *gdr, gdr_t g, CUdeviceptr address)
{
    struct info_v1 info;
    gdr_mh_t handle;
    void *mapping;

    CHECK_OK(gdr->pin_buffer(g, (unsigned long)address, GPU_PAGE_SIZE, 0, 0, &handle));
    CHECK_OK(gdr->map(g, handle, &mapping, GPU_PAGE_SIZE));
    CHECK_OK(gdr->get_info(g, handle, (void *)&info));
    CHECK_EQUAL(info.mapped, 1);
    store_and_read_back(address, info.va, mapping, 0x1122334455667788);
    release(gdr, g, handle, mapping);
}

static void session_up_to_2_30(CUdeviceptr address)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so", RTLD_NOW);
    int library_major, library_minor, driver_major, driver_minor;
    gdr_t g = gdr.open();

    CHECK(g != NULL);
    gdr.driver_get_version(g, &driver_major, &driver_minor);
    gdr.runtime_get_version(&library_major, &library_minor);
    CHECK(library_major == 2 && library_minor >= 1);
    CHECK_EQUAL(driver_major, 2);
    if (driver_minor >= 1) /* NCCL refuses 2.0 */
        use_v1(&gdr, g, address);
    close_and_unload(&gdr, g);
}

/* ---- From 2.31 on ---- */

static void use_v2(const struct loaded *gdr, gdr_t g, CUdeviceptr address)
{
    gdr_info_v2_t info;
    gdr_mh_t handle;
    void *mapping;

    CHECK_OK(gdr->pin_buffer_v2(g, (unsigned long)address, GPU_PAGE_SIZE, GDR_PIN_FLAG_DEFAULT, &handle));
    CHECK_OK(gdr->map(g, handle, &mapping, GPU_PAGE_SIZE));
    CHECK_OK(gdr->get_info_v2(g, handle, &info));
    CHECK_EQUAL(info.mapped, 1);
    CHECK(info.mapping_type != GDR_MAPPING_TYPE_NONE);
    store_and_read_back(address, info.va, mapping, 0x8877665544332211);
    release(gdr, g, handle, mapping);
}

static void session_from_2_31(CUdeviceptr address)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so", RTLD_NOW);
    int major, minor, dmabuf = -1;
    gdr_t g = gdr.open();

    CHECK(g != NULL);
    gdr.runtime_get_version(&major, &minor);
    CHECK(major == 2 && minor >= 6); /* without gdr_get_attribute NCCL always asks for the version */
    CHECK_OK(gdr.get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &dmabuf));
    if (dmabuf == 0) {
        CHECK_OK(gdr.driver_get_version(g, &major, &minor));
        CHECK_EQUAL(major, 2);
    }
    use_v2(&gdr, g, address); /* with any driver version, though 2.0 has no such command */
    close_and_unload(&gdr, g);
}

/* ---- GPUNetIO ---- */

static void session_of_gpunetio(CUdeviceptr address)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so.2", RTLD_NOW);
    int force_pcie = -1;
    gdr_t g = gdr.open();
    gdr_mh_t handle;
    void *mapping;

    CHECK(g != NULL);
    CHECK_OK(gdr.get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &force_pcie));
    CHECK(force_pcie == 0 || force_pcie == 1);
    int result = gdr.pin_buffer_v2(g, (unsigned long)address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle);
    if (result == 0) {
        CHECK_EQUAL(force_pcie, 1);
        CHECK_OK(gdr.map(g, handle, &mapping, GPU_PAGE_SIZE));
        store_and_read_back(address, address, mapping, 0x1234567812345678);
        release(&gdr, g, handle, mapping);
    } else {
        CHECK(result == EINVAL || result == EOPNOTSUPP); /* no coherent link, or an unknown flag */
    }
    close_and_unload(&gdr, g);
}

int main(void)
{
    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, GPU_PAGE_SIZE);
    for (int round = 0; round < 2; round++) { /* loaded again */
        session_up_to_2_30(buffer.address);
        session_from_2_31(buffer.address);
        session_of_gpunetio(buffer.address);
    }
    gpu_free(&buffer);
    return passed("abi_nccl");
}
