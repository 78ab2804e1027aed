/*
 * Tests of a GPU whose driver is unbound, as happens when an external GPU is unplugged, or when root gives the GPU to
 * another driver. Mappings end, because another driver or device may get the addresses. Pins stay until they are
 * unpinned, and cannot be mapped any more.
 *
 * usage: removed [rounds]
 */

#include "device.h"

#include <glob.h>
#include <libgen.h>
#include <sys/syscall.h>

#define DRIVER "/sys/bus/pci/drivers/emugpu/"

/* Returns the PCI address of the GPU, to which the GPU driver must be bound. */
static const char *address(void)
{
    static char name[32];
    glob_t devices;

    CHECK(glob(DRIVER "*:*", 0, NULL, &devices) == 0 && devices.gl_pathc == 1);
    snprintf(name, sizeof(name), "%s", basename(devices.gl_pathv[0]));
    globfree(&devices);
    return name;
}

static void unplug(void)
{
    char path[80];

    snprintf(path, sizeof(path), DRIVER "%s/remove", address());
    write_text(path, "1");
}

static void plug(void)
{
    write_text("/sys/bus/pci/rescan", "1");
    (void)address();
}

static void user(void)
{
    struct gdrdrv_get_info_v2 i;
    unsigned char *va, value;
    uint64_t handle;

    drop_privileges();
    handle_faults();
    struct gpu_memory memory = gpu_alloc(80 * GPU_PAGE), other = gpu_alloc(GPU_PAGE);
    int fd = driver_open(), second = driver_open();
    memset(memory.view, 0x5a, memory.size);
    uint64_t first = pinned(fd, memory), unmapped = pinned(fd, other), closed = pinned(second, memory);
    unsigned char *at = mapped(fd, first, memory.size), *of_closed = mapped(second, closed, memory.size);
    CHECK_PAGES(at, memory.size, 0x5a);
    CHECK_EQUAL(touch(of_closed, &value), 0);
    CHECK(close(second) == 0);
    next_step(); /* the GPU is gone */
    CHECK_PAGES_GONE(at, memory.size);
    CHECK_PAGES_GONE(of_closed, memory.size);
    CHECK_OK(info(fd, first, &i));
    CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
    CHECK_ERROR(map(fd, unmapped, GPU_PAGE, &va), EINVAL);
    CHECK_ERROR(pin(fd, other.va, GPU_PAGE, &handle), EINVAL);
    CHECK_EQUAL(page_tables(), 3);
    CHECK_OK(unpin(fd, first));
    next_step(); /* the GPU is back */
    CHECK_PAGES_GONE(of_closed, memory.size);
    CHECK_ERROR(map(fd, unmapped, GPU_PAGE, &va), EINVAL);
    CHECK(munmap(of_closed, memory.size) == 0);
    CHECK_PAGES(mapped(fd, pinned(fd, memory), memory.size), memory.size, 0x5a);
}

static void mappings_end_with_their_device(void)
{
    pid_t child = start_steps(user);
    await(steps[0]);
    unplug();
    say(steps[0]);
    await(steps[0]);
    plug();
    say(steps[0]);
    finish_steps(child);
    CHECK_EQUAL(page_tables(), 0);
}

/* Unbinds the driver of a device other than the GPU with the pinned memory. The mapping must stay. */
static void another_device_leaves(void)
{
    glob_t devices;
    size_t rng = 0;

    CHECK(glob("/sys/bus/pci/drivers/virtio-pci/*:*/device", 0, NULL, &devices) == 0);
    while (rng < devices.gl_pathc && strcmp(file_text(devices.gl_pathv[rng]), "0x1005\n") != 0)
        rng++;
    CHECK_COMPARE(rng, <, devices.gl_pathc); /* vm/run.sh adds this device, which nothing else needs */
    const char *name = basename(dirname(devices.gl_pathv[rng]));
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    int fd = driver_open();
    memset(memory.view, 0x5a, GPU_PAGE);
    unsigned char *va = mapped(fd, pinned(fd, memory), GPU_PAGE);
    CHECK_PAGES(va, GPU_PAGE, 0x5a);
    write_text("/sys/bus/pci/drivers/virtio-pci/unbind", name);
    CHECK_PAGES(va, GPU_PAGE, 0x5a);
    write_text("/sys/bus/pci/drivers/virtio-pci/bind", name);
    globfree(&devices);
    CHECK(munmap(va, GPU_PAGE) == 0);
    CHECK(close(fd) == 0);
}

static int *is_gone, *is_over;

/* Maps a file by which processes share is_gone and is_over. The descriptor of the file stays open across an exec. */
static void map_flags(int file)
{
    is_gone = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(is_gone != MAP_FAILED);
    is_over = is_gone + 1;
}

/*
 * Pins and maps, again and again. Keeps every fourth mapping until the GPU is gone. While it is gone, any access to a
 * mapping must raise SIGBUS.
 */
static void map_until_over(void)
{
    long maps = 0, ended = 0;
    unsigned char *va, value;
    uint64_t handle;

    run_on(1);
    handle_faults();
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    int fd = driver_open();
    say(steps[1]);
    while (!__atomic_load_n(is_over, __ATOMIC_ACQUIRE)) {
        if (pin(fd, memory.va, GPU_PAGE, &handle) != 0)
            continue;
        if (map(fd, handle, GPU_PAGE, &va) == 0) {
            maps++;
            while (maps % 4 == 0 && !__atomic_load_n(is_gone, __ATOMIC_ACQUIRE) && !__atomic_load_n(is_over, __ATOMIC_ACQUIRE))
                ;
            if (__atomic_load_n(is_gone, __ATOMIC_ACQUIRE)) {
                int signal = touch(va, &value);

                if (__atomic_load_n(is_gone, __ATOMIC_ACQUIRE)) {
                    CHECK_EQUAL(signal, SIGBUS);
                    ended++;
                }
            }
            CHECK(munmap(va, GPU_PAGE) == 0);
        }
        CHECK_OK(unpin(fd, handle));
    }
    printf("%ld maps, %ld of them ended\n", maps, ended);
}

static int flags_file;

/* Maps a pin that was made before the exec, again and again, until the device with the pinned memory is gone. */
static void map_after_exec(int fd, uint64_t handle, int flags, int step)
{
    unsigned char *va, value;

    handle_faults();
    run_on(1);
    map_flags(flags);
    say(step);
    while (map(fd, handle, GPU_PAGE, &va) == 0) {
        if (__atomic_load_n(is_gone, __ATOMIC_ACQUIRE)) {
            CHECK_EQUAL(touch(va, &value), SIGBUS);
            return;
        }
        CHECK(munmap(va, GPU_PAGE) == 0);
    }
}

static void pin_and_exec(void)
{
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    int fd = driver_open();
    char numbers[64];
    uint64_t handle = pinned(fd, memory);

    CHECK(fcntl(fd, F_SETFD, 0) == 0);
    snprintf(numbers, sizeof(numbers), "%d %lu %d %d", fd, (unsigned long)handle, flags_file, steps[1]);
    execl("/proc/self/exe", "removed", numbers, (char *)NULL);
    _exit(127);
}

static void device_leaves_after_exec(const char *device, long rounds_wanted)
{
    unsigned int seed = 1;

    for (long round = 0; round < rounds_wanted; round++) {
        pid_t child = start_steps(pin_and_exec);
        await(steps[0]);
        delay(&seed, 200000);
        write_text(DRIVER "unbind", device);
        __atomic_store_n(is_gone, 1, __ATOMIC_RELEASE);
        finish_steps(child);
        __atomic_store_n(is_gone, 0, __ATOMIC_RELEASE);
        write_text(DRIVER "bind", device);
    }
}

static void device_leaves_while_its_memory_is_mapped(const char *device, long rounds_wanted)
{
    unsigned int seed = 1;

    pid_t child = start_steps(map_until_over);
    await(steps[0]);
    run_on(0);
    for (long round = 0; round < rounds_wanted; round++) {
        delay(&seed, 2000000);
        write_text(DRIVER "unbind", device);
        __atomic_store_n(is_gone, 1, __ATOMIC_RELEASE);
        delay(&seed, 200000);
        __atomic_store_n(is_gone, 0, __ATOMIC_RELEASE);
        write_text(DRIVER "bind", device);
    }
    __atomic_store_n(is_over, 1, __ATOMIC_RELEASE);
    finish_steps(child);
    CHECK_EQUAL(page_tables(), 0);
}

int main(int argc, char **argv)
{
    long rounds_wanted = argc > 1 ? atol(argv[1]) : 200;
    unsigned long handle;
    int fd, step;

    if (argc > 1 && sscanf(argv[1], "%d %lu %d %d", &fd, &handle, &flags_file, &step) == 4) {
        map_after_exec(fd, handle, flags_file, step);
        return 0;
    }
    handle_faults();
    mappings_end_with_their_device();
    another_device_leaves();
    flags_file = (int)syscall(SYS_memfd_create, "flags", 0);
    CHECK(flags_file >= 0 && ftruncate(flags_file, (off_t)PAGE) == 0);
    map_flags(flags_file);
    device_leaves_after_exec(address(), rounds_wanted / 10);
    device_leaves_while_its_memory_is_mapped(address(), rounds_wanted);
    return passed("removed");
}
