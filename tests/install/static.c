/* For a program without shared libraries, which gdremu cannot run: calls that need no GPU. */

#include <gdrapi.h>

int main(void)
{
    int major, minor;
    gdr_t gdr = gdr_open();

    gdr_runtime_get_version(&major, &minor);
    if (gdr != NULL && gdr_close(gdr) != 0)
        return 1;
    return major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION ? 0 : 1;
}
