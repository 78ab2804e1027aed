/*
 * A libgdrapi.so.2 whose functions abort. It takes the place of the library that tests are linked with, while the real
 * one is preloaded. So a call that the preloaded library does not intercept aborts.
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
