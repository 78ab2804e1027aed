/*
 * The driver calls that gdremu saw. They are told only while a program runs under gdremu.
 */
#ifndef DRIVER_CALLS_H
#define DRIVER_CALLS_H

#include "check.h"

#include <dlfcn.h>

typedef const char *take_calls_t(void);

/* gdremu's function that names the driver calls since it was last asked, or NULL. */
static inline take_calls_t *find_take_calls(void)
{
    take_calls_t *take;

    /* The way that POSIX recommends: ISO C has no cast from an object pointer to a function pointer. */
    *(void **)&take = dlsym(RTLD_DEFAULT, "gdremu_calls_take");
    return take;
}

#endif
