/* A driver that is replaced while it is closed, or that does not answer. */
#ifndef NEWER_DRIVER_H
#define NEWER_DRIVER_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

/* If set, the driver reports its version to be one more. */
static int newer;

/* If set, it does not answer, and 2 is stored here. */
static atomic_int is_stuck;

/* The library calls this, because symbols of programs come first. */
int ioctl(int fd, unsigned long command, ...)
{
    static int (*next)(int, unsigned long, ...);
    va_list list;

    va_start(list, command);
    uint32_t *argument = va_arg(list, uint32_t *);
    va_end(list);
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "ioctl");
    while (is_stuck) {
        is_stuck = 2;
        pause();
    }
    int result = next(fd, command, argument);
    if (newer && (command & 0xffff) == 0xdaff)
        argument[0]++;
    return result;
}

#endif
