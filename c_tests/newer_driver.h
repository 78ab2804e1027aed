/* A driver that is replaced while it is closed. */
#ifndef NEWER_DRIVER_H
#define NEWER_DRIVER_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>

/* If set, the driver reports its version to be one more. */
static int newer;

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
    int result = next(fd, command, argument);
    if (newer && (command & 0xffff) == 0xdaff)
        argument[0]++;
    return result;
}

#endif
