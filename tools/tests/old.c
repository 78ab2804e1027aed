/*
 * The functions of libgdrapi 2.4, on a system without gdrdrv.
 */
#include <errno.h>
#include <stddef.h>

#define REFUSES(function)                                                                                                    \
    int function(void)                                                                                                       \
    {                                                                                                                        \
        return ENODEV;                                                                                                       \
    }

void *gdr_open(void)
{
    return NULL;
}

void gdr_runtime_get_version(int *major, int *minor)
{
    *major = 2;
    *minor = 4;
}

REFUSES(gdr_close)
REFUSES(gdr_pin_buffer)
REFUSES(gdr_unpin_buffer)
REFUSES(gdr_get_info)
REFUSES(gdr_get_info_v2)
REFUSES(gdr_map)
REFUSES(gdr_unmap)
REFUSES(gdr_copy_to_mapping)
REFUSES(gdr_copy_from_mapping)
REFUSES(gdr_driver_get_version)
