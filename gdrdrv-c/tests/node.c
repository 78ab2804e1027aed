/*
 * The device's node has the mode of the module's parameter `mode`. Of the device number in /proc/devices, only minor 0
 * is a device.
 */

#include "device.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

static unsigned int mode_parameter(void)
{
    FILE *file = fopen("/sys/module/gdrdrv/parameters/mode", "r");
    unsigned int mode;

    CHECK(file != NULL);
    CHECK_EQUAL(fscanf(file, "%u", &mode), 1);
    CHECK(fclose(file) == 0);
    return mode;
}

static unsigned int others;

static void unprivileged(void)
{
    int fd;

    drop_privileges();
    fd = open(GDRDRV_DEVICE, O_RDWR | O_CLOEXEC);
    CHECK_EQUAL(fd < 0 ? errno : 0, (others & 06) == 06 ? 0 : EACCES);
}

static unsigned int major_of_gdrdrv(void)
{
    FILE *devices = fopen("/proc/devices", "r");
    unsigned int number, found = 0;
    char line[100], name[64];

    CHECK(devices != NULL);
    while (fgets(line, sizeof(line), devices) != NULL)
        if (sscanf(line, "%u %63s", &number, name) == 2 && strcmp(name, "gdrdrv") == 0)
            found = number;
    CHECK(found > 0);
    CHECK(fclose(devices) == 0);
    return found;
}

/* Opens a node of its own. Returns the descriptor, or an error as a negative number. */
static int open_number(unsigned int major, unsigned int minor)
{
    const char *path = "/dev/gdrdrv-test";
    int fd;

    CHECK(mknod(path, S_IFCHR | 0600, makedev(major, minor)) == 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    fd = fd < 0 ? -errno : fd;
    CHECK(unlink(path) == 0);
    return fd;
}

int main(void)
{
    struct gdrdrv_get_version version;
    unsigned int major = major_of_gdrdrv(), minor;
    struct stat node;
    int fd;

    fd = open_number(major, 0);
    CHECK(fd >= 0);
    CHECK_OK(command(fd, GDRDRV_IOC_GET_VERSION, &version));
    CHECK(close(fd) == 0);
    for (minor = 1; minor < 256; minor++)
        CHECK_EQUAL(-open_number(major, minor), ENXIO);

    CHECK(stat(GDRDRV_DEVICE, &node) == 0);
    CHECK(S_ISCHR(node.st_mode));
    CHECK_EQUAL(node.st_mode & 07777, mode_parameter());
    CHECK_EQUAL(node.st_uid, 0);
    others = node.st_mode & 07;
    in_child(unprivileged);
    return passed("node");
}
