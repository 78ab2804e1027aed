/*
 * Defines a dlsym that the library calls instead of libc's when it looks up functions of libcuda. So a test can hide a
 * function from the library, or put another one in its place.
 */
#ifndef CUDA_LOOKUP_H
#define CUDA_LOOKUP_H

#include "kit/check.h"

#include <dlfcn.h>

/* dlsym calls this for each name that starts with "cu", and returns its result: `found`, another function, or NULL as
   if there were no such function. */
static void *(*lookup)(const char *name, void *found);

static void *(*libcs_dlsym)(void *, const char *);

static __attribute__((noinline)) void find_libcs_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};

    for (size_t i = 0; libcs_dlsym == NULL && i < sizeof(versions) / sizeof(versions[0]); i++)
        *(void **)&libcs_dlsym = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (libcs_dlsym == NULL)
        abort();
}

static __attribute__((noinline)) void *look_up(void *handle, const char *name)
{
    void *found = lookup(name, libcs_dlsym(handle, name));

    if (found == NULL)
        (void)libcs_dlsym(handle, "no such function"); /* sets the text that dlerror returns */
    return found;
}

/* With RTLD_NEXT, libc's dlsym searches the libraries after the one that contains its return address. The optimization
   makes the last call a jump, so that this address is in the caller of this function. */
__attribute__((optimize("O2"))) void *dlsym(void *restrict handle, const char *restrict name)
{
    if (libcs_dlsym == NULL)
        find_libcs_dlsym();
    if (lookup != NULL && strncmp(name, "cu", 2) == 0)
        return look_up(handle, name);
    return libcs_dlsym(handle, name);
}

#endif
