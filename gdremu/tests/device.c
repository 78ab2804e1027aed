/*
 * The emulated /dev/gdrdrv as a program meets it: one test a run, named by the first argument.
 */
#include "raw.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

static void files_exist(void)
{
    struct stat status;
    struct statx statx_status;
    char line[64];
    FILE *params;

    CHECK_EQUAL(access("/dev/gdrdrv", R_OK | W_OK), 0);
    CHECK_FAILS(access("/dev/gdrdrv", X_OK), EACCES);
    CHECK_EQUAL(stat("/dev/gdrdrv", &status), 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQUAL(lstat("//dev/gdrdrv", &status), 0);
    CHECK_EQUAL(fstatat(AT_FDCWD, "/dev/gdrdrv", &status, 0), 0);
    CHECK_EQUAL(statx(AT_FDCWD, "/dev/gdrdrv", 0, STATX_BASIC_STATS, &statx_status), 0);
    CHECK(S_ISCHR(statx_status.stx_mode));
    CHECK_EQUAL(stat("/proc/driver/gdrdrv", &status), 0);
    CHECK(S_ISDIR(status.st_mode));
    CHECK_EQUAL(stat("/proc/driver/gdrdrv/params", &status), 0);
    CHECK(S_ISREG(status.st_mode));
    CHECK_FAILS(stat("/dev/gdrdrv2", &status), ENOENT);

    int fd = open_device();
    CHECK_EQUAL(fstat(fd, &status), 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQUAL(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQUAL(close(fd), 0);

    params = fopen("/proc/driver/gdrdrv/params", "r");
    CHECK(params != NULL);
    CHECK(fgets(line, sizeof(line), params) != NULL);
    CHECK_STRING(line, "Version: 2.6\n");
    fclose(params);
    CHECK_FAILS(open("/proc/driver/gdrdrv/params", O_RDWR), EACCES);
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
static void files_of_the_machine(void)
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

/* By paths that do not begin at the root. */
static void relative_paths(void)
{
    struct statx statx_status;
    struct stat status;
    int directory, fd;
    char text[16] = "";
    FILE *file;

    CHECK_EQUAL(chdir("/dev"), 0);
    CHECK_EQUAL(access("gdrdrv", R_OK | W_OK), 0);
    CHECK_EQUAL(stat("./gdrdrv", &status), 0);
    CHECK(S_ISCHR(status.st_mode));
    fd = open("../dev/gdrdrv", O_RDWR);
    CHECK(fd >= 0);
    CHECK_EQUAL(ioctl(fd, GET_VERSION, &(struct version){0}), 0);
    CHECK_EQUAL(close(fd), 0);
    CHECK_FAILS(open("no/gdrdrv", O_RDWR), ENOENT);

    CHECK_EQUAL(chdir("/proc"), 0);
    CHECK_FAILS(open("gdrdrv", O_RDWR), ENOENT);
    directory = open("/dev", O_RDONLY | O_DIRECTORY);
    CHECK(directory >= 0);
    fd = openat(directory, "gdrdrv", O_RDWR);
    CHECK(fd >= 0);
    CHECK_EQUAL(ioctl(fd, GET_VERSION, &(struct version){0}), 0);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(faccessat(directory, "gdrdrv", R_OK, 0), 0);
    CHECK_EQUAL(fstatat(directory, "gdrdrv", &status, 0), 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQUAL(statx(directory, "gdrdrv", 0, STATX_BASIC_STATS, &statx_status), 0);
    CHECK(S_ISCHR(statx_status.stx_mode));
    CHECK_EQUAL(close(directory), 0);
    CHECK_FAILS(openat(directory, "gdrdrv", O_RDWR), EBADF);

    CHECK_EQUAL(chdir("/sys"), 0);
    file = fopen("bus/../bus/pci/devices/0000:1b:00.0/vendor", "r");
    CHECK(file != NULL);
    CHECK(fgets(text, sizeof(text), file) != NULL);
    CHECK_STRING(text, "0x10de\n");
    fclose(file);
    CHECK_EQUAL(access("../proc/driver/gdrdrv/params", R_OK), 0);
}

/* Under --nv-p2p-dummy. */
static void bound_to_nv_p2p_dummy(void)
{
    static const char holders[] = "/sys/module/nv_p2p_dummy/holders";
    struct pin_v1 v1 = {.addr = gpu_memory(ALIGNED_SIZE), .size = GPU_PAGE};
    struct pin_v2 v2 = {.addr = v1.addr, .size = GPU_PAGE};
    struct dirent *entry;
    struct stat status;
    int fd = open_device(), directory, found = 0;

    CHECK_FAILS(ioctl(fd, PIN_BUFFER, &v1), EINVAL);
    CHECK_FAILS(ioctl(fd, PIN_BUFFER_V2, &v2), EINVAL);
    CHECK_EQUAL(pins(), 0);

    CHECK_EQUAL(access("/sys/module/nv_p2p_dummy/holders/gdrdrv", F_OK), 0);
    CHECK_EQUAL(stat("/sys/module/nv_p2p_dummy/holders/gdrdrv", &status), 0);
    CHECK(S_ISDIR(status.st_mode));
    CHECK_FAILS(access("/sys/module/nv_p2p_dummy/holders/nvidia", F_OK), ENOENT);
    directory = open("/sys/module/nv_p2p_dummy/holders/gdrdrv", O_RDONLY | O_DIRECTORY);
    CHECK(directory >= 0);
    CHECK_EQUAL(close(directory), 0);
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

static void files_absent(void)
{
    struct stat status;

    CHECK_FAILS(open("/dev/gdrdrv", O_RDWR), ENOENT);
    CHECK_FAILS(openat(AT_FDCWD, "/dev/gdrdrv", O_RDWR), ENOENT);
    CHECK_FAILS(access("/dev/gdrdrv", F_OK), ENOENT);
    CHECK_FAILS(stat("/dev/gdrdrv", &status), ENOENT);
    CHECK_FAILS(open("/proc/driver/gdrdrv/params", O_RDONLY), ENOENT);
    CHECK(fopen("/proc/driver/gdrdrv/params", "r") == NULL);
}

static void open_is_refused(void)
{
    CHECK_FAILS(open("/dev/gdrdrv", O_RDWR), EACCES);
    CHECK_EQUAL(access("/dev/gdrdrv", F_OK), 0);
    CHECK_FAILS(access("/dev/gdrdrv", R_OK), EACCES);
}

/* Replaces part of a mapping as the library does: by a mapping of an empty file, which raises SIGBUS. */
static void cover(char *address, size_t size)
{
    int empty = memfd_create("empty", MFD_CLOEXEC);

    CHECK(empty >= 0);
    CHECK(mmap(address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, empty, 0) == address);
    CHECK_EQUAL(mprotect(address, size, PROT_READ), 0);
    CHECK_EQUAL(close(empty), 0);
}

/* A mapping that something else was mapped over is as good as unmapped. */
static void covered_mappings(void)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    int fd = open_device();
    uint64_t handle = pin(fd, memory, 4 * GPU_PAGE);
    char *mapping = map(fd, handle, 4 * GPU_PAGE);

    /* Whole, while the pin lives, and again after that. */
    calls();
    cover(mapping, 4 * GPU_PAGE);
    CHECK_STRING(calls(), "mmap_fixed");
    CHECK_EQUAL(fault_at(mapping), SIGBUS);
    CHECK_EQUAL(mapped(fd, handle), 0);
    cover(mapping, 4 * GPU_PAGE);
    CHECK_EQUAL(munmap(mapping, 4 * GPU_PAGE), 0);
    CHECK_STRING(calls(), "GET_INFO");

    /* In part: the head up to the middle of a page, then the middle, then the rest. */
    mapping = map(fd, handle, 4 * GPU_PAGE);
    cover(mapping, GPU_PAGE - 1);
    CHECK_EQUAL(mapped(fd, handle), 0);
    CHECK_EQUAL(fault_at(mapping), SIGBUS);
    CHECK_READABLE(mapping + GPU_PAGE);
    cover(mapping + 2 * GPU_PAGE, GPU_PAGE);
    CHECK_READABLE(mapping + GPU_PAGE);
    CHECK_READABLE(mapping + 3 * GPU_PAGE);
    CHECK_EQUAL(unpin(fd, handle), 0);
    CHECK_READABLE(mapping + 3 * GPU_PAGE);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(munmap(mapping, 4 * GPU_PAGE), 0);
    CHECK_EQUAL(pins(), 0);

    /* Covered: an UNPIN finds nothing to take away. Not covered: it takes all of it. */
    fd = open_device();
    handle = pin(fd, memory, GPU_PAGE);
    mapping = map(fd, handle, GPU_PAGE);
    CHECK(mmap(mapping, GPU_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mapping);
    CHECK_EQUAL(unpin(fd, handle), 0);
    CHECK_READABLE(mapping);
    CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);

    /* The last part of the last mapping releases a device that is closed. */
    handle = pin(fd, memory, 2 * GPU_PAGE);
    mapping = map(fd, handle, 2 * GPU_PAGE);
    CHECK_EQUAL(close(fd), 0);
    cover(mapping, GPU_PAGE);
    CHECK_EQUAL(pins(), 1);
    CHECK_EQUAL(refcount(), 1);
    cover(mapping + GPU_PAGE, GPU_PAGE);
    CHECK_EQUAL(pins(), 0);
    CHECK_EQUAL(refcount(), 0);
    CHECK_EQUAL(munmap(mapping, 2 * GPU_PAGE), 0);

    /* A cover that fails changes nothing. */
    int (*set)(const char *);
    *(void **)&set = gdremu("gdremu_faults_set");
    fd = open_device();
    handle = pin(fd, memory, GPU_PAGE);
    mapping = map(fd, handle, GPU_PAGE);
    CHECK_FAILS(mmap(mapping, GPU_PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, -1, 0), EBADF);
    CHECK_EQUAL(set("MMAP_FIXED:ENOMEM@1"), 0);
    CHECK_FAILS(mmap(mapping, GPU_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), ENOMEM);
    CHECK_READABLE(mapping);
    CHECK_EQUAL(mapped(fd, handle), 1);
    CHECK_EQUAL(munmap(mapping, 100), 0);
    CHECK_EQUAL(close(fd), 0);
    CHECK_EQUAL(pins(), 1);
    CHECK_EQUAL(munmap(mapping, GPU_PAGE - 100), 0);
    CHECK_EQUAL(pins(), 0);
}

/* Under --module-defects: a cover after the UNPIN marks the oldest other pin unmapped, as a munmap does. */
static void late_cover(void)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    int fd = open_device();
    uint64_t oldest = pin(fd, memory, GPU_PAGE), handle = pin(fd, memory, GPU_PAGE);
    char *first = map(fd, oldest, GPU_PAGE), *second = map(fd, handle, GPU_PAGE);

    CHECK_EQUAL(unpin(fd, handle), 0);
    CHECK_EQUAL(mapped(fd, oldest), 1);
    cover(second, GPU_PAGE);
    CHECK_EQUAL(mapped(fd, oldest), 0);
    CHECK_EQUAL(munmap(first, GPU_PAGE), 0);
    CHECK_EQUAL(munmap(second, GPU_PAGE), 0);
}

static void call_names(void)
{
    calls();
    int fd = open_device();
    struct version version;
    CHECK_EQUAL(ioctl(fd, GET_VERSION, &version), 0);
    uint64_t handle = pin(fd, gpu_memory(ALIGNED_SIZE), GPU_PAGE);
    CHECK_STRING(calls(), "open GET_VERSION PIN_BUFFER");
    CHECK_EQUAL(close(open("/dev/null", O_RDONLY)), 0);
    void *mapping = map(fd, handle, GPU_PAGE);
    mapped(fd, handle);
    CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);
    CHECK_EQUAL(unpin(fd, handle), 0);
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
        void *memory = mmap(NULL, HOST_PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(fd >= 0 && memory != MAP_FAILED);
        CHECK_EQUAL(munmap(memory, HOST_PAGE), 0);
        CHECK_EQUAL(close(dup(fd)), 0);
        CHECK_EQUAL(close(fd), 0);
    }
    return NULL;
}

static void *device_work(void *memory)
{
    for (long i = 0; i < rounds(300); i++) {
        int fd = open_device();
        uint64_t handle = pin(fd, *(CUdeviceptr *)memory, GPU_PAGE);
        char *mapping = map(fd, handle, GPU_PAGE);
        CHECK_EQUAL(*(volatile char *)mapping, 0);
        CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);
        CHECK_EQUAL(unpin(fd, handle), 0);
        CHECK_EQUAL(close(fd), 0);
    }
    return NULL;
}

static void many_threads(void)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    pthread_t others[2], users[4];

    for (int i = 0; i < 2; i++)
        CHECK_EQUAL(pthread_create(&others[i], NULL, other_work, NULL), 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(pthread_create(&users[i], NULL, device_work, &memory), 0);
    /* Forks in between find a lock that they can take. */
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(open_device());
            _exit(0);
        }
        CHECK_EQUAL(waitpid(child, NULL, 0), child);
    }
    for (int i = 0; i < 4; i++)
        CHECK_EQUAL(pthread_join(users[i], NULL), 0);
    stop = true;
    for (int i = 0; i < 2; i++)
        CHECK_EQUAL(pthread_join(others[i], NULL), 0);
    CHECK_EQUAL(refcount(), 0);
}

/* Under --fault "OPEN:EMFILE@1,PIN_BUFFER:ENOMEM@2,MMAP:EAGAIN@1,MUNMAP:EPERM@1,CLOSE:EIO@1". */
static void faults(void)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    struct pin_v1 argument = {.addr = memory, .size = GPU_PAGE};

    CHECK_FAILS(open("/dev/gdrdrv", O_RDWR), EMFILE);
    int fd = open_device();
    uint64_t handle = pin(fd, memory, GPU_PAGE);
    CHECK_FAILS(ioctl(fd, PIN_BUFFER, &argument), ENOMEM);
    CHECK_FAILS(mmap(NULL, GPU_PAGE, PROT_READ, MAP_SHARED, fd, 0), EAGAIN);
    char *mapping = map(fd, handle, GPU_PAGE);
    CHECK_FAILS(munmap(mapping, GPU_PAGE), EPERM);
    CHECK_READABLE(mapping);
    CHECK_EQUAL(mapped(fd, handle), 1);
    CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);
    CHECK_FAILS(close(fd), EIO);
    CHECK_EQUAL(pins(), 0);
    CHECK_FAILS(fcntl(fd, F_GETFD), EBADF);

    int (*set)(const char *);
    *(void **)&set = gdremu("gdremu_faults_set");
    CHECK_EQUAL(set("GET_VERSION:EIO@2"), 0);
    CHECK_EQUAL(set("nonsense"), -1);
    fd = open_device();
    CHECK_EQUAL(ioctl(fd, GET_VERSION, &(struct version){0}), 0);
    CHECK_FAILS(ioctl(fd, GET_VERSION, &(struct version){0}), EIO);
    CHECK_EQUAL(set(NULL), 0);
}

/* Under --fault "GET_INFO_V2:MAPPING_TYPE=4@2,GET_INFO_V2:MAPPING_TYPE=0@3,GET_INFO:MAPPED=0@1,UNPIN_BUFFER:EINVAL@1". */
static void wrong_answers(void)
{
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);
    int fd = open_device();
    uint64_t handle = pin(fd, memory, GPU_PAGE);
    char *mapping = map(fd, handle, GPU_PAGE);
    static const uint32_t types[] = {1, 4, 0, 1};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct info info = {.handle = handle};
        CHECK_EQUAL(ioctl(fd, GET_INFO_V2, &info), 0);
        CHECK_EQUAL(info.va, memory);
        CHECK_EQUAL(info.mapping_type, types[i]);
    }
    CHECK_EQUAL(mapped(fd, handle), 0);
    CHECK_EQUAL(mapped(fd, handle), 1);

    CHECK_FAILS(unpin(fd, handle), EINVAL);
    CHECK_EQUAL(pins(), 1);
    CHECK_EQUAL(refcount(), 1);
    CHECK_EQUAL(mapped(fd, handle), 1);
    CHECK_READABLE(mapping);
    CHECK_EQUAL(unpin(fd, handle), 0);
    CHECK_EQUAL(pins(), 0);
    CHECK_EQUAL(fault_at(mapping), SIGBUS);
    CHECK_EQUAL(munmap(mapping, GPU_PAGE), 0);
}

/* Ends with two pins, by the method `how`. */
static void leaks(const char *how)
{
    int fd = open_device();
    CUdeviceptr memory = gpu_memory(ALIGNED_SIZE);

    pin(fd, memory, 1);
    pin(fd, memory, 1);
    if (strcmp(how, "killed") == 0)
        raise(SIGKILL);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"files_exist", files_exist},
    {"relative_paths", relative_paths},
    {"bound_to_nv_p2p_dummy", bound_to_nv_p2p_dummy},
    {"files_absent", files_absent},
    {"files_of_the_machine", files_of_the_machine},
    {"open_is_refused", open_is_refused},
    {"covered_mappings", covered_mappings},
    {"late_cover", late_cover},
    {"call_names", call_names},
    {"many_threads", many_threads},
    {"faults", faults},
    {"wrong_answers", wrong_answers},
};

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    if (argc > 2 && strcmp(argv[1], "leaks") == 0) {
        leaks(argv[2]);
        return 0;
    }
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        if (strcmp(argv[1], tests[i].name) == 0) {
            tests[i].run();
            return passed(tests[i].name);
        }
    fprintf(stderr, "no test %s\n", argv[1]);
    return 1;
}
