/*
 * The dma-buf backend: contexts stay as they were, each pin is one descriptor that no child inherits, running out of them
 * says so, and types are what the platform has.
 */

#include "fault.h"
#include "gpu.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

enum { MANY = 10000 };

static gdr_t g;
static struct gpu_buffer buffer;

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = -1; /* less the folder's own */
    struct dirent *entry;

    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* The lowest free descriptor, which the next one to be opened gets. */
static int next_descriptor(void)
{
    int fd = dup(0);

    CHECK(fd >= 0);
    close(fd);
    return fd;
}

static void it_presents_itself_as_2_6(void)
{
    int major = -1, minor = -1, value = -1;
    gdr_attr_t attribute;

    CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    CHECK(major == 2 && minor == 6);
    for (attribute = GDR_ATTR_USE_PERSISTENT_MAPPING; attribute < GDR_ATTR_MAX; attribute++) {
        CHECK_OK(gdr_get_attribute(g, attribute, &value));
        CHECK_EQUAL(value, 1);
    }
    CHECK_EQUAL(*(int *)(void *)g, -1);
}

static void *without_context(void *unused)
{
    CUcontext context = NULL;
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);

    CUDA(cuCtxGetCurrent(&context));
    CHECK(context == NULL);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, (size_t)1 << 40, 0, 0, &handle), EINVAL);
    CUDA(cuCtxGetCurrent(&context));
    CHECK(context == NULL);
    return unused;
}

static void contexts_are_left_as_they_were(void)
{
    CUcontext before, after;
    pthread_t thread;
    gdr_mh_t handle;

    CUDA(cuCtxGetCurrent(&before));
    CHECK(before != NULL);
    handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, (size_t)1 << 40, 0, 0, &handle), EINVAL);
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)&before, sizeof(before), 0, 0, &handle), EINVAL);
    CUDA(cuCtxGetCurrent(&after));
    CHECK(after == before);
    CHECK(pthread_create(&thread, NULL, without_context, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void every_gpu_is_found_by_its_addresses(void)
{
    int count, i;
    CUcontext home, context, now;

    CUDA(cuCtxGetCurrent(&home));
    CUDA(cuDeviceGetCount(&count));
    for (i = 0; i < count; i++) {
        CUdevice device;
        CUdeviceptr allocation, address;
        uint32_t sent = 0xc0ffee00u + (uint32_t)i, seen = 0;
        gdr_mh_t handle;
        void *va;

        CUDA(cuDeviceGet(&device, i));
        CUDA(cuDevicePrimaryCtxRetain(&context, device));
        CUDA(cuCtxSetCurrent(context));
        CUDA(cuMemAlloc(&allocation, 2 * GPU_PAGE_SIZE));
        address = round_up(allocation, GPU_PAGE_SIZE);
        CUDA(cuCtxSetCurrent(home));
        handle = pin(g, address, GPU_PAGE_SIZE);
        CUDA(cuCtxGetCurrent(&now));
        CHECK(now == home);
        va = map(g, handle, GPU_PAGE_SIZE);
        CHECK_OK(gdr_copy_to_mapping(handle, va, &sent, sizeof(sent)));
        CUDA(cuCtxSetCurrent(context));
        gpu_read(&seen, address, sizeof(seen));
        CHECK_EQUAL(seen, sent);
        CHECK_OK(gdr_unpin_buffer(g, handle));
        CUDA(cuMemFree(allocation));
        CUDA(cuCtxSetCurrent(home));
        CUDA(cuDevicePrimaryCtxRelease(device));
    }
}

static void a_pin_is_one_descriptor(void)
{
    int before = descriptors(), next = next_descriptor();
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);

    CHECK_EQUAL(descriptors(), before + 1);
    CHECK_EQUAL(fcntl(next, F_GETFD), FD_CLOEXEC);
    (void)map(g, handle, GPU_PAGE_SIZE);
    CHECK_EQUAL(descriptors(), before + 1);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_EQUAL(descriptors(), before);
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, (size_t)1 << 40, 0, 0, &handle), EINVAL);
    CHECK_EQUAL(descriptors(), before);
}

static void set_limit(rlim_t soft)
{
    struct rlimit limit;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* As many pins as the limit allows, up to `wanted`; all of them work, and the one too many is refused by name. */
static int pins_until_refused(int wanted)
{
    gdr_mh_t *handles = calloc((size_t)wanted + 1, sizeof(*handles)), refused = {7};
    int before = descriptors(), count = 0, i, result = 0;

    CHECK(handles != NULL);
    while (count < wanted &&
           (result = gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handles[count])) == 0)
        count++;
    if (result != 0) {
        CHECK_EQUAL(result, EMFILE);
        CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &refused), EMFILE);
        CHECK_EQUAL(refused.h, 7);
    }
    for (i = 0; i < count; i++) {
        uint32_t sent = (uint32_t)i * 2654435761u, seen;
        void *va = map(g, handles[i], GPU_PAGE_SIZE);

        CHECK_OK(gdr_copy_to_mapping(handles[i], va, &sent, sizeof(sent)));
        CHECK_OK(gdr_copy_from_mapping(handles[i], &seen, va, sizeof(seen)));
        CHECK_EQUAL(seen, sent);
        CHECK_OK(gdr_unpin_buffer(g, handles[i]));
    }
    CHECK_EQUAL(descriptors(), before);
    free(handles);
    return count;
}

/* Returns whether the hard limit has room for all pins at once. */
static int the_limit_of_descriptors_is_told(void)
{
    struct rlimit limit;
    int many = (int)rounds(MANY), has_room;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    set_limit((rlim_t)descriptors() + 20);
    CHECK(pins_until_refused(many) < many);
    set_limit((rlim_t)many + 1000);
    has_room = limit.rlim_max >= (rlim_t)many + 1000;
    if (has_room)
        CHECK_EQUAL(pins_until_refused(many), many);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    return has_room;
}

static void nothing_leaks(void)
{
    int before = descriptors();
    long i, many = rounds(100000);

    for (i = 0; i < many; i++) {
        gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
        void *va = map(g, handle, GPU_PAGE_SIZE);

        if (i % 16 != 0) /* an address range stays reserved otherwise */
            CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    CHECK_EQUAL(descriptors(), before);
}

static void the_pin_decides_the_type(void)
{
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    void *va = map(g, handle, GPU_PAGE_SIZE);
    gdr_mapping_type_t type = info_of(g, handle).mapping_type;
    int flag;

    CHECK(type == GDR_MAPPING_TYPE_WC || type == GDR_MAPPING_TYPE_CACHING);
    CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
    for (flag = GDR_MAP_FLAG_REQ_WC_MAPPING; flag <= GDR_MAP_FLAG_REQ_DEVICE_MAPPING; flag++) {
        if (flag == (int)type) {
            CHECK_OK(gdr_map_v2(g, handle, &va, GPU_PAGE_SIZE, flag));
            CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
        } else {
            CHECK_ERROR(gdr_map_v2(g, handle, &va, GPU_PAGE_SIZE, flag), EINVAL);
        }
    }
    CHECK_ERROR(gdr_map(g, handle, &va, 2 * GPU_PAGE_SIZE), EINVAL);
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

/* Whole pages of the host: mmap can show them from their beginning. */
static void pins_on_host_pages_map(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), offset;

    for (offset = page; offset < GPU_PAGE_SIZE; offset += 5 * page) {
        gdr_mh_t handle = pin(g, buffer.address + offset, page + 1);
        unsigned char *va, sent[64], seen[64];
        void *refused = NULL;

        CHECK_ERROR(gdr_map(g, handle, &refused, 2 * page + 1), EINVAL);
        va = map(g, handle, page + 1);
        CHECK_EQUAL(info_of(g, handle).va, buffer.address + offset);
        fill(sent, sizeof(sent), (unsigned)offset);
        CHECK_OK(gdr_copy_to_mapping(handle, va + 3, sent, sizeof(sent)));
        gpu_read(seen, buffer.address + offset + 3, sizeof(seen));
        CHECK_BYTES(seen, sent, sizeof(seen));
        CHECK_OK(gdr_unmap(g, handle, va, page + 1));
        CHECK_UNMAPPED(va);
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
}

static void over_pcie(void)
{
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    void *va = map(g, handle, GPU_PAGE_SIZE);
    int coherent = info_of(g, handle).mapping_type == GDR_MAPPING_TYPE_CACHING;
    gdr_t compatible;

    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_GONE(va);
    if (coherent) {
        CHECK_OK(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle));
        (void)map(g, handle, GPU_PAGE_SIZE);
        CHECK_EQUAL(info_of(g, handle).mapping_type, GDR_MAPPING_TYPE_WC);
        CHECK_OK(gdr_unpin_buffer(g, handle));
        return;
    }
    CHECK_ERROR(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle),
                EOPNOTSUPP);
    setenv("GDRCOPY_FORCE_PCIE_COMPAT", "1", 1);
    compatible = gdr_open();
    CHECK(compatible != NULL);
    CHECK_OK(gdr_pin_buffer_v2(compatible, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE,
                               &handle));
    CHECK_OK(gdr_close(compatible));
    unsetenv("GDRCOPY_FORCE_PCIE_COMPAT");
}

int main(void)
{
    int has_room;

    g = gdr_open();
    CHECK(g != NULL);
    if (!uses_dmabuf(g))
        waive("dmabuf", "gdr_open chose gdrdrv");
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, 2 * GPU_PAGE_SIZE);

    it_presents_itself_as_2_6();
    contexts_are_left_as_they_were();
    every_gpu_is_found_by_its_addresses();
    a_pin_is_one_descriptor();
    has_room = the_limit_of_descriptors_is_told();
    nothing_leaks();
    the_pin_decides_the_type();
    pins_on_host_pages_map();
    over_pcie();

    gpu_free(&buffer);
    CHECK_OK(gdr_close(g));
    if (!has_room)
        waive("dmabuf", "all but many pins at once, for which the limit of descriptors is too low (ulimit -Hn)");
    return passed("dmabuf");
}
