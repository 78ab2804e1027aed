/*
 * A libgdrapi.so.2 whose functions abort. The tests are linked with it and run with the real library preloaded, so a
 * call that the preloaded library does not intercept ends here.
 */

#include <stdio.h>
#include <stdlib.h>

#define ABSENT(name)                                                  \
    void name(void)                                                   \
    {                                                                 \
        fputs(#name " was not intercepted by the preloaded library\n", stderr); \
        abort();                                                      \
    }

#define FUNCTIONS(each)              \
    each(gdr_open)                   \
    each(gdr_close)                  \
    each(gdr_pin_buffer)             \
    each(gdr_pin_buffer_v2)          \
    each(gdr_unpin_buffer)           \
    each(gdr_get_callback_flag)      \
    each(gdr_get_info)               \
    each(gdr_get_info_v2)            \
    each(gdr_map)                    \
    each(gdr_map_v2)                 \
    each(gdr_unmap)                  \
    each(gdr_copy_to_mapping)        \
    each(gdr_copy_from_mapping)      \
    each(gdr_runtime_get_version)    \
    each(gdr_driver_get_version)     \
    each(gdr_get_attribute)          \
    each(gdr_get_mapping_type_string)

#define DECLARE(name) void name(void);

FUNCTIONS(DECLARE)
FUNCTIONS(ABSENT)
