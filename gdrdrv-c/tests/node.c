/* The device's node has the mode of the module's parameter `mode`, by which unprivileged users can open it, or cannot. */

#include "device.h"

#include <sys/stat.h>

static unsigned int others;

static void unprivileged(void)
{
    drop_privileges();
    int fd = open(GDRDRV_DEVICE, O_RDWR | O_CLOEXEC);
    CHECK_EQUAL(fd < 0 ? errno : 0, (others & 06) == 06 ? 0 : EACCES);
}

int main(void)
{
    struct stat node;

    CHECK(stat(GDRDRV_DEVICE, &node) == 0);
    CHECK(S_ISCHR(node.st_mode));
    CHECK_EQUAL(node.st_mode & 07777, atoi(parameter("gdrdrv", "mode")));
    CHECK_EQUAL(node.st_uid, 0);
    others = node.st_mode & 07;
    in_child(unprivileged);
    return passed("node");
}
