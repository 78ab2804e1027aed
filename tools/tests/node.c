/*
 * Character devices of major 120, one for experiments, are gdrdrv's. They open where the kernel misses only the driver,
 * and have release 2.6. With GDRDRV=hang, opening one never ends, also where gdremu emulates it; with GDRDRV=forbid, a
 * security module refuses it. With GDRDRV=sandbox, each ioctl is refused.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../../gdrdrv-c/gdrdrv_uapi.h"

static int device = -1;

static int open_with(const char *function, const char *path, int flags, mode_t mode)
{
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, function);
    struct stat status;
    const char *fault = getenv("GDRDRV");
    int is_node = strcmp(path, "/dev/gdrdrv") == 0;
    if (is_node && fault != NULL && strcmp(fault, "hang") == 0)
        for (;;)
            pause();
    if (is_node && fault != NULL && strcmp(fault, "forbid") == 0) {
        errno = EACCES;
        return -1;
    }
    int file = next(path, flags, mode);
    if (file < 0 && errno == ENXIO && is_node && stat(path, &status) == 0 && major(status.st_rdev) == 120)
        file = device = next("/proc/self/exe", O_RDONLY | (flags & O_CLOEXEC));
    return file;
}

#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                                      \
        va_end(more);                                                                                                  \
        return open_with(#name, path, flags, mode);                                                                    \
    }

OPEN(open)
OPEN(open64)

int ioctl(int file, unsigned long request, ...)
{
    int (*next)(int, unsigned long, void *) = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (getenv("GDRDRV") != NULL && strcmp(getenv("GDRDRV"), "sandbox") == 0) {
        errno = EPERM;
        return -1;
    }
    if (file != device || request != GDRDRV_IOC_GET_VERSION)
        return next(file, request, argument);
    struct gdrdrv_get_version versions = {.gdrdrv_version = 0x20006, .minimum_gdr_api_version = 0x20000};
    memcpy(argument, &versions, sizeof(versions));
    return 0;
}
