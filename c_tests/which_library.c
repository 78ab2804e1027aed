/* The debug log names the version and the file of the library in one line. */

#include "gdrapi.h"
#include "logged.h"

#include <dlfcn.h>
#include <sys/stat.h>

/* Without a driver the line is also logged. */
static void open_once(void)
{
    gdr_t g = gdr_open();

    if (g != NULL)
        CHECK_OK(gdr_close(g));
}

/* Returns whether the file `path`, which ends with its line, is the one that gdr_open was loaded
   from. */
static int is_this_library(const char *path)
{
    char name[4096] = "";
    struct stat said, loaded;
    Dl_info info;

    CHECK(sscanf(path, "%4095[^\n]", name) == 1);
    CHECK(dladdr((void *)(uintptr_t)gdr_open, &info) != 0);
    if (stat(name, &said) != 0 || stat(info.dli_fname, &loaded) != 0) {
        fprintf(stderr, "no file %s or %s\n", name, info.dli_fname);
        return 0;
    }
    return said.st_dev == loaded.st_dev && said.st_ino == loaded.st_ino;
}

int main(void)
{
    static const char start[] = "DBG:  libgdrapi 2.6", from[] = " from /";
    const char *log = log_of(open_once, "1");

    CHECK_LOGGED(log, start);
    const char *line = strstr(log, start);
    CHECK_LOGGED(line, from);
    const char *path = strstr(line, from);
    CHECK(path < strchr(line, '\n'));
    CHECK(is_this_library(path + strlen(from) - 1));
    CHECK_NOT_LOGGED(path, start); /* once per gdr_open */
    CHECK_NOT_LOGGED(log_of(open_once, "2"), start);
    return passed("which_library");
}
