/*
 * A libgdrapi.so.2 whose functions abort. Tests of libgdrapi-preload.so (in LD_PRELOAD) find this library on the
 * library path. If a call reaches it instead of the preloaded library, the call ends the test.
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
