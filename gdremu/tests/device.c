/*
 * Tests of the emulated device: its files, the calls that it records, and those options that neither the contract
 * (gdrdrv-c/contract) nor the library's tests cover. Expected values that depend on the options are arguments.
 */
#include "device.h"
#include "emulator.h"
#include "tests.h"

#include <dirent.h>
#include <sys/stat.h>

static int fd;
static CUdeviceptr memory;

static uint64_t expected(int index)
{
    CHECK(arguments[index] != NULL);
    return strtoull(arguments[index], NULL, 0);
}

static void begin(void)
{
    memory = gpu_memory(ALIGNED_SIZE);
    fd = driver_open();
}

/* Pins GPU page `n` of the test's memory, counted from 0. */
static uint64_t pin_page(int n)
{
    return pinned(fd, memory + (CUdeviceptr)n * GPU_PAGE, GPU_PAGE);
}

static void unmap(unsigned char *va, size_t size)
{
    CHECK_EQUAL(munmap(va, size), 0);
}

/* ---- Files ---- */

static void reads(const char *path, const char *wanted)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    FILE *stream = fopen(path, "r");
    struct stat status;
    char text[64] = "";

    CHECK(file >= 0);
    CHECK_EQUAL(read(file, text, sizeof(text) - 1), strlen(wanted));
    CHECK_STRING(text, wanted);
    CHECK(stream != NULL);
    CHECK(fgets(text, sizeof(text), stream) != NULL);
    CHECK_STRING(text, wanted);
    CHECK_EQUAL(access(path, R_OK), 0);
    CHECK_EQUAL(stat(path, &status), 0);
    CHECK_EQUAL(status.st_size, strlen(wanted));
    CHECK_EQUAL(fclose(stream), 0);
    CHECK_EQUAL(close(file), 0);
}

/* Checks the files of the emulated GPUs' PCI devices, and those that gdremu's option --file adds. */
TEST(files_of_the_machine)
{
    static const char link[] = "/sys/bus/pci/devices/0000:2b:00.0/driver";
    struct dirent *entry;
    struct stat status;
    char text[256] = "";
    int gpus = 0;
    int directory = open("/sys", O_RDONLY | O_DIRECTORY);

    reads("/sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n");
    reads("/sys/bus/pci/devices/0000:2b:00.0/numa_node", "0\n");
    reads("/sys/module/no_such_module/version", "Linux\n");
    CHECK_EQUAL(stat("/proc/self/maps", &status), 0);
    ssize_t length = readlink(link, text, sizeof(text) - 1);
    CHECK(length > 0);
    CHECK_STRING(strrchr(text, '/') + 1, "nvidia");
    CHECK_EQUAL(readlinkat(directory, link + strlen("/sys/"), text, sizeof(text)), length);
    CHECK_FAILS(readlink("/sys/bus/pci/devices/0000:2b:00.0/vendor", text, sizeof(text)), EINVAL);
    CHECK(readlink("/proc/self/exe", text, sizeof(text)) > 0);
    DIR *list = opendir("/sys/bus/pci/devices/");
    CHECK(list != NULL);
    while ((entry = readdir(list)) != NULL)
        gpus += entry->d_name[0] != '.';
    CHECK_EQUAL(gpus, 2);
    closedir(list);
    CHECK_FAILS(stat("/sys/module/no_such_module/other", &status), ENOENT);
}

static void check_is_device(int opened)
{
    CHECK_OK(command(opened, GDRDRV_IOC_GET_VERSION, &(struct gdrdrv_get_version){0}));
    CHECK_EQUAL(close(opened), 0);
}

/* Every call that takes a path finds the device, also by relative paths. */
TEST(paths)
{
    struct statx statx_status;
    struct stat status;
    char text[16];

    CHECK_FAILS(access("/dev/gdrdrv", X_OK), EACCES);
    CHECK_EQUAL(lstat("//dev/gdrdrv", &status), 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK_FAILS(stat("/dev/gdrdrv2", &status), ENOENT);
    CHECK_FAILS(readlink("/dev/gdrdrv", text, sizeof(text)), EINVAL);

    CHECK_EQUAL(chdir("/dev"), 0);
    CHECK_EQUAL(access("gdrdrv", R_OK | W_OK), 0);
    CHECK_EQUAL(stat("./gdrdrv", &status), 0);
    CHECK(S_ISCHR(status.st_mode));
    check_is_device(open("../dev/gdrdrv", O_RDWR));
    check_is_device(open("/../dev/./gdrdrv", O_RDWR));
    CHECK_FAILS(open("no/gdrdrv", O_RDWR), ENOENT);

    CHECK_EQUAL(chdir("/proc"), 0);
    CHECK_FAILS(open("gdrdrv", O_RDWR), ENOENT);
    int directory = open("/dev", O_RDONLY | O_DIRECTORY);
    CHECK(directory >= 0);
    check_is_device(openat(directory, "gdrdrv", O_RDWR));
    CHECK_EQUAL(faccessat(directory, "gdrdrv", R_OK, 0), 0);
    CHECK_EQUAL(fstatat(directory, "gdrdrv", &status, 0), 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQUAL(statx(directory, "gdrdrv", 0, STATX_BASIC_STATS, &statx_status), 0);
    CHECK(S_ISCHR(statx_status.stx_mode));
    CHECK_EQUAL(close(directory), 0);
    CHECK_FAILS(openat(directory, "gdrdrv", O_RDWR), EBADF);

    CHECK_EQUAL(chdir("/sys"), 0);
    reads("bus/../bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n");
    CHECK_EQUAL(access("../proc/driver/gdrdrv/params", R_OK), 0);
}

/* Runs with gdremu's option --gdrdrv-errno EACCES, so that the device cannot be opened. */
TEST(open_is_refused)
{
    struct statx status;

    CHECK_FAILS(open("/dev/gdrdrv", O_RDWR), EACCES);
    CHECK_FAILS(access("/dev/gdrdrv", R_OK), EACCES);
    CHECK_EQUAL(statx(AT_FDCWD, "/dev/gdrdrv", 0, STATX_BASIC_STATS, &status), 0);
    CHECK_EQUAL(status.stx_mode & 0777, 0600);
}

/* ---- Mappings ---- */

/* mmap with MAP_FIXED can map a pin over memory of the program, but not over GPU memory that is already mapped. */
TEST(mapping_at_a_fixed_address)
{
    const int fixed = MAP_SHARED | MAP_FIXED;

    begin();
    uint64_t handle = pin_page(0), other = pin_page(1);
    unsigned char *range = mmap(NULL, GPU_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(range != MAP_FAILED);
    find_emulator().calls_take();
    CHECK(mmap(range, GPU_PAGE, PROT_READ | PROT_WRITE, fixed, fd, handle * PAGE) == range);
    CHECK_STRING(find_emulator().calls_take(), "mmap");
    CHECK_EQUAL(is_mapped(fd, handle), 1);
    CHECK_FAILS(mmap(range, GPU_PAGE, PROT_READ, fixed, fd, other * PAGE), EINVAL);
    CHECK_FAILS(mmap(range + 1, GPU_PAGE, PROT_READ, fixed, fd, other * PAGE), EINVAL);
    CHECK_FAILS(mmap(range, GPU_PAGE, PROT_READ, fixed, -1, 0), EBADF);
    CHECK_EQUAL(is_mapped(fd, handle), 1); /* A mapping that fails changes nothing. */
    unmap(range, GPU_PAGE);
}

TEST(rest_of_an_old_mapping_is_none_of_the_pin)
{
    begin();
    uint64_t handle = pin_page(0);
    unsigned char *old = mapped(fd, handle, GPU_PAGE);
    unmap(old, PAGE);
    unsigned char *va = mapped(fd, handle, GPU_PAGE);
    unmap(old + PAGE, GPU_PAGE - PAGE);
    CHECK(is_mapped(fd, handle));
    unmap(va, GPU_PAGE);
}

/* ---- Calls ---- */

static void use_device(void)
{
    int opened = driver_open();

    uint64_t handle = pinned(opened, memory, GPU_PAGE);
    unsigned char *mapping = mapped(opened, handle, GPU_PAGE);
    CHECK_EQUAL(*(volatile char *)mapping, 0);
    CHECK(is_mapped(opened, handle));
    unmap(mapping, GPU_PAGE);
    CHECK_OK(unpin(opened, handle));
    check_is_device(opened);
}

TEST(call_names)
{
    struct emulator emulator = find_emulator();

    memory = gpu_memory(ALIGNED_SIZE);
    CHECK_EQUAL(close(open("/dev/null", O_RDONLY)), 0);
    CHECK_STRING(emulator.calls_take(), "");
    use_device();
    CHECK_STRING(emulator.calls_take(), "open PIN_BUFFER mmap GET_INFO munmap UNPIN_BUFFER GET_VERSION close");
    CHECK_STRING(emulator.calls_take(), "");
}

static void *device_work(void *unused)
{
    for (long i = 0; i < rounds(300); i++)
        use_device();
    return unused;
}

static void use_in_a_child(void)
{
    CHECK_EQUAL(close(driver_open()), 0);
}

TEST(many_threads)
{
    pthread_t users[4];

    memory = gpu_memory(ALIGNED_SIZE);
    for (int i = 0; i < 4; i++)
        users[i] = start_thread(device_work, NULL);
    /* A child that is forked while the threads make calls can take gdremu's lock. */
    for (int i = 0; i < 20; i++)
        in_child(use_in_a_child);
    for (int i = 0; i < 4; i++)
        finish_thread(users[i]);
    CHECK_EQUAL(all_page_tables(), 0);
}

/* Ends the process while it has two pins. With an argument, SIGKILL ends it. */
TEST(leaks)
{
    begin();
    pin_page(0);
    pin_page(1);
    if (arguments[0] != NULL)
        raise(SIGKILL);
}

/* ---- Programs that have no descriptor left ---- */

#define CUDA_ERROR_OPERATING_SYSTEM 304

static CUresult allocate_and_fill(void)
{
    CUdeviceptr buffer;
    CUresult result = cuMemAlloc(&buffer, ALIGNED_SIZE);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemsetD8(buffer, 7, ALIGNED_SIZE);
    CUDA(cuMemFree(buffer));
    return result;
}

static void need_no_descriptor(void)
{
    CUstream stream;
    void *host;

    CUDA(cuMemHostAlloc(&host, ALIGNED_SIZE, 0));
    CUDA(cuMemFreeHost(host));
    CUDA(cuStreamCreate(&stream, 0));
    CUDA(cuStreamDestroy(stream));
}

/* The program has no descriptor left before its first call of CUDA. */
TEST(no_descriptor_is_left_at_first)
{
    rlim_t usual = set_limit(RLIMIT_NOFILE, 0);

    CHECK_FAILS(open(GDRDRV_DEVICE, O_RDWR), EMFILE);
    gpu_start(0);
    CHECK_EQUAL(allocate_and_fill(), CUDA_ERROR_OUT_OF_MEMORY);
    need_no_descriptor();
    set_limit(RLIMIT_NOFILE, usual);
    CUDA(allocate_and_fill());
    close(driver_open());
}

TEST(no_descriptor_is_left_beside_a_mapping)
{
    unsigned char byte;
    int exported;

    begin();
    uint64_t handle = pinned(fd, memory, ALIGNED_SIZE);
    unsigned char *va = mapped(fd, handle, ALIGNED_SIZE);
    bool is_traditional = !persistent(fd);
    rlim_t usual = set_limit(RLIMIT_NOFILE, 0);
    CUDA(allocate_and_fill());
    need_no_descriptor();
    CHECK_EQUAL(cuMemGetHandleForAddressRange(&exported, memory, ALIGNED_SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                CUDA_ERROR_OPERATING_SYSTEM);
    CUDA(cuMemFree(memory));
    CHECK_EQUAL(touch(va, &byte) != 0, is_traditional);
    CHECK_OK(unpin(fd, handle));
    CHECK(touch(va, &byte) != 0);
    unmap(va, ALIGNED_SIZE);
    CHECK_EQUAL(close(fd), 0);
    set_limit(RLIMIT_NOFILE, usual);
    CUDA(allocate_and_fill());
}

/* VMM (virtual memory management) memory can be pinned only if it is GPUDirect capable and its GPU may write it. */
TEST(pins_of_vmm_memory)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    uint64_t handle;

    begin();
    CHECK_ERROR(pin(fd, created(ALIGNED_SIZE, 1, &access, 1), GPU_PAGE, &handle), EINVAL);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_ERROR(pin(fd, created(ALIGNED_SIZE, 0, &access, 1), GPU_PAGE, &handle), EINVAL);
    CHECK_OK(pin(fd, created(ALIGNED_SIZE, 1, &access, 1), GPU_PAGE, &handle));
}

/* ---- Options ---- */

/* Arguments: whether pins are persistent, whether FORCE_PCIE is known, and the error of a pin with FORCE_PCIE. */
TEST(forced_pins)
{
    struct gdrdrv_get_attr attribute = {.attr = GDRDRV_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE};

    begin();
    struct gdrdrv_pin_buffer_v2 v2 = {.addr = memory, .size = 1, .flags = GDRDRV_PIN_FLAG_FORCE_PCIE};
    CHECK_EQUAL(persistent(fd), expected(0));
    CHECK_OK(command(fd, GDRDRV_IOC_GET_ATTR, &attribute));
    CHECK_EQUAL(attribute.val, expected(1));
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), (int)expected(2));
    if (expected(2) == 0) {
        unsigned char *va = mapped(fd, v2.handle, GPU_PAGE);
        CHECK_EQUAL(info_of(fd, v2.handle).wc_mapping, 1); /* With FORCE_PCIE, no platform caches the mapping. */
        unmap(va, GPU_PAGE);
    }
    CHECK_EQUAL(find_emulator().pins(), expected(2) == 0);
}

/* Arguments: the pinned size of a range that ends inside a GPU page, and of one that also starts inside a GPU page. 0
   means that the pin is refused. */
TEST(sizes)
{
    begin();
    const struct {
        uint64_t start, size, pinned;
    } ranges[] = {{0, GPU_PAGE, GPU_PAGE}, {16, GPU_PAGE - 16, GPU_PAGE}, {0, PAGE, expected(0)}, {16, GPU_PAGE, expected(1)}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        uint64_t handle = 77;
        CHECK_ERROR(pin(fd, memory + ranges[i].start, ranges[i].size, &handle), ranges[i].pinned ? 0 : EINVAL);
        if (ranges[i].pinned == 0)
            continue;
        CHECK_EQUAL(info_of(fd, handle).va, memory);
        CHECK_EQUAL(info_of(fd, handle).mapped_size, ranges[i].pinned);
    }
}
