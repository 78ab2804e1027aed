/* Calls a libgdrapi of any maker, the "next library", from a shared object that has the same functions itself. */
#ifndef NEXT_H
#define NEXT_H

#pragma GCC visibility push(default)
#include "gdrapi.h"
#undef gdr_get_info
int gdr_get_info(gdr_t g, gdr_mh_t handle, gdr_info_t *info); /* Programs built before 2.4 call this. */
#pragma GCC visibility pop

#include "../../c_tests/functions.h"

/* The functions of the next library, which gets the calls. If it lacks one, a stub fails with ENOSYS; gdr_open's stub
 * returns NULL. */
#pragma GCC visibility push(hidden)
extern struct next {
    FUNCTIONS(FUNCTION_POINTER)
} next;

/* Loads the next library, or returns NULL. path must contain a directory, because dlopen("libgdrapi.so.2") would return
 * this object, which has that SONAME. */
void *next_load(const char *path);

/* Calls gdr_get_info_v2 or, in a library before 2.4, its predecessor. */
int next_info(gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info);
#pragma GCC visibility pop

#endif
