/*
 * Makes the calls that well-known programs make to libgdrapi, in the same order, because these programs must keep
 * working. The calls of each program are made in a process of their own. Every test here loads the library by dlopen,
 * even where the real program is linked with it. ci/consumers.sh runs UCX, libfabric and DPDK themselves.
 */

#include "emulator.h"
#include "loaded.h"

#define SIZE (2 * GPU_PAGE_SIZE)

static struct loaded gdr;
static gdr_t g;
static struct gpu_buffer buffer;
static CUdeviceptr address; /* the address to pin */
static gdr_mh_t handle;
static void *mapping;
static int library_minor, driver_minor;

static void load_and_open(const char *name, int flags)
{
    gdr = load_gdrapi(name, flags);
    g = gdr.open();
    CHECK(g != NULL);
}

static void allocate(enum gpu_memory kind, size_t offset)
{
    gpu_init();
    buffer = gpu_alloc(kind, offset + SIZE);
    address = buffer.address + offset;
}

static void get_versions(void)
{
    int library_major, driver_major;

    CHECK_OK(gdr.driver_get_version(g, &driver_major, &driver_minor));
    gdr.runtime_get_version(&library_major, &library_minor);
    CHECK(library_major == GDR_API_MAJOR_VERSION && driver_major == 2);
}

static void pin_v1(void)
{
    CHECK_OK(gdr.pin_buffer(g, (unsigned long)address, SIZE, 0, 0, &handle));
}

static void pin_v2(void)
{
    CHECK_OK(gdr.pin_buffer_v2(g, (unsigned long)address, SIZE, GDR_PIN_FLAG_DEFAULT, &handle));
}

/* Pins with the flag that forces access over PCIe, and returns whether that worked. If not, the handle must stay 0. */
static int pin_over_pcie(void)
{
    handle.h = 0;
    int result = gdr.pin_buffer_v2(g, (unsigned long)address, SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle);
    CHECK(result == 0 || result == EINVAL || result == EOPNOTSUPP); /* refused by old drivers and PCIe-only GPUs */
    CHECK_EQUAL(handle.h != 0, result == 0);
    return result == 0;
}

/* Returns the CPU address of the byte at the GPU address `address`. The mapping starts at the GPU address `va`. */
static volatile uint64_t *place_after(uint64_t va)
{
    CHECK(va <= address && address - va < GPU_PAGE_SIZE);
    return (volatile uint64_t *)((char *)mapping + (address - va));
}

static volatile uint64_t *map_and_get_info(void)
{
    struct info_v1 info;

    CHECK_OK(gdr.map(g, handle, &mapping, SIZE));
    CHECK_OK(gdr.get_info(g, handle, (void *)&info));
    CHECK(info.mapped);
    return place_after(info.va);
}

static volatile uint64_t *get_info_v2(void)
{
    gdr_info_v2_t info;

    CHECK_OK(gdr.get_info_v2(g, handle, &info));
    CHECK(info.mapped && info.mapping_type > GDR_MAPPING_TYPE_NONE && info.mapping_type < GDR_MAPPING_TYPE_MAX);
    CHECK_EQUAL(info.mapped_size, SIZE);
    return place_after(info.va);
}

/* Copies a number to the mapping, and increments it there by a load and a store. The GPU must see the result. */
static void count_up(volatile uint64_t *counter)
{
    uint64_t seen, sent = 0x1122334455667788;

    CHECK_OK(gdr.copy_to_mapping(handle, (void *)(uintptr_t)counter, &sent, sizeof(sent)));
    *counter = *counter + 1;
    __sync_synchronize();
    gpu_read(&seen, address, sizeof(seen));
    CHECK_EQUAL(seen, sent + 1);
}

static void unmap_and_unpin_it(void)
{
    CHECK_OK(gdr.unmap(g, handle, mapping, SIZE));
    CHECK_OK(gdr.unpin_buffer(g, handle));
}

/* ---- NCCL up to 2.30 asks for the versions of library and driver, and refuses driver 2.0. NCCL from 2.31 on first
   asks whether the library uses dma-bufs. Only if the library does not, NCCL asks for the versions ---- */

static void nccl(void)
{
    int dmabuf = -1;

    allocate(MEM_ALLOC, 0);
    load_and_open("libgdrapi.so", RTLD_NOW);
    get_versions();
    if (driver_minor >= 1) {
        pin_v1();
        count_up(map_and_get_info());
        unmap_and_unpin_it();
    }
    close_and_unload(&gdr, g);

    load_and_open("libgdrapi.so", RTLD_NOW);
    CHECK_OK(gdr.get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &dmabuf));
    if (dmabuf == 0)
        get_versions();
    pin_v2(); /* must also work with drivers before 2.5, which lack the command PIN_BUFFER_V2 */
    CHECK_OK(gdr.map(g, handle, &mapping, SIZE));
    count_up(get_info_v2());
    unmap_and_unpin_it();
    close_and_unload(&gdr, g);
}

/* NCCL's GPUNetIO pins with FORCE_PCIE. That may succeed only if the attribute reports support for this flag. */
static void gpunetio(void)
{
    int force_pcie = -1;

    allocate(MEM_ALLOC, 0);
    load_and_open("libgdrapi.so.2", RTLD_NOW);
    CHECK_OK(gdr.get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &force_pcie));
    if (pin_over_pcie()) {
        CHECK_EQUAL(force_pcie, 1);
        CHECK_OK(gdr.map(g, handle, &mapping, SIZE));
        count_up(mapping);
        unmap_and_unpin_it();
    }
    close_and_unload(&gdr, g);
}

/* ---- NVSHMEM pins whole pages and maps part of them. Up to 3.7 it passes gdr_info_v2_t to the old gdr_get_info, and
   requires that the library is not older than the gdrapi.h that NVSHMEM was compiled with ---- */

static void nvshmem_up_to_3_7(void)
{
    gdr_info_t info;

    allocate(MEM_CREATE, GPU_PAGE_SIZE);
    load_and_open("libgdrapi.so.2", RTLD_LAZY);
    get_versions();
    CHECK_COMPARE(library_minor, >=, GDR_API_MINOR_VERSION);
    pin_v1();
    CHECK_OK(gdr.map(g, handle, &mapping, GPU_PAGE_SIZE + 8));
    memset(&info, 0x5a, sizeof(info));
    CHECK_OK(gdr.get_info(g, handle, &info));
    CHECK_EQUAL(info.mapping_type, 0x5a5a5a5a); /* the old function does not write this field */
    CHECK_EQUAL(info.mapped_size, SIZE);
    count_up(place_after(info.va));
    CHECK_OK(gdr.unmap(g, handle, mapping, GPU_PAGE_SIZE + 8));
    CHECK_OK(gdr.unpin_buffer(g, handle));
    close_and_unload(&gdr, g);
}

/* gdremu makes the first unpin fail. The handle then stays valid, and a second unpin succeeds. */
static void unpin_with_retry(void)
{
    int (*faults_set)(const char *list), dmabuf = 0, failures = 0;

    CHECK_OK(gdr.get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &dmabuf));
    *(void **)&faults_set = dmabuf ? NULL : dlsym(RTLD_DEFAULT, "gdremu_faults_set");
    if (faults_set != NULL)
        CHECK_EQUAL(faults_set("UNPIN_BUFFER:EBUSY@1"), 0);
    while (gdr.unpin_buffer(g, handle) != 0)
        CHECK_COMPARE(++failures, <, 3);
    CHECK_EQUAL(failures, faults_set != NULL && driver_is_emulated());
    if (faults_set != NULL)
        CHECK_EQUAL(faults_set(NULL), 0);
    CHECK_ERROR(gdr.unpin_buffer(g, handle), EINVAL);
}

static void nvshmem_from_3_8(void)
{
    int force_pcie = 0;

    allocate(MEM_CREATE, GPU_PAGE_SIZE);
    load_and_open("libgdrapi.so.2", RTLD_LAZY);
    get_versions();
    CHECK_OK(gdr.get_attribute(g, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &force_pcie));
    if (!force_pcie || !pin_over_pcie())
        pin_v2();
    CHECK_OK(gdr.map_v2(g, handle, &mapping, GPU_PAGE_SIZE + 8, GDR_MAP_FLAG_DEFAULT));
    count_up(get_info_v2());
    CHECK_OK(gdr.unmap(g, handle, mapping, GPU_PAGE_SIZE + 8));
    unpin_with_retry();
    close_and_unload(&gdr, g);
}

/* ---- bpftime opens a connection for each BPF map in GPU memory. It reads values of any size, and never writes ---- */

static void bpftime(void)
{
    static const size_t sizes[] = {1, 3, 8, 600, 4096};
    static unsigned char contents[SIZE], value[4096];
    gdr_t connections[3];
    gdr_mh_t handles[3];

    allocate(MEM_ALLOC, 0);
    gdr = load_gdrapi("libgdrapi.so", RTLD_NOW);
    fill(contents, SIZE, 1);
    gpu_write(address, contents, SIZE);
    for (int i = 0; i < 3; i++) {
        g = connections[i] = gdr.open();
        CHECK(g != NULL);
        pin_v2();
        handles[i] = handle;
        const volatile uint64_t *values = map_and_get_info();
        for (size_t size = 0; size < sizeof(sizes) / sizeof(sizes[0]); size++) {
            CHECK_OK(gdr.copy_from_mapping(handle, value, (const char *)(uintptr_t)values + 7 * sizes[size], sizes[size]));
            CHECK_BYTES(value, contents + 7 * sizes[size], sizes[size]);
        }
    }
    for (int i = 0; i < 3; i++) {
        CHECK_OK(gdr.unpin_buffer(connections[i], handles[i]));
        CHECK_OK(gdr.close(connections[i]));
    }
}

/* ---- aws-ofi-nccl gets GDRCopy's versions before it initializes CUDA, and increments counters in a thread ---- */

static void *increment(void *unused)
{
    uint64_t signal;

    for (int i = 0; i < 100; i++) {
        CHECK_OK(gdr.copy_from_mapping(handle, &signal, mapping, sizeof(signal)));
        signal++;
        CHECK_OK(gdr.copy_to_mapping(handle, mapping, &signal, sizeof(signal)));
    }
    return unused;
}

static void aws_ofi_nccl(void)
{
    uint64_t signal = 0;

    load_and_open("libgdrapi.so", RTLD_NOW | RTLD_LOCAL);
    get_versions();
    allocate(MEM_ALLOC, 0);
    gpu_write(address, &signal, sizeof(signal));
    if (library_minor < 5 || driver_minor < 5)
        pin_v1();
    else if (!pin_over_pcie())
        pin_v2();
    CHECK_OK(gdr.map(g, handle, &mapping, SIZE));
    in_thread(increment, NULL);
    gpu_read(&signal, address, sizeof(signal));
    CHECK_EQUAL(signal, 100);
    unmap_and_unpin_it();
    close_and_unload(&gdr, g);
}

/* ---- MSCCL++ requires driver version 2.5 and, unless the library uses dma-bufs, access to /dev/gdrdrv ---- */

static void mscclpp(void)
{
    int dmabuf = -1;

    load_and_open("libgdrapi.so", RTLD_NOW);
    CHECK_OK(gdr.get_attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP, &dmabuf));
    CHECK_EQUAL(access("/dev/gdrdrv", R_OK | W_OK) != 0, dmabuf);
    get_versions();
    if (driver_minor < 5)
        return;
    allocate(MEM_ALLOC, 0);
    if (!pin_over_pcie())
        pin_v2();
    CHECK_OK(gdr.map(g, handle, &mapping, SIZE));
    count_up(mapping);
    unmap_and_unpin_it();
    close_and_unload(&gdr, g);
}

/* ---- UCX opens a connection while it queries its components, and may fork before or after it has closed the
   connection. CUDA must still start in the child ---- */

static void register_and_copy(void)
{
    g = gdr.open();
    CHECK(g != NULL);
    allocate(MEM_ALLOC, 0);
    pin_v1();
    CHECK_OK(gdr.map(g, handle, &mapping, SIZE));
    count_up(get_info_v2());
    unmap_and_unpin_it();
    CHECK_OK(gdr.close(g));
}

static void ucx(void)
{
    load_and_open("libgdrapi.so.2", RTLD_NOW);
    in_child(register_and_copy);
    CHECK_OK(gdr.close(g));
    in_child(register_and_copy);
    register_and_copy();
}

/* ---- DPDK calls gdr_unmap with the GPU memory's address, not the mapping's, and never closes its connection ---- */

static void dpdk(void)
{
    allocate(MEM_ALLOC, 0);
    load_and_open("libgdrapi.so", RTLD_LAZY);
    for (int i = 0; i < 3; i++) {
        pin_v1();
        CHECK_OK(gdr.map(g, handle, &mapping, SIZE));
        count_up(mapping);
        CHECK_OK(gdr.unmap(g, handle, (void *)(uintptr_t)address, SIZE));
        CHECK_OK(gdr.unpin_buffer(g, handle));
    }
}

int main(void)
{
    static void (*const consumers[])(void) = {nccl,    gpunetio,     nvshmem_up_to_3_7, nvshmem_from_3_8,
                                              bpftime, aws_ofi_nccl, mscclpp,           ucx,
                                              dpdk};

    for (size_t i = 0; i < sizeof(consumers) / sizeof(consumers[0]); i++)
        in_child(consumers[i]);
    return passed("abi_consumers");
}
