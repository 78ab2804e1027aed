#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* declares program_invocation_short_name */
#endif

#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>

const char *running_test;

void failed(const char *file, int line, const char *function, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s:%d: %s: ", file, line, function);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void check_result(const char *file, int line, const char *function, const char *call, int got, int wanted)
{
    if (got == wanted)
        return;
    failed(file, line, function, "%s is %d (%s), not %d (%s)", call, got, strerror(got), wanted, strerror(wanted));
}

void check_condition(const char *file, int line, const char *function, const char *condition, int holds)
{
    if (holds)
        return;
    failed(file, line, function, "not true: %s (errno %d)", condition, errno);
}

void check_equal(const char *file, int line, const char *function, const char *what, unsigned long long got,
                 unsigned long long wanted)
{
    if (got == wanted)
        return;
    failed(file, line, function, "%s is %#llx, not %#llx", what, got, wanted);
}

void check_string(const char *file, int line, const char *function, const char *what, const char *got,
                  const char *wanted)
{
    if (got != NULL && strcmp(got, wanted) == 0)
        return;
    failed(file, line, function, "%s is \"%s\", not \"%s\"", what, got != NULL ? got : "(null)", wanted);
}

void check_bytes(const char *file, int line, const char *function, const char *what, const void *got,
                 const void *wanted, size_t size)
{
    const unsigned char *g = (const unsigned char *)got, *w = (const unsigned char *)wanted;
    size_t i = 0;

    if (memcmp(g, w, size) == 0)
        return;
    while (g[i] == w[i])
        i++;
    failed(file, line, function, "byte %zu of %zu of %s is %#x, not %#x", i, size, what, g[i], w[i]);
}

int passed(const char *name)
{
    printf("ok %s\n", name);
    return 0;
}

void waive(const char *reason)
{
    printf("waived %s: %s\n", running_test != NULL ? running_test : program_invocation_short_name, reason);
    fflush(NULL);
    _exit(WAIVED);
}

long slowness(void)
{
    const char *set = getenv("CHECK_SLOWNESS");

    return set != NULL && atol(set) > 1 ? atol(set) : 1;
}

long rounds(long usual)
{
    long fewer = usual / slowness();

    return fewer > 0 ? fewer : 1;
}

int is_denied(const char *call)
{
    const char *denied = getenv("CHECK_DENIED");

    return denied != NULL && strcmp(denied, call) == 0;
}

int is_another_library(void)
{
    return getenv("CHECK_ANOTHER") != NULL;
}

void in_child(void (*part)(void))
{
    finish_child(start_child(part));
}

pid_t start_child(void (*part)(void))
{
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        part();
        fflush(NULL);
        _exit(0);
    }
    return child;
}

void finish_child(pid_t child)
{
    int status;

    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == WAIVED)
        _exit(WAIVED);
    CHECK_EQUAL(WEXITSTATUS(status), 0);
}

void in_thread(void *(*part)(void *), void *argument)
{
    finish_thread(start_thread(part, argument));
}

pthread_t start_thread(void *(*part)(void *), void *argument)
{
    pthread_t thread;

    CHECK_OK(pthread_create(&thread, NULL, part, argument));
    return thread;
}

void finish_thread(pthread_t thread)
{
    CHECK_OK(pthread_join(thread, NULL));
}

const char *file_text(const char *path)
{
    static char text[64 << 10];
    FILE *file = fopen(path, "r");

    CHECK(file != NULL);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    CHECK(fclose(file) == 0);
    return text;
}

void write_text(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CLOEXEC);

    CHECK(file >= 0);
    CHECK(write(file, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(close(file) == 0);
}

int open_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = -1; /* the directory's own descriptor does not count */
    struct dirent *entry;

    CHECK(directory != NULL);
    while ((entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

rlim_t set_limit(int resource, rlim_t soft)
{
    struct rlimit limit;

    CHECK(getrlimit(resource, &limit) == 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
    CHECK(setrlimit(resource, &limit) == 0);
    return before;
}

long all_page_tables(void)
{
    static int file = -1;
    char count[24] = "";

    if (file < 0)
        file = open("/proc/driver/gdrdrv/nv_get_pages_refcount", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    CHECK(pread(file, count, sizeof(count) - 1, 0) > 0);
    return atol(count);
}

void say(int pipe)
{
    CHECK(write(pipe, "", 1) == 1);
}

void await(int pipe)
{
    char byte;

    CHECK(read(pipe, &byte, 1) == 1);
}

struct named_test all_tests[128];
int tests_count;

void add_test(const char *name, void (*run)(void))
{
    CHECK_COMPARE(tests_count, <, 128);
    all_tests[tests_count].name = name;
    all_tests[tests_count++].run = run;
}
