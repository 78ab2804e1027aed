/*
 * Tests of the dma-buf backend. No call changes the current CUDA context. Each pin uses one file descriptor, which is
 * closed at exec. If the process has no descriptor left, a pin fails with EMFILE. An error of CUDA becomes an errno,
 * and the log names the error and a remedy.
 */

#include "emulator.h"
#include "kit/fault.h"
#include "kit/library.h"
#include "logged.h"

#include <fcntl.h>

enum { MANY = 10000 };

static gdr_t g;
static struct gpu_buffer buffer;

/* Returns the lowest free descriptor, which the next open returns. */
static int next_descriptor(void)
{
    int fd = dup(0);

    CHECK(fd >= 0);
    close(fd);
    return fd;
}

static void backend_reports_driver_version_2_6(void)
{
    int major = -1, minor = -1, value = -1;

    CHECK_OK(gdr_driver_get_version(g, &major, &minor));
    CHECK(major == 2 && minor == 6);
    for (gdr_attr_t attribute = GDR_ATTR_USE_PERSISTENT_MAPPING; attribute < GDR_ATTR_MAX; attribute++) {
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

static void pin_does_not_change_the_current_context(void)
{
    CUcontext before, after;

    CUDA(cuCtxGetCurrent(&before));
    CHECK(before != NULL);
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, (size_t)1 << 40, 0, 0, &handle), EINVAL);
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)&before, sizeof(before), 0, 0, &handle), EINVAL);
    CUDA(cuCtxGetCurrent(&after));
    CHECK_EQUAL(after, before);
    in_thread(without_context, NULL);
}

static void pin_selects_the_gpu_by_address(void)
{
    int count;
    CUcontext home, context, now;

    CUDA(cuCtxGetCurrent(&home));
    CUDA(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++) {
        CUdeviceptr allocation;

        context = gpu_start(i);
        CUDA(cuMemAlloc(&allocation, 2 * GPU_PAGE_SIZE));
        CUdeviceptr address = round_up(allocation, GPU_PAGE_SIZE);
        CUDA(cuCtxSetCurrent(home));
        gdr_mh_t handle = pin(g, address, GPU_PAGE_SIZE);
        CUDA(cuCtxGetCurrent(&now));
        CHECK_EQUAL(now, home);
        void *va = map(g, handle, GPU_PAGE_SIZE);
        CUDA(cuCtxSetCurrent(context));
        check_shows(handle, va, address, sizeof(uint32_t));
        CHECK_OK(gdr_unpin_buffer(g, handle));
        CUDA(cuMemFree(allocation));
        CUDA(cuCtxSetCurrent(home));
        CUDA(cuDevicePrimaryCtxRelease(i));
    }
}

static void pin_takes_one_descriptor(void)
{
    int before = open_descriptors();
    int next = next_descriptor();
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);

    CHECK_EQUAL(open_descriptors(), before + 1);
    CHECK_EQUAL(fcntl(next, F_GETFD), FD_CLOEXEC);
    (void)map(g, handle, GPU_PAGE_SIZE);
    CHECK_EQUAL(open_descriptors(), before + 1);
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_EQUAL(open_descriptors(), before);
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, (size_t)1 << 40, 0, 0, &handle), EINVAL);
    CHECK_EQUAL(open_descriptors(), before);
}

/*
 * Makes `wanted` pins, or fewer if the limit of file descriptors allows no more, and returns their number. It must be
 * possible to map each pin. A pin beyond the limit must fail with EMFILE.
 */
static int pins_until_refused(int wanted)
{
    gdr_mh_t *handles = calloc((size_t)wanted + 1, sizeof(*handles));
    gdr_mh_t refused = {7};
    int before = open_descriptors();
    int count = 0;
    int result = 0;

    CHECK(handles != NULL);
    while (count < wanted &&
           (result = gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handles[count])) == 0)
        count++;
    if (result != 0) {
        CHECK_EQUAL(result, EMFILE);
        CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &refused), EMFILE);
        CHECK_EQUAL(refused.h, 7);
    }
    for (int i = 0; i < count; i++) {
        void *va = map(g, handles[i], GPU_PAGE_SIZE);

        check_shows(handles[i], va, buffer.address, sizeof(uint32_t));
        CHECK_OK(gdr_unpin_buffer(g, handles[i]));
    }
    CHECK_EQUAL(open_descriptors(), before);
    free(handles);
    return count;
}

/* Pins until descriptors run out. Then raises the limit, and makes MANY pins, or fewer under valgrind. Returns 0 if the
   hard limit is too low for that. */
static int pin_beyond_the_descriptor_limit_is_refused(void)
{
    struct rlimit limit;
    int many = (int)rounds(MANY);

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    set_limit(RLIMIT_NOFILE, (rlim_t)open_descriptors() + 20);
    CHECK(pins_until_refused(many) < many);
    set_limit(RLIMIT_NOFILE, (rlim_t)many + 1000);
    int has_room = limit.rlim_max >= (rlim_t)many + 1000;
    if (has_room)
        CHECK_EQUAL(pins_until_refused(many), many);
    set_limit(RLIMIT_NOFILE, limit.rlim_cur);
    return has_room;
}

static void repeated_pins_and_maps_leak_nothing(void)
{
    int before = open_descriptors();
    long many = rounds(100000);

    for (long i = 0; i < many; i++) {
        gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
        void *va = map(g, handle, GPU_PAGE_SIZE);

        if (i % 16 != 0) /* in every 16th round, gdr_unpin_buffer must remove the mapping itself */
            CHECK_OK(gdr_unmap(g, handle, va, GPU_PAGE_SIZE));
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    CHECK_EQUAL(open_descriptors(), before);
}

/* The pins start at a host page, so mmap can map them, although they do not start at a GPU page. */
static void pins_of_whole_host_pages_can_be_mapped(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t offset = page; offset < GPU_PAGE_SIZE; offset += 5 * page) {
        gdr_mh_t handle = pin(g, buffer.address + offset, page + 1);
        void *refused = NULL;

        CHECK_ERROR(gdr_map(g, handle, &refused, 2 * page + 1), EINVAL);
        unsigned char *va = map(g, handle, page + 1);
        CHECK_EQUAL(info_of(g, handle).va, buffer.address + offset);
        check_shows(handle, va + 3, buffer.address + offset + 3, 64);
        CHECK_OK(gdr_unmap(g, handle, va, page + 1));
        CHECK_UNMAPPED(va);
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
}

/* With FORCE_PCIE, the mapping must be write-combining. pin.c tests GPUs that refuse the flag. */
static void coherent_gpus_accept_force_pcie(void)
{
    gdr_mh_t handle = pin(g, buffer.address, GPU_PAGE_SIZE);
    gdr_map_flags_t usual = platform_flag(g, handle);

    CHECK_OK(gdr_unpin_buffer(g, handle));
    if (usual != GDR_MAP_FLAG_REQ_CACHE_MAPPING)
        return;
    CHECK_OK(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle));
    CHECK_EQUAL(platform_flag(g, handle), GDR_MAP_FLAG_REQ_WC_MAPPING);
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

static void pin_and_log(void)
{
    gdr_t logging = open_dmabufs();
    gdr_mh_t handle;

    gdr_pin_buffer(logging, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle);
    CHECK_OK(gdr_close(logging));
}

/* An error of CUDA becomes an errno, and is logged with its name and a remedy. */
static void an_error_of_cuda_has_an_errno_and_a_remedy(void)
{
    static const struct {
        const char *fault;
        int number;
        const char *logged;
    } errors[] = {
        {"cuMemGetHandleForAddressRange:1", EINVAL, "CUDA_ERROR_INVALID_VALUE (1): the range is not GPU memory"},
        {"cuMemGetHandleForAddressRange:2", ENOMEM, "BAR1"},
        {"cuMemGetHandleForAddressRange:201", EINVAL, "must be started by exec"},
        {"cuMemGetHandleForAddressRange:800", EPERM, "another process"},
        {"cuMemGetHandleForAddressRange:801", EOPNOTSUPP, "FORCE_PCIE"},
        {"cuMemGetHandleForAddressRange:304", EIO, "dmesg"},
        {"cuMemGetHandleForAddressRange:9999", EIO, "CUDA error 9999: see the GPU driver's messages (dmesg)"},
    };
    gdr_mh_t handle;

    if (!driver_is_emulated())
        return;
    struct emulator emulator = find_emulator();
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        CHECK_EQUAL(emulator.faults_set(errors[i].fault), 0);
        CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, GPU_PAGE_SIZE, 0, 0, &handle), errors[i].number);
        CHECK_LOGGED(log_of(pin_and_log, "4"), errors[i].logged);
    }
    CHECK_EQUAL(emulator.faults_set(NULL), 0);
}

int main(void)
{
    g = open_dmabufs();
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, 2 * GPU_PAGE_SIZE);

    backend_reports_driver_version_2_6();
    pin_does_not_change_the_current_context();
    pin_selects_the_gpu_by_address();
    pin_takes_one_descriptor();
    int has_room = pin_beyond_the_descriptor_limit_is_refused();
    repeated_pins_and_maps_leak_nothing();
    pins_of_whole_host_pages_can_be_mapped();
    coherent_gpus_accept_force_pcie();
    an_error_of_cuda_has_an_errno_and_a_remedy();

    gpu_free(&buffer);
    CHECK_OK(gdr_close(g));
    if (!has_room)
        waive("only the test with many pins at once: ulimit -Hn is too low");
    return passed("dmabuf");
}
