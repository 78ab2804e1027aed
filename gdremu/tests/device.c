/* Features of only gdremu's device (emulated files, covered mappings, injected faults, the list of calls). */
#include "device.h"
#include "tests.h"

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/uio.h>

TEST(files_exist)
{
    struct stat status;
    struct statx statx_status;

    CHECK_EQUAL(access("/dev/gdrdrv", R_OK | W_OK), 0);
    CHECK_FAILS(access("/dev/gdrdrv", X_OK), EACCES);
    CHECK_EQUAL(stat("/dev/gdrdrv", &status), 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQUAL(lstat("//dev/gdrdrv", &status), 0);
    CHECK_EQUAL(fstatat(AT_FDCWD, "/dev/gdrdrv", &status, 0), 0);
    CHECK_EQUAL(statx(AT_FDCWD, "/dev/gdrdrv", 0, STATX_BASIC_STATS, &statx_status), 0);
    CHECK(S_ISCHR(statx_status.stx_mode));
    CHECK_FAILS(stat("/dev/gdrdrv2", &status), ENOENT);
    CHECK_FAILS(open("/proc/driver/gdrdrv/params", O_RDWR), EACCES); /* also by root */
}

static void reads(const char *path, const char *wanted)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), at = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    FILE *stream = fopen(path, "r");
    struct statx statx_status;
    struct stat status;
    char text[64] = "";

    CHECK(fd >= 0);
    CHECK_EQUAL(read(fd, text, sizeof(text) - 1), strlen(wanted));
    CHECK_STRING(text, wanted);
    CHECK(stream != NULL);
    CHECK(fgets(text, sizeof(text), stream) != NULL);
    CHECK_STRING(text, wanted);
    CHECK_EQUAL(access(path, R_OK), 0);
    CHECK_EQUAL(stat(path, &status), 0);
    CHECK_EQUAL(status.st_size, strlen(wanted));
    CHECK_EQUAL(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &statx_status), 0);
    CHECK_EQUAL(statx_status.stx_size, strlen(wanted));
    CHECK_EQUAL(fclose(stream), 0);
    CHECK_EQUAL(close(at), 0);
    CHECK_EQUAL(close(fd), 0);
}

/* A link to a driver's directory. */
static void driver_is(const char *path, const char *wanted)
{
    char text[256];
    int directory = open("/sys", O_RDONLY | O_DIRECTORY);
    ssize_t length = readlink(path, text, sizeof(text) - 1);

    CHECK(length > 0);
    text[length] = '\0';
    CHECK_STRING(strrchr(text, '/') + 1, wanted);
    CHECK_EQUAL(readlinkat(directory, path + strlen("/sys/"), text, sizeof(text)), length);
    CHECK_EQUAL(close(directory), 0);
}

/* Both GPUs and the computer's own devices are listed, and the paths of these lead to the real files. */
static void pci_devices_are_listed(void)
{
    DIR *list = opendir("/sys/bus/pci/devices/");
    struct dirent *entry;
    struct stat device, sysfs;
    char path[300], target[256];
    int gpus = 0;

    CHECK(list != NULL);
    CHECK_EQUAL(stat("/sys/kernel", &sysfs), 0);
    while ((entry = readdir(list)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        if (strcmp(entry->d_name, "0000:1b:00.0") == 0 || strcmp(entry->d_name, "0000:2b:00.0") == 0) {
            gpus++;
            continue;
        }
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", entry->d_name);
        CHECK(readlink(path, target, sizeof(target)) > 0);
        CHECK_EQUAL(stat(path, &device), 0);
        CHECK(device.st_dev == sysfs.st_dev);
    }
    CHECK_EQUAL(gpus, 2);
    CHECK_EQUAL(closedir(list), 0);
}

/* The emulated GPUs' PCI devices, and what --file asks for. */
TEST(files_of_the_machine)
{
    struct stat status;
    char text[256];

    reads("/sys/bus/pci/devices/0000:1b:00.0/vendor", "0x10de\n");
    reads("/sys/bus/pci/devices/0000:2b:00.0/numa_node", "0\n");
    reads("/sys/module/no_such_module/version", "Linux\n");
    CHECK_EQUAL(stat("/proc/self/maps", &status), 0);
    driver_is("/sys/bus/pci/devices/0000:2b:00.0/driver", "nvidia");
    CHECK_FAILS(readlink("/sys/bus/pci/devices/0000:2b:00.0/vendor", text, sizeof(text)), EINVAL);
    CHECK_FAILS(readlink("/dev/gdrdrv", text, sizeof(text)), EINVAL);
    CHECK(readlink("/proc/self/exe", text, sizeof(text)) > 0);
    pci_devices_are_listed();
    CHECK_FAILS(stat("/sys/module/no_such_module/other", &status), ENOENT);
}

static void check_is_device(int fd)
{
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &(struct gdrdrv_get_version){0}));
    CHECK_EQUAL(close(fd), 0);
}

/* By paths that do not begin at the root. */
TEST(relative_paths)
{
    struct statx statx_status;
    struct stat status;

    CHECK_EQUAL(chdir("/dev"), 0);
    CHECK_EQUAL(access("gdrdrv", R_OK | W_OK), 0);
    CHECK_EQUAL(stat("./gdrdrv", &status), 0);
    CHECK(S_ISCHR(status.st_mode));
    check_is_device(open("../dev/gdrdrv", O_RDWR));
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

/* Under --nv-p2p-dummy. */
TEST(bound_to_nv_p2p_dummy)
{
    static const char holders[] = "/sys/module/nv_p2p_dummy/holders";
    struct gdrdrv_pin_buffer_v2 v2 = {.addr = gpu_memory(ALIGNED_SIZE), .size = GPU_PAGE};
    uint64_t handle;
    struct dirent *entry;
    struct stat status;
    int fd = driver_open(), found = 0;

    CHECK_EQUAL(persistent(fd), 1);
    CHECK_ERROR(pin(fd, v2.addr, GPU_PAGE, &handle), EINVAL);
    CHECK_ERROR(command(fd, GDRDRV_IOC_PIN_BUFFER_V2, &v2), EINVAL);
    CHECK_EQUAL(pins(), 0);

    CHECK_EQUAL(access("/sys/module/nv_p2p_dummy/holders/gdrdrv", F_OK), 0);
    CHECK_EQUAL(stat("/sys/module/nv_p2p_dummy/holders/gdrdrv", &status), 0);
    CHECK(S_ISDIR(status.st_mode));
    CHECK_FAILS(access("/sys/module/nv_p2p_dummy/holders/nvidia", F_OK), ENOENT);
    CHECK_EQUAL(close(open("/sys/module/nv_p2p_dummy/holders/gdrdrv", O_RDONLY | O_DIRECTORY)), 0);
    DIR *list = opendir(holders);
    CHECK(list != NULL);
    while ((entry = readdir(list)) != NULL)
        if (entry->d_name[0] != '.') {
            CHECK_STRING(entry->d_name, "gdrdrv");
            found++;
        }
    CHECK_EQUAL(found, 1);
    CHECK_EQUAL(closedir(list), 0);
    CHECK(opendir("/sys/module/no_such_module") == NULL);
    CHECK_EQUAL(errno, ENOENT);
}

TEST(files_absent)
{
    struct stat status;

    CHECK_FAILS(open("/dev/gdrdrv", O_RDWR), ENOENT);
    CHECK_FAILS(openat(AT_FDCWD, "/dev/gdrdrv", O_RDWR), ENOENT);
    CHECK_FAILS(access("/dev/gdrdrv", F_OK), ENOENT);
    CHECK_FAILS(stat("/dev/gdrdrv", &status), ENOENT);
    CHECK_FAILS(open("/proc/driver/gdrdrv/params", O_RDONLY), ENOENT);
    CHECK(fopen("/proc/driver/gdrdrv/params", "r") == NULL);
}

TEST(open_is_refused)
{
    CHECK_FAILS(open("/dev/gdrdrv", O_RDWR), EACCES);
    CHECK_EQUAL(access("/dev/gdrdrv", F_OK), 0);
    CHECK_FAILS(access("/dev/gdrdrv", R_OK), EACCES);
}

/* Replaces part of a mapping as the library does, by a mapping of an empty file, which raises SIGBUS. */
static void cover(unsigned char *address, size_t size)
{
    int empty = memfd_create("empty", MFD_CLOEXEC);

    CHECK(empty >= 0);
    CHECK(mmap(address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, empty, 0) == address);
    CHECK_EQUAL(mprotect(address, size, PROT_READ), 0);
    CHECK_EQUAL(close(empty), 0);
}

/* A mapping that something else was mapped over is as good as unmapped, wholly or in part. */
TEST(covered_mappings)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    int fd = driver_open();
    uint64_t handle = pinned(fd, memory, 4 * GPU_PAGE);
    unsigned char *mapping = mapped(fd, handle, 4 * GPU_PAGE);

    /* Whole, while the pin lives, and again after that. */
    calls();
    cover(mapping, 4 * GPU_PAGE);
    CHECK_STRING(calls(), "mmap_fixed");
    CHECK_PAGES_GONE(mapping, PAGE);
    CHECK_EQUAL(is_mapped(fd, handle), 0);
    cover(mapping, 4 * GPU_PAGE);
    CHECK_EQUAL(munmap(mapping, 4 * GPU_PAGE), 0);
    CHECK_STRING(calls(), "GET_INFO");

    /* In part, first the head up to the middle of a page, then the middle, then the rest. */
    mapping = mapped(fd, handle, 4 * GPU_PAGE);
    cover(mapping, GPU_PAGE - 1);
    CHECK_EQUAL(is_mapped(fd, handle), 0);
    CHECK_PAGES_GONE(mapping, PAGE);
    CHECK_PAGES(mapping + GPU_PAGE, PAGE, 0);
    cover(mapping + 2 * GPU_PAGE, GPU_PAGE);
    CHECK_PAGES(mapping + GPU_PAGE, PAGE, 0);
    CHECK_PAGES(mapping + 3 * GPU_PAGE, PAGE, 0);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES(mapping + 3 * GPU_PAGE, PAGE, 0);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(munmap(mapping, 4 * GPU_PAGE), 0);
    CHECK_EQUAL(pins(), 0);

    /* The last part of the last mapping releases a device that is closed. */
    fd = driver_open();
    mapping = mapped(fd, pinned(fd, memory, 2 * GPU_PAGE), 2 * GPU_PAGE);
    CHECK_EQUAL(close(fd), 0);
    cover(mapping, GPU_PAGE);
    CHECK_EQUAL(pins(), 1);
    CHECK_EQUAL(all_page_tables(), 1);
    cover(mapping + GPU_PAGE, GPU_PAGE);
    CHECK_EQUAL(pins(), 0);
    CHECK_EQUAL(all_page_tables(), 0);
    CHECK_EQUAL(munmap(mapping, 2 * GPU_PAGE), 0);

    /* A cover that fails changes nothing. */
    fd = driver_open();
    handle = pinned(fd, memory, GPU_PAGE);
    mapping = mapped(fd, handle, GPU_PAGE);
    CHECK_FAILS(mmap(mapping, GPU_PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0), EBADF);
    CHECK_EQUAL(set_faults("MMAP_FIXED:ENOMEM@1"), 0);
    CHECK_FAILS(mmap(mapping, GPU_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), ENOMEM);
    CHECK_PAGES(mapping, PAGE, 0);
    CHECK_EQUAL(is_mapped(fd, handle), 1);
    CHECK_EQUAL(munmap(mapping, 100), 0);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(pins(), 1);
    CHECK_EQUAL(munmap(mapping, GPU_PAGE - 100), 0);
    CHECK_EQUAL(pins(), 0);
}

static void check_refcount(FILE *stream, int pinned)
{
    char text[16] = "";
    struct iovec vector = {text, sizeof(text) - 1};
    int count;

    fflush(stream); /* Discards what it has buffered. */
    rewind(stream);
    CHECK_EQUAL(fscanf(stream, "%d", &count), 1);
    CHECK_EQUAL(count, pinned);
    CHECK(preadv(fileno(stream), &vector, 1, 0) > 0);
    CHECK_EQUAL(atoi(text), pinned);
}

/* nv_get_pages_refcount, opened once, is read again and again by functions that gdremu does not hook. */
TEST(refcount_follows_the_pins_in_streams_too)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    FILE *stream = fopen("/proc/driver/gdrdrv/nv_get_pages_refcount", "r");
    int fd = driver_open();

    CHECK(stream != NULL);
    check_refcount(stream, 0);
    uint64_t first = pinned(fd, memory, GPU_PAGE);
    check_refcount(stream, 1);
    pinned(fd, memory, GPU_PAGE);
    check_refcount(stream, 2);
    CHECK_OK(unpin(fd, first));
    check_refcount(stream, 1);
    CHECK_EQUAL(close(fd), 0);
    check_refcount(stream, 0);
    fclose(stream);
}

/* A mapping can replace a reservation of the program, at its address. */
TEST(mapping_at_a_fixed_address)
{
    const int fixed = MAP_SHARED | MAP_FIXED;
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    int fd = driver_open();
    uint64_t handle = pinned(fd, memory, 4 * GPU_PAGE), other = pinned(fd, memory, GPU_PAGE);
    unsigned char *range = mmap(NULL, 4 * GPU_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(range != MAP_FAILED);
    calls();
    CHECK(mmap(range, 4 * GPU_PAGE, PROT_READ | PROT_WRITE, fixed, fd, handle * PAGE) == range);
    CHECK_STRING(calls(), "mmap");
    CHECK_EQUAL(is_mapped(fd, handle), 1);
    CHECK_PAGES(range, 4 * GPU_PAGE, 0);
    CHECK_FAILS(mmap(range, GPU_PAGE, PROT_READ, fixed, fd, other * PAGE), EINVAL);
    CHECK_FAILS(mmap(range + 1, GPU_PAGE, PROT_READ, fixed, fd, other * PAGE), EINVAL);
    CHECK_EQUAL(munmap(range, 4 * GPU_PAGE), 0);
    CHECK_EQUAL(is_mapped(fd, handle), 0);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(pins(), 0);
}

TEST(call_names)
{
    calls();
    int fd = driver_open();
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &(struct gdrdrv_get_version){0}));
    uint64_t handle = pinned(fd, gpu_memory(ALIGNED_SIZE), GPU_PAGE);
    CHECK_STRING(calls(), "open GET_VERSION PIN_BUFFER");
    CHECK_EQUAL(close(open("/dev/null", O_RDONLY)), 0);
    unsigned char *mapping = mapped(fd, handle, GPU_PAGE);
    CHECK(is_mapped(fd, handle));
    CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);
    CHECK_OK(unpin(fd, handle));
    CHECK_EQUAL(close(fd), 0);
    CHECK_STRING(calls(), "mmap GET_INFO munmap UNPIN_BUFFER close");
    CHECK_STRING(calls(), "");
}

static volatile bool stop;

/* Work with files that has nothing to do with the device. */
static void *other_work(void *unused)
{
    (void)unused;
    while (!stop) {
        int fd = open("/dev/zero", O_RDWR);
        void *memory = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(fd >= 0 && memory != MAP_FAILED);
        CHECK_EQUAL(munmap(memory, PAGE), 0);
        CHECK_EQUAL(close(dup(fd)), 0);
        CHECK_EQUAL(close(fd), 0);
    }
    return NULL;
}

static void *device_work(void *memory)
{
    for (long i = 0; i < rounds(300); i++) {
        int fd = driver_open();
        uint64_t handle = pinned(fd, *(CUdeviceptr *)memory, GPU_PAGE);
        unsigned char *mapping = mapped(fd, handle, GPU_PAGE);
        CHECK_EQUAL(*(volatile char *)mapping, 0);
        CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);
        CHECK_OK(unpin(fd, handle));
        CHECK_EQUAL(close(fd), 0);
    }
    return NULL;
}

TEST(many_threads)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    pthread_t others[2], users[4];

    for (int i = 0; i < 2; i++)
        others[i] = start_thread(other_work, NULL);
    for (int i = 0; i < 4; i++)
        users[i] = start_thread(device_work, &memory);
    /* Forks in between find a lock that they can take. */
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(driver_open());
            _exit(0);
        }
        CHECK_EQUAL(waitpid(child, NULL, 0), child);
    }
    for (int i = 0; i < 4; i++)
        finish_thread(users[i]);
    stop = true;
    for (int i = 0; i < 2; i++)
        finish_thread(others[i]);
    CHECK_EQUAL(all_page_tables(), 0);
}

/* Under --fault "OPEN:EMFILE@1,PIN_BUFFER:ENOMEM@2,MMAP:EAGAIN@1,MUNMAP:EPERM@1,CLOSE:EIO@1". */
TEST(faults)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    uint64_t unused;

    CHECK_FAILS(open("/dev/gdrdrv", O_RDWR), EMFILE);
    int fd = driver_open();
    uint64_t handle = pinned(fd, memory, GPU_PAGE);
    CHECK_ERROR(pin(fd, memory, GPU_PAGE, &unused), ENOMEM);
    CHECK_FAILS(mmap(NULL, GPU_PAGE, PROT_READ, MAP_SHARED, fd, 0), EAGAIN);
    unsigned char *mapping = mapped(fd, handle, GPU_PAGE);
    CHECK_FAILS(munmap(mapping, GPU_PAGE), EPERM);
    CHECK_PAGES(mapping, PAGE, 0);
    CHECK_EQUAL(is_mapped(fd, handle), 1);
    CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);
    CHECK_FAILS(close(fd), EIO);
    CHECK_EQUAL(pins(), 0);
    CHECK_FAILS(fcntl(fd, F_GETFD), EBADF);

    CHECK_EQUAL(set_faults("GET_VERSION:EIO@2"), 0);
    CHECK_EQUAL(set_faults("nonsense"), -1);
    fd = driver_open();
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &(struct gdrdrv_get_version){0}));
    CHECK_ERROR(command(fd, GDRDRV_IOC_GET_VERSION, &(struct gdrdrv_get_version){0}), EIO);
    CHECK_EQUAL(set_faults(NULL), 0);
}

/* Under --fault "GET_INFO_V2:MAPPING_TYPE=4@2,GET_INFO_V2:MAPPING_TYPE=0@3,GET_INFO:MAPPED=0@1,UNPIN_BUFFER:EINVAL@1". */
TEST(wrong_answers)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    int fd = driver_open();
    uint64_t handle = pinned(fd, memory, GPU_PAGE);
    unsigned char *mapping = mapped(fd, handle, GPU_PAGE);
    static const uint32_t types[] = {1, 4, 0, 1};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct gdrdrv_get_info_v2 v2;
        CHECK_OK(info(fd, handle, &v2));
        CHECK_EQUAL(v2.va, memory);
        CHECK_EQUAL(v2.mapping_type, types[i]);
    }
    CHECK_EQUAL(is_mapped(fd, handle), 0);
    CHECK_EQUAL(is_mapped(fd, handle), 1);

    CHECK_ERROR(unpin(fd, handle), EINVAL);
    CHECK_EQUAL(pins(), 1);
    CHECK_EQUAL(all_page_tables(), 1);
    CHECK_EQUAL(is_mapped(fd, handle), 1);
    CHECK_PAGES(mapping, PAGE, 0);
    CHECK_OK(unpin(fd, handle));
    CHECK_EQUAL(pins(), 0);
    CHECK_PAGES_GONE(mapping, PAGE);
    CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);
}

/* Ends with two pins, by SIGKILL or as usual. */
TEST(leaks)
{
    int fd = driver_open();
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);

    pinned(fd, memory, 1);
    pinned(fd, memory, 1);
    if (arguments[0] != NULL)
        raise(SIGKILL);
}
