/* Records the lines that the library logs while a function runs. */
#ifndef LOGGED_H
#define LOGGED_H

#include "kit/check.h"

static FILE *logged_file;
static int logged_stderr;

/* Restores stderr, and returns what was written since log_of redirected it. */
static inline const char *logged_end(void)
{
    static char text[1 << 16];

    fflush(stderr);
    dup2(logged_stderr, STDERR_FILENO);
    close(logged_stderr);
    rewind(logged_file);
    text[fread(text, 1, sizeof(text) - 1, logged_file)] = '\0';
    fclose(logged_file);
    logged_file = NULL;
    return text;
}

/* If a failed check ends the program inside log_of, prints the redirected lines, which include the check's message. */
static void logged_show(void)
{
    if (logged_file != NULL)
        fputs(logged_end(), stderr);
}

/* Runs part(). It must call gdr_open or the process's first gdrx_attach, because these calls read the log's settings.
   Returns the log's lines of this level, "1" (debug) to "4" (errors), and of more severe levels. The text is valid
   until the next call. */
static inline const char *log_of(void (*part)(void), const char *level)
{
    static int registered;

    if (!registered++)
        CHECK(atexit(logged_show) == 0);
    setenv("GDRCOPY_ENABLE_LOGGING", "1", 1);
    setenv("GDRCOPY_LOG_LEVEL", level, 1);
    logged_stderr = dup(STDERR_FILENO);
    CHECK(logged_stderr >= 0);
    logged_file = tmpfile();
    CHECK(logged_file != NULL);
    CHECK(dup2(fileno(logged_file), STDERR_FILENO) >= 0);
    part();
    const char *text = logged_end();
    unsetenv("GDRCOPY_ENABLE_LOGGING");
    unsetenv("GDRCOPY_LOG_LEVEL");
    return text;
}

/* Checks that the log contains `wanted`; or that it does not, if `contains` is 0. */
static inline void check_log(const char *file, int line, const char *function, const char *log, const char *wanted,
                             int contains)
{
    if ((strstr(log, wanted) != NULL) == contains)
        return;
    failed(file, line, function, "\"%s\" is %s the log:\n%s", wanted, contains ? "not in" : "in", log);
}
#define CHECK_LOGGED(log, wanted) check_log(HERE, log, wanted, 1)
#define CHECK_NOT_LOGGED(log, text) check_log(HERE, log, text, 0)

#endif
