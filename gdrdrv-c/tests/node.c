/* The device's node has the mode of the module's parameter `mode`, by which unprivileged users can open it, or cannot. */

#include "device.h"

#include <sys/stat.h>

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

int main(void)
{
    struct stat node;

    CHECK(stat(GDRDRV_DEVICE, &node) == 0);
    CHECK(S_ISCHR(node.st_mode));
    CHECK_EQUAL(node.st_mode & 07777, mode_parameter());
    CHECK_EQUAL(node.st_uid, 0);
    others = node.st_mode & 07;
    in_child(unprivileged);
    return passed("node");
}
