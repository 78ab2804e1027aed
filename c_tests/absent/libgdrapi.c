/*
 * A libgdrapi.so.2 whose functions abort. Tests of the preloaded library are linked with this one, so that a call that
 * the preloaded library does not intercept ends the test.
 */

#include "../functions.h"

#include <stdio.h>
#include <stdlib.h>

#define ABSENT(result, name, parameters)                                              \
    void gdr_##name(void);                                                            \
    void gdr_##name(void)                                                             \
    {                                                                                 \
        fputs("gdr_" #name " was not intercepted by the preloaded library\n", stderr); \
        abort();                                                                      \
    }

FUNCTIONS(ABSENT)
