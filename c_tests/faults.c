/* Tests what the library does if a driver call fails. It returns the error, leaks nothing, and still works. */

#include "emulator.h"
#include "kit/fault.h"
#include "kit/library.h"
#include "logged.h"

#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);

#define SIZE (2 * GPU_PAGE_SIZE)
#define UNTOUCHED 0x5a5a5a5aUL

static struct emulator emulator;
static struct gpu_buffer buffer;

static void faults(const char *list)
{
    CHECK_EQUAL(emulator.faults_set(list), 0);
}

/* Errors that any driver call may return. */
static const struct {
    const char *name;
    int number;
} errors[] = {
    {"ENOMEM", ENOMEM}, {"EINVAL", EINVAL}, {"EAGAIN", EAGAIN}, {"EIO", EIO}, {"EPERM", EPERM}, {"EBUSY", EBUSY},
    {"524", EOPNOTSUPP}, /* Linux's internal ENOTSUPP, which user space has no name for */
    {"523", EIO}, /* Linux's internal EBADCOOKIE, which user space has no name for either */
};
enum { ERRORS = sizeof(errors) / sizeof(errors[0]), ERRORS_OF_LIBC = ERRORS - 2 };

/* Makes the next driver call of this name fail, and returns the error that the API must return. */
static int fail_next(const char *call, size_t error)
{
    char list[64];

    snprintf(list, sizeof(list), "%s:%s@1", call, errors[error].name);
    faults(list);
    return errors[error].number;
}

static void nothing_is_pinned(void)
{
    CHECK_EQUAL(emulator.pins(), 0);
}

static void open_fails(void)
{
    static const char *const calls[] = {"OPEN", "GET_VERSION"};
    int before = open_descriptors();

    for (size_t call = 0; call < sizeof(calls) / sizeof(calls[0]); call++) {
        for (size_t error = 0; error < ERRORS; error++) {
            fail_next(calls[call], error);
            CHECK(gdr_open() == NULL);
            CHECK_EQUAL(open_descriptors(), before);
        }
    }
    faults("OPEN:EACCES@1");
    CHECK(gdr_open() == NULL);
    faults("GET_VERSION:minimum_gdr_api_version=131079@1"); /* version 2.7, which is newer than the library */
    errno = 0;
    CHECK(gdr_open() == NULL);
    CHECK_EQUAL(errno, EPROTONOSUPPORT);
    faults("GET_VERSION:minimum_gdr_api_version=131078@1");
    CHECK_OK(gdr_close(open_driver()));
    faults(NULL);
    CHECK_EQUAL(open_descriptors(), before);
}

static gdr_t g;
static gdr_mh_t handle;

/* Runs part() with each error and a new pin, and checks that the pin works afterwards. */
static void with_each_error(void (*part)(size_t error))
{
    for (size_t error = 0; error < ERRORS; error++) {
        handle = pin(g, buffer.address, SIZE);
        part(error);
        faults(NULL);
        check_works(g, handle, SIZE);
        CHECK_OK(gdr_unpin_buffer(g, handle));
        CHECK_ERROR(gdr_unpin_buffer(g, handle), EINVAL);
        CHECK_ERROR(gdr_copy_to_mapping(handle, &handle, &handle, 0), EINVAL);
        nothing_is_pinned();
    }
}

static void pin_fails(size_t error)
{
    gdr_mh_t none = {UNTOUCHED};
    int wanted = fail_next("PIN_BUFFER_V2", error);

    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, SIZE, 0, 0, &none), wanted);
    wanted = fail_next("PIN_BUFFER_V2", error);
    CHECK_ERROR(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, SIZE, 0, &none), wanted);
    CHECK_EQUAL(none.h, UNTOUCHED);
    CHECK_EQUAL(emulator.pins(), 1);
}

static void map_fails(size_t error)
{
    static const struct {
        const char *call;
        int requests_type;
    } ways[] = {{"MMAP", 0}, {"GET_INFO_V2", 0}, {"REQ_MAPPING_TYPE", 1}, {"MMAP", 1}, {"GET_INFO_V2", 1}};

    for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
        gdr_map_flags_t flag = ways[way].requests_type ? platform_flag(g, handle) : GDR_MAP_FLAG_DEFAULT;
        void *va = (void *)UNTOUCHED;
        int wanted = fail_next(ways[way].call, error);

        CHECK_ERROR(gdr_map_v2(g, handle, &va, SIZE, flag), wanted);
        CHECK_EQUAL((uintptr_t)va, UNTOUCHED);
        CHECK_ERROR(gdr_unmap(g, handle, va, SIZE), EINVAL);
        CHECK_ERROR(gdr_copy_to_mapping(handle, &handle, &handle, 1), EINVAL);
        check_works(g, handle, SIZE);
    }
}

/* A failed munmap leaves the mapping in place, and the caller can retry. */
static void unmap_fails(size_t error)
{
    void *va = map(g, handle, SIZE);
    int wanted = fail_next("MUNMAP", error);

    CHECK_ERROR(gdr_unmap(g, handle, va, SIZE), wanted);
    CHECK_READABLE(va);
    CHECK_OK(gdr_copy_to_mapping(handle, va, "x", 1));
    CHECK_EQUAL(info_of(g, handle).mapped, 1);
    CHECK_OK(gdr_unmap(g, handle, va, SIZE));
}

/* After a failed unpin, the driver still has the pin, so the handle stays valid for a retry. The mapping has ended. */
static void unpin_fails(size_t error)
{
    gdr_mh_t other = pin(g, buffer.address, SIZE);
    char *va = map(g, handle, SIZE);
    int wanted = fail_next("UNPIN_BUFFER", error);

    CHECK_ERROR(gdr_unpin_buffer(g, handle), wanted);
    CHECK_GONE(va);
    CHECK_EQUAL(emulator.pins(), 2);
    CHECK_EQUAL(info_of(g, handle).mapped, 0);
    check_works(g, other, SIZE);
    CHECK_OK(gdr_unpin_buffer(g, other));
}

static void info_fails(size_t error)
{
    unsigned char out[48], untouched[48];
    int wanted = fail_next("GET_INFO_V2", error);

    memset(out, 0x5a, sizeof(out));
    memset(untouched, 0x5a, sizeof(untouched));
    CHECK_ERROR(gdr_get_info_v2(g, handle, (gdr_info_v2_t *)(void *)out), wanted);
    wanted = fail_next("GET_INFO_V2", error);
    CHECK_ERROR(gdr_get_info(g, handle, (gdr_info_v2_t *)(void *)out), wanted);
    CHECK_BYTES(out, untouched, sizeof(out));
    CHECK_EQUAL(info_of(g, handle).mapped_size, SIZE);
}

/* After the mmap, the driver reports that the pin is not mapped, as it does if the memory is freed after the mmap. */
static void mapping_without_type_is_refused(size_t unused)
{
    void *va = (void *)UNTOUCHED;

    (void)unused;
    faults("GET_INFO_V2:mapping_type=0@1");
    CHECK_ERROR(gdr_map(g, handle, &va, SIZE), EAGAIN);
    CHECK_EQUAL((uintptr_t)va, UNTOUCHED);
    CHECK_ERROR(gdr_copy_to_mapping(handle, &handle, &handle, 1), EINVAL);
    CHECK_EQUAL(info_of(g, handle).mapped, 0);
}

/* A later driver may report a mapping type that the library does not know. The library treats it as device memory,
   which allows the fewest kinds of access. */
static void unknown_mapping_type_is_device(size_t unused)
{
    (void)unused;
    faults("GET_INFO_V2:mapping_type=4@1");
    void *va = map(g, handle, SIZE);
    check_shows(handle, va, buffer.address, SIZE);
    CHECK_OK(gdr_unmap(g, handle, va, SIZE));
}

static void close_after_a_failed_unpin_gives_everything_back(void)
{
    int before = open_descriptors();
    gdr_t g = open_driver();
    gdr_mh_t handle = pin(g, buffer.address, SIZE);

    faults("UNPIN_BUFFER:EIO@1");
    CHECK_ERROR(gdr_unpin_buffer(g, handle), EIO);
    CHECK_OK(gdr_close(g));
    CHECK_ERROR(gdr_unpin_buffer(g, handle), EINVAL);
    CHECK_EQUAL(open_descriptors(), before);
    nothing_is_pinned();
    faults(NULL);
}

/* If a driver call fails, gdr_close still makes the other driver calls, and returns the first error. */
static void close_fails(void)
{
    /* gdr_close maps inaccessible memory over each mapping (MMAP_FIXED), so that nothing else gets its addresses. If
       that fails, it calls munmap. In the second entry, MMAP_FIXED fails for two mappings, and munmap for one. */
    static const char *const calls[] = {"UNPIN_BUFFER:%s@1", "MMAP_FIXED:ENOMEM@1,MMAP_FIXED:ENOMEM@2,MUNMAP:%s@1",
                                        "CLOSE:%s@1"};
    int before = open_descriptors();

    for (size_t call = 0; call < sizeof(calls) / sizeof(calls[0]); call++) {
        for (size_t error = 0; error < ERRORS_OF_LIBC; error++) {
            gdr_t g = open_driver();
            gdr_mh_t handles[3];
            char list[64];

            for (int i = 0; i < 3; i++) {
                handles[i] = pin(g, buffer.address, SIZE);
                map(g, handles[i], SIZE);
            }
            snprintf(list, sizeof(list), calls[call], errors[error].name);
            faults(list);
            CHECK_ERROR(gdr_close(g), errors[error].number);
            CHECK_ERROR(gdr_close(g), EINVAL);
            for (int i = 0; i < 3; i++)
                CHECK_ERROR(gdr_copy_to_mapping(handles[i], &i, &i, 0), EINVAL);
            CHECK_EQUAL(open_descriptors(), before);
            faults(NULL);
        }
    }
}

static gdr_map_flags_t platform;

/* Opens, pins and maps. After a call that fails, leaves out the next ones. */
static void make_a_mapping(void)
{
    gdr_t g = gdr_open();
    gdr_mh_t handle;
    void *va;

    if (g == NULL)
        return;
    if (gdr_pin_buffer(g, (unsigned long)buffer.address, SIZE, 0, 0, &handle) == 0)
        gdr_map_v2(g, handle, &va, SIZE, platform);
    CHECK_OK(gdr_close(g));
}

/* The library logs the call, the error and a remedy. Each entry has a fault and two texts that the log must contain. */
static void an_error_is_logged_with_a_remedy(void)
{
    static const char *const errors[][3] = {
        {"OPEN:ENOENT", "open of /dev/gdrdrv", "modprobe gdrdrv"},
        {"OPEN:EACCES", "EACCES", "(chmod 666); if it is, SELinux or AppArmor forbids it"},
        {"OPEN:EPERM", "EPERM", "device cgroup"},
        {"OPEN:ENXIO", "ENXIO", "the device node is stale"},
        {"OPEN:ENODEV", "ENODEV", "the device node is stale"},
        {"OPEN:EMFILE", "EMFILE", "ulimit -n"},
        {"GET_VERSION:ENOTTY", "ENOTTY", "does not know the call"},
        {"PIN_BUFFER_V2:EACCES", "EACCES", "open it in this process (Gdr::open, in C gdr_open)"},
        {"PIN_BUFFER_V2:EBADF", "EBADF", "has closed"},
        {"PIN_BUFFER_V2:EINVAL", "EINVAL", "not GPU memory that can be pinned"},
        {"PIN_BUFFER_V2:EOPNOTSUPP", "FORCE_PCIE works on coherent platforms only", "in C flags = 0), or"},
        {"PIN_BUFFER_V2:ENOMEM", "ENOMEM", "BAR1"},
        {"PIN_BUFFER_V2:EINTR", "EINTR", "retry the call"},
        {"PIN_BUFFER_V2:EIO", "EIO", "dmesg"},
        {"REQ_MAPPING_TYPE:EOPNOTSUPP", "EOPNOTSUPP", "map with the default flag (MapFlag::Default, in C GDR_MAP_FLAG_DEFAULT)"},
        {"MMAP:EOPNOTSUPP", "EOPNOTSUPP", "load the gdrdrv module"},
        {"MMAP:EINVAL", "EINVAL", "exceeds the pin"},
        {"MMAP:ENOMEM", "ENOMEM", "vm.max_map_count"},
    };
    char other_type[40];

    gdr_t g = open_driver();
    platform = platform_flag(g, pin(g, buffer.address, SIZE));
    CHECK_OK(gdr_close(g));
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        faults(errors[i][0]);
        const char *log = log_of(make_a_mapping, "4");
        for (int part = 1; part < 3; part++)
            CHECK_LOGGED(log, errors[i][part]);
    }
    snprintf(other_type, sizeof(other_type), "GET_INFO_V2:mapping_type=%d", (int)platform % 3 + 1);
    faults(other_type);
    CHECK_LOGGED(log_of(make_a_mapping, "4"), "map with the default flag (MapFlag::Default, in C GDR_MAP_FLAG_DEFAULT)");
    faults(NULL);
    nothing_is_pinned();
}

static gdr_t logging;
static gdr_mh_t mapped_handle;
static char *unpinned;

static void map_a_pin(void)
{
    logging = open_driver();
    mapped_handle = pin(logging, buffer.address, SIZE);
    unpinned = map(logging, mapped_handle, SIZE);
}

static void unpin_a_mapping(void)
{
    map_a_pin();
    CHECK_OK(gdr_unpin_buffer(logging, mapped_handle));
}

static void unpin_beyond_the_address_space(void)
{
    map_a_pin();
    rlim_t limit = set_limit(RLIMIT_AS, 4096);
    CHECK_OK(gdr_unpin_buffer(logging, mapped_handle));
    set_limit(RLIMIT_AS, limit);
}

static void check_reserved(void)
{
    CHECK_EQUAL(fault_at(unpinned), SIGSEGV);
    CHECK_EQUAL(fault_at(unpinned + SIZE - 1), SIGSEGV);
    check_new_mappings_avoid(unpinned);
    check_new_mappings_avoid(unpinned + SIZE - 1);
}

/*
 * gdr_unpin_buffer replaces a mapping by another one that only reserves the addresses. If the limit of locked memory
 * forbids that (EAGAIN), the library reserves one page, and enlarges the reservation by mremap. After other errors, the
 * library first unmaps the range, and then reserves it. If that also fails, the range stays unmapped.
 */
static void addresses_of_an_unpinned_mapping_are_reserved_if_the_kernel_can(void)
{
    faults("MMAP_FIXED:EAGAIN@1");
    const char *log = log_of(unpin_a_mapping, "1");
    CHECK_NOT_LOGGED(log, "unmapped");
    check_reserved();
    CHECK_OK(gdr_close(logging));

    faults("MMAP_FIXED:ENOMEM@1");
    log = log_of(unpin_a_mapping, "1");
    CHECK_LOGGED(log, "was unmapped first");
    check_reserved();
    CHECK_OK(gdr_close(logging));
    faults(NULL);

    if (slowness() == 1) { /* not under valgrind, which would lack address space itself */
        CHECK_LOGGED(log_of(unpin_beyond_the_address_space, "3"), "is unmapped");
        CHECK_UNMAPPED(unpinned);
        CHECK_OK(gdr_close(logging));
    }
    nothing_is_pinned();
}

/* The library may know the callback flag without a driver call. If it makes the call, it returns the call's error. */
static void callback_flag_fails(void)
{
    for (size_t error = 0; error < ERRORS; error++) {
        gdr_t g = open_driver();
        gdr_mh_t handle = pin(g, buffer.address, SIZE);
        int flag = 77;
        int wanted = fail_next("GET_CB_FLAG", error);
        int result = gdr_get_callback_flag(g, handle, &flag);

        if (result != 0) {
            CHECK_EQUAL(result, wanted);
            CHECK_EQUAL(flag, 77);
        }
        faults(NULL);
        CHECK_EQUAL(flag_of(g, handle), 0);
        CHECK_OK(gdr_close(g));
    }
}

/* Old drivers return EINVAL for an attribute that they do not know, so EINVAL stands for the value 0. */
static void attribute_fails(int persistent)
{
    for (size_t error = 0; error < ERRORS; error++) {
        gdr_t g = open_driver();
        int value = 77;
        int wanted = fail_next("GET_ATTR", error);

        CHECK_ERROR(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value), wanted == EINVAL ? 0 : wanted);
        CHECK_EQUAL(value, 0);
        if (wanted != EINVAL) {
            CHECK_EQUAL(is_persistent(g), persistent);
        }
        CHECK_OK(gdr_close(g));
        faults(NULL);
    }
}

static void interrupted_calls_are_retried(void)
{
    int value;

    faults("OPEN:EINTR@1,GET_VERSION:EINTR@1,PIN_BUFFER_V2:EINTR@1,REQ_MAPPING_TYPE:EINTR@1,GET_INFO_V2:EINTR@1,"
           "GET_ATTR:EINTR@1,GET_CB_FLAG:EINTR@1,UNPIN_BUFFER:EINTR@1");
    gdr_t g = open_driver();
    gdr_mh_t handle = pin(g, buffer.address, SIZE);
    check_works(g, handle, SIZE);
    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_OK(gdr_get_callback_flag(g, handle, &value));
    CHECK_OK(gdr_unpin_buffer(g, handle));
    CHECK_OK(gdr_close(g));
    faults(NULL);
    nothing_is_pinned();
}

static void endlessly_interrupted_calls_fail(gdr_t g)
{
    gdr_mh_t handle = {UNTOUCHED};

    faults("PIN_BUFFER_V2:EINTR");
    CHECK_ERROR(gdr_pin_buffer(g, (unsigned long)buffer.address, SIZE, 0, 0, &handle), EINTR);
    CHECK_EQUAL(handle.h, UNTOUCHED);
    faults(NULL);
}

/* Drivers before 2.4 report only whether a mapping is write-combining. If not, the library reports it as cached. */
static void an_older_driver_describes_a_pin(void)
{
    gdr_t g = open_driver();
    gpu_init();
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, SIZE);
    gdr_mh_t handle = pin(g, buffer.address, SIZE);

    (void)map(g, handle, SIZE);
    faults("GET_INFO:wc_mapping=0,GET_INFO:tm_cycles=70000,GET_INFO:tsc_khz=80000");
    if (!uses_dmabuf(g) && !driver_is_at_least(g, 2, 4)) {
        gdr_info_v2_t info = info_of(g, handle);

        CHECK_EQUAL(info.mapping_type, GDR_MAPPING_TYPE_CACHING);
        CHECK_EQUAL(info.tm_cycles, 70000);
        CHECK_EQUAL(info.cycles_per_ms, 80000);
    }
    faults(NULL);
    CHECK_OK(gdr_close(g));
}

/* Returns whether GPU memory is mapped cached by default. Only on such platforms can the driver force PCIe. */
static int platform_is_coherent(gdr_t g)
{
    gdr_mh_t handle = pin(g, buffer.address, SIZE);
    gdr_map_flags_t flag = platform_flag(g, handle);

    CHECK_OK(gdr_unpin_buffer(g, handle));
    return flag == GDR_MAP_FLAG_REQ_CACHE_MAPPING;
}

/* If the driver refuses a pin because of FORCE_PCIE, the library with GDRCOPY_FORCE_PCIE_COMPAT pins again without the
   flag. No error and no pin may get lost. */
static void force_pcie_compat_fails_cleanly(void)
{
    gdr_mh_t handle = {UNTOUCHED};

    setenv("GDRCOPY_FORCE_PCIE_COMPAT", "1", 1);
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    gdr_t g = open_driver();
    if (platform_is_coherent(g))
        return;
    for (size_t error = 0; error < ERRORS; error++) {
        char list[64];

        snprintf(list, sizeof(list), "PIN_BUFFER_V2:%s@2", errors[error].name);
        faults(list);
        CHECK(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle) != 0);
        CHECK_EQUAL(handle.h, UNTOUCHED);
        nothing_is_pinned();
    }
    faults("MMAP:ENOMEM@1"); /* the library maps the new pin to find out the mapping type */
    CHECK(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, SIZE, GDR_PIN_FLAG_FORCE_PCIE, &handle) != 0);
    nothing_is_pinned();
    faults(NULL);
    CHECK_OK(gdr_close(g));
}

int main(void)
{
    emulator = find_emulator();
    in_child(an_older_driver_describes_a_pin);
    require_gdrdrv(5);
    g = open_driver();
    int persistent = is_persistent(g);
    CHECK_OK(gdr_close(g));
    in_child(force_pcie_compat_fails_cleanly);
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);

    open_fails();
    g = open_driver();
    static void (*const parts[])(size_t error) = {
        pin_fails, map_fails, mapping_without_type_is_refused, unknown_mapping_type_is_device,
        unmap_fails, info_fails, unpin_fails,
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        with_each_error(parts[i]);
    endlessly_interrupted_calls_fail(g);
    CHECK_OK(gdr_close(g));
    addresses_of_an_unpinned_mapping_are_reserved_if_the_kernel_can();
    an_error_is_logged_with_a_remedy();
    close_fails();
    close_after_a_failed_unpin_gives_everything_back();
    callback_flag_fails();
    attribute_fails(persistent);
    interrupted_calls_are_retried();

    gpu_free(&buffer);
    return passed("faults");
}
