/* Tests of the device node, and of the files below /proc/driver/gdrdrv. */
#include "contract.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#define REFCOUNT "/proc/driver/gdrdrv/nv_get_pages_refcount"

TEST(node_is_a_character_device)
{
    struct stat status;
    int fd = driver_open();

    CHECK(stat(GDRDRV_DEVICE, &status) == 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK(fstat(fd, &status) == 0);
    CHECK(S_ISCHR(status.st_mode));
    CHECK_EQUAL(fcntl(fd, F_GETFD), FD_CLOEXEC);
}

/* Returns gdrdrv's major number in /proc/devices, or 0. Installers look it up there to create the device node. */
static unsigned int major_in_proc_devices(void)
{
    const char *devices = file_text("/proc/devices"), *name = strstr(devices, " gdrdrv\n");

    while (name > devices && name[-1] != '\n')
        name--;
    return name == NULL ? 0 : (unsigned int)atoi(name);
}

/* Creates a device node with these numbers, and opens it. Returns 0 or an errno. */
static int open_node(unsigned int major, unsigned int minor)
{
    char path[] = "/tmp/gdrdrv-XXXXXX", node[32];
    int opened = -1;

    CHECK(mkdtemp(path) != NULL);
    snprintf(node, sizeof(node), "%s/node", path);
    int made = mknod(node, S_IFCHR | 0600, makedev(major, minor));
    if (made == 0)
        opened = open(node, O_RDWR | O_CLOEXEC);
    int error = opened >= 0 ? 0 : errno;
    (void)unlink(node);
    (void)rmdir(path);
    if (made != 0)
        waive("device nodes cannot be created here");
    CHECK(opened < 0 || close(opened) == 0);
    return error;
}

TEST(only_minor_0_can_be_opened)
{
    unsigned int major = major_in_proc_devices();
    long error = expected("open of other minors", ENXIO);
    static const unsigned int others[] = {1, 2, 127, 128, 255};

    if (major == 0)
        waive("/proc/devices does not list gdrdrv");
    CHECK_OK(open_node(major, 0));
    for (size_t i = 0; error != ANY && i < COUNT(others); i++)
        CHECK_ERROR(open_node(major, others[i]), error);
}

/* The test ignores the lines that later releases and other modules append to /proc/driver/gdrdrv/params. */
TEST(params_show_version_and_mode)
{
    struct gdrdrv_get_version version;
    char wanted[256];
    struct stat status;
    int fd = driver_open();

    if (!expected("/proc/driver/gdrdrv exists", 1)) {
        CHECK(stat("/proc/driver/gdrdrv", &status) != 0);
        CHECK(access(PARAMS, F_OK) != 0);
        CHECK(open(REFCOUNT, O_RDONLY) < 0);
        CHECK_EQUAL(errno, ENOENT);
        return;
    }
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &version));
    const char *params = file_text(PARAMS);
    const char *flavor = strstr(params, ": proprietary\n") != NULL ? "proprietary" : "opensource";
    snprintf(wanted, sizeof(wanted),
             "Version: %u.%u\nBuilt for NVIDIA driver flavor: %s\nUse persistent mapping: %s\ndbg_enabled: ",
             version.gdrdrv_version >> 16, version.gdrdrv_version & 0xffff, flavor, persistent(fd) ? "yes" : "no");
    CHECK(strncmp(params, wanted, strlen(wanted)) == 0);
    CHECK(strncmp(strchr(params + strlen(wanted), '\n'), "\ninfo_enabled: ", 15) == 0);
    CHECK(stat("/proc/driver/gdrdrv", &status) == 0 && S_ISDIR(status.st_mode));
    CHECK(stat(PARAMS, &status) == 0 && S_ISREG(status.st_mode));
    if (geteuid() != 0)
        CHECK(open(PARAMS, O_RDWR) < 0);
}

/* Each read returns the current count, which includes pins made after the file was opened. */
TEST(refcount_is_read_live)
{
    int count = open(REFCOUNT, O_RDONLY | O_CLOEXEC), fd = driver_open();
    char text[24] = "";
    struct stat status;

    if (count < 0)
        waive("no " REFCOUNT ": load the module with dbg_enabled=1");
    CHECK(stat(REFCOUNT, &status) == 0);
    CHECK_EQUAL(status.st_mode & 0777, expected("mode of nv_get_pages_refcount", 0444));
    CHECK(pread(count, text, sizeof(text) - 1, 0) > 0);
    long before = atol(text);
    struct memory memory = memory_alloc(UNIT);
    uint64_t handle = pinned(fd, memory, GPU_PAGE);
    CHECK(pread(count, text, sizeof(text) - 1, 0) > 0);
    long now = atol(text);
    CHECK_EQUAL(now, before + 1);
    CHECK_OK(unpin(fd, handle));
    CHECK(lseek(count, 0, SEEK_SET) == 0);
    CHECK(read(count, text, sizeof(text) - 1) > 0);
    CHECK_EQUAL(atol(text), before);
    CHECK_EQUAL(read(count, text, sizeof(text)), 0);
}
