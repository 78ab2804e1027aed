/* Makes only calls that need no GPU, because gdremu cannot run a program without shared libraries. */

#include <gdrx.h>

int main(void)
{
    int major, minor;
    gdr_t gdr = gdr_open();

    gdr_runtime_get_version(&major, &minor);
    if (gdr != NULL && gdr_close(gdr) != 0)
        return 1;
    if (gdrx_version() != (GDRX_MAJOR_VERSION << MAJOR_VERSION_SHIFT | GDRX_MINOR_VERSION))
        return 1;
    return major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION ? 0 : 1;
}
