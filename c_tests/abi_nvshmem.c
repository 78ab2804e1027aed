/*
 * NVSHMEM loads libgdrapi.so.2, pins whole pages and maps part of them, and does its atomics by plain loads and stores
 * at address - info.va.
 *
 * Up to 3.7 it requires its header's major version and at least its minor one, and passes gdr_info_v2_t to the old
 * gdr_get_info. From 3.8 on the major version must match. It pins over PCIe where possible, maps with gdr_map_v2,
 * reads the mapping's type, and retries an unpin that failed.
 */

#include "emulator.h"
#include "loaded.h"

/* Increments, by CPU loads and stores, a word that the copy functions wrote; the GPU must see it. */
static void count_up(const struct loaded *gdr, gdr_mh_t handle, void *mapping, uint64_t va, CUdeviceptr address)
{
    volatile uint64_t *counter = (volatile uint64_t *)((char *)mapping + (address - va));
    uint64_t seen, sent = 41;

    CHECK_OK(gdr->copy_to_mapping(handle, (void *)counter, &sent, sizeof(sent)));
    *counter = *counter + 1;
    __sync_synchronize();
    gpu_read(&seen, address, sizeof(seen));
    CHECK_EQUAL(seen, 42);
}

static gdr_t start(const struct loaded *gdr, int minor_wanted)
{
    int major, minor;

    gdr->runtime_get_version(&major, &minor);
    CHECK(major == GDR_API_MAJOR_VERSION && minor >= minor_wanted);
    gdr_t g = gdr->open();
    CHECK(g != NULL);
    CHECK_OK(gdr->driver_get_version(g, &major, &minor));
    CHECK_EQUAL(major, 2);
    return g;
}

static void session_up_to_3_7(CUdeviceptr address)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so.2", RTLD_LAZY);
    gdr_t g = start(&gdr, GDR_API_MINOR_VERSION);
    gdr_info_t info;
    gdr_mh_t handle;
    void *mapping;

    CHECK_OK(gdr.pin_buffer(g, (unsigned long)address, 2 * GPU_PAGE_SIZE, 0, 0, &handle));
    CHECK_OK(gdr.map(g, handle, &mapping, GPU_PAGE_SIZE + 8));
    memset(&info, 0x5a, sizeof(info));
    CHECK_OK(gdr.get_info(g, handle, &info));
    CHECK_EQUAL(info.mapping_type, 0x5a5a5a5a); /* the old function does not fill it */
    CHECK_EQUAL(info.mapped_size, 2 * GPU_PAGE_SIZE);
    count_up(&gdr, handle, mapping, info.va, address);
    CHECK_OK(gdr.unmap(g, handle, mapping, GPU_PAGE_SIZE + 8));
    CHECK_OK(gdr.unpin_buffer(g, handle));
    close_and_unload(&gdr, g);
}

/* Pins over PCIe, else with default flags. */
static gdr_mh_t pin_from_3_8(const struct loaded *gdr, gdr_t g, CUdeviceptr address, size_t size)
{
    int force_pcie = 0, result = -1;
    gdr_mh_t handle;

    CHECK_OK(gdr->get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &force_pcie));
    if (force_pcie)
        result = gdr->pin_buffer_v2(g, (unsigned long)address, size, GDR_PIN_FLAG_FORCE_PCIE, &handle);
    if (result != 0)
        CHECK_OK(gdr->pin_buffer_v2(g, (unsigned long)address, size, GDR_PIN_FLAG_DEFAULT, &handle));
    return handle;
}

/* Under gdremu the driver fails the first unpin; the handle stays valid, and the retry succeeds. */
static void unpin_with_retry(const struct loaded *gdr, gdr_t g, gdr_mh_t handle)
{
    int (*faults_set)(const char *list), dmabuf = 0, failures = 0;

    CHECK_OK(gdr->get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &dmabuf));
    *(void **)&faults_set = dmabuf ? NULL : dlsym(RTLD_DEFAULT, "gdremu_faults_set");
    if (faults_set != NULL)
        CHECK_EQUAL(faults_set("UNPIN_BUFFER:EBUSY@1"), 0);
    while (gdr->unpin_buffer(g, handle) != 0)
        CHECK(++failures < 3);
    if (faults_set != NULL) {
        CHECK_EQUAL(failures, driver_is_emulated());
        CHECK_EQUAL(faults_set(NULL), 0);
    }
    CHECK_ERROR(gdr->unpin_buffer(g, handle), EINVAL);
}

static void session_from_3_8(CUdeviceptr address)
{
    struct loaded gdr = load_gdrapi("libgdrapi.so.2", RTLD_LAZY);
    gdr_t g = start(&gdr, 0);
    gdr_mh_t handle = pin_from_3_8(&gdr, g, address, 2 * GPU_PAGE_SIZE);
    gdr_info_v2_t info;
    void *mapping;

    CHECK_OK(gdr.map_v2(g, handle, &mapping, GPU_PAGE_SIZE + 8, GDR_MAP_FLAG_DEFAULT));
    CHECK_OK(gdr.get_info_v2(g, handle, &info));
    CHECK(info.mapping_type == GDR_MAPPING_TYPE_WC || info.mapping_type == GDR_MAPPING_TYPE_CACHING ||
          info.mapping_type == GDR_MAPPING_TYPE_DEVICE);
    CHECK(info.va <= address && address - info.va < GPU_PAGE_SIZE);
    CHECK_EQUAL(info.mapped_size, 2 * GPU_PAGE_SIZE);
    count_up(&gdr, handle, mapping, info.va, address);
    CHECK_OK(gdr.unmap(g, handle, mapping, GPU_PAGE_SIZE + 8));
    unpin_with_retry(&gdr, g, handle);
    close_and_unload(&gdr, g);
}

int main(void)
{
    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_CREATE, 4 * GPU_PAGE_SIZE);
    for (int round = 0; round < 2; round++) {
        session_up_to_3_7(buffer.address + GPU_PAGE_SIZE);
        session_from_3_8(buffer.address + GPU_PAGE_SIZE);
    }
    gpu_free(&buffer);
    return passed("abi_nvshmem");
}
