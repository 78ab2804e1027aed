#include "connection.h"

#include <fcntl.h>

gdr_t open_connection(void)
{
    gdr_t g = gdr_open();

    CHECK(g != NULL);
    return g;
}

void close_connection(gdr_t g)
{
    CHECK_OK(gdr_close(g));
}

int driver_is_at_least(gdr_t g, int major, int minor)
{
    int its_major = -1, its_minor = -1;

    CHECK_OK(gdr_driver_get_version(g, &its_major, &its_minor));
    return its_major > major || (its_major == major && its_minor >= minor);
}

static int attribute(gdr_t g, gdr_attr_t which)
{
    int value = -1;

    CHECK_OK(gdr_get_attribute(g, which, &value));
    CHECK(value == 0 || value == 1);
    return value;
}

int is_persistent(gdr_t g)
{
    return attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING);
}

int uses_dmabuf(gdr_t g)
{
    return attribute(g, GDR_ATTR_USING_DMA_BUF_MMAP);
}

int descriptor_of(gdr_t g)
{
    int descriptor = *(const int *)(const void *)g;

    CHECK(uses_dmabuf(g) ? descriptor == -1 : fcntl(descriptor, F_GETFD) != -1);
    return descriptor;
}
