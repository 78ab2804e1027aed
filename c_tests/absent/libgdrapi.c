/*
 * A libgdrapi.so.2 whose functions abort. The tests are linked with it and run with the real library preloaded, so a
 * call that the preloaded library does not intercept ends here.
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
