/* Without a driver, gdr_open returns NULL, prints nothing, and leaves no descriptor open. Runs outside gdremu. */

#include "kit/check.h"
#include "gdrapi.h"

static void open_returns_null(void)
{
    int before = open_descriptors();

    for (int i = 0; i < 10; i++)
        CHECK(gdr_open() == NULL);
    CHECK_EQUAL(open_descriptors(), before);
}

static void nothing_is_printed(void)
{
    int out[2];
    char byte;

    CHECK(pipe(out) == 0);
    fflush(NULL);
    CHECK(dup2(out[1], STDOUT_FILENO) >= 0);
    CHECK(dup2(out[1], STDERR_FILENO) >= 0);
    gdr_open();
    CHECK(close(STDOUT_FILENO) == 0 && close(STDERR_FILENO) == 0 && close(out[1]) == 0);
    if (read(out[0], &byte, 1) != 0)
        _exit(1);
}

static void what_needs_no_driver_works(void)
{
    const char *name = NULL;
    int major = 0, minor = 0;

    gdr_runtime_get_version(&major, &minor);
    CHECK_EQUAL(major, 2);
    CHECK_OK(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_WC, &name));
    CHECK_STRING(name, "Write Combining");
    CHECK_ERROR(gdr_close(NULL), EINVAL);
}

int main(void)
{
    if (access("/dev/gdrdrv", F_OK) == 0)
        waive("/dev/gdrdrv exists");
    open_returns_null();
    in_child(nothing_is_printed);
    what_needs_no_driver_works();
    return passed("open_fails");
}
