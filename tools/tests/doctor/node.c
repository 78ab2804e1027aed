/*
 * A preloaded stand-in for the driver of a /dev/gdrdrv with the major number 120, which Linux keeps for experiments. If the
 * kernel fails to open the device only because no driver has this number (ENXIO), this library opens it, and answers
 * GET_VERSION as gdrdrv 2.6. With GDRDRV=hang, opening /dev/gdrdrv never ends, even if gdremu emulates it. With GDRDRV=kill
 * it kills the process, as a fault in the module does. With GDRDRV=forbid it fails, as if a security module refused it. With
 * GDRDRV=starve, doctor may open no more files once it has started the process that examines CUDA.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../../../gdrdrv-c/gdrdrv_uapi.h"

static int device = -1;

/* glibc passes main's arguments to constructors. In doctor's process that examines CUDA, the second one is "Survey". */
__attribute__((constructor)) static void begin(int count, char **arguments)
{
    const char *fault = getenv("GDRDRV") ? getenv("GDRDRV") : "";
    struct rlimit none = {0, 0};

    if (strcmp(fault, "starve") == 0 && count > 2 && strcmp(arguments[2], "\"Survey\"") == 0)
        prlimit(getppid(), RLIMIT_NOFILE, &none, NULL);
}

int open64(const char *path, int flags, mode_t mode)
{
    int (*next)(const char *, int, mode_t) = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, "open64");
    const char *fault = getenv("GDRDRV") ? getenv("GDRDRV") : "";
    struct stat status;

    if (strcmp(path, "/dev/gdrdrv") != 0)
        return next(path, flags, mode);
    while (strcmp(fault, "hang") == 0)
        pause();
    if (strcmp(fault, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(fault, "forbid") == 0) {
        errno = EACCES;
        return -1;
    }
    int file = next(path, flags, mode);
    if (file < 0 && errno == ENXIO && stat(path, &status) == 0 && major(status.st_rdev) == 120)
        file = device = next("/proc/self/exe", 0, 0);
    return file;
}

int open(const char *path, int flags, mode_t mode) __attribute__((alias("open64")));

int ioctl(int file, unsigned long request, void *argument)
{
    int (*next)(int, unsigned long, void *) = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
    struct gdrdrv_get_version versions = {.gdrdrv_version = 0x20006, .minimum_gdr_api_version = 0x20000};

    if (file != device || request != GDRDRV_IOC_GET_VERSION)
        return next(file, request, argument);
    *(struct gdrdrv_get_version *)argument = versions;
    return 0;
}
