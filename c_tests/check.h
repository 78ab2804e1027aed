/*
 * Checks for the C tests. A failed check prints its place, what was compared and both values on stderr, and ends the
 * program with status 1. A program whose checks all pass prints one line, "ok NAME".
 */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit status of a program that cannot test anything here, for the reason it prints. */
#define WAIVED 2

/* Calls of gdr_*: succeeded, or failed with exactly that errno. */
#define CHECK_OK(call) check_result(__FILE__, __LINE__, #call, (call), 0)
#define CHECK_ERROR(call, wanted) check_result(__FILE__, __LINE__, #call, (call), (wanted))

#define CHECK(condition) check_condition(__FILE__, __LINE__, #condition, (condition) != 0)
#define CHECK_EQUAL(got, wanted) check_equal(__FILE__, __LINE__, #got, (unsigned long long)(got), (unsigned long long)(wanted))
#define CHECK_STRING(got, wanted) check_string(__FILE__, __LINE__, #got, (got), (wanted))
#define CHECK_BYTES(got, wanted, size) check_bytes(__FILE__, __LINE__, #got, (got), (wanted), (size))

static inline void check_result(const char *file, int line, const char *call, int got, int wanted)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s:%d: %s is %d (%s), not %d (%s)\n", file, line, call, got, strerror(got), wanted,
            strerror(wanted));
    exit(1);
}

static inline void check_condition(const char *file, int line, const char *condition, int holds)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: not true: %s (errno %d)\n", file, line, condition, errno);
    exit(1);
}

static inline void check_equal(const char *file, int line, const char *what, unsigned long long got,
                               unsigned long long wanted)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s:%d: %s is %#llx, not %#llx\n", file, line, what, got, wanted);
    exit(1);
}

static inline void check_string(const char *file, int line, const char *what, const char *got, const char *wanted)
{
    if (got != NULL && strcmp(got, wanted) == 0)
        return;
    fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", file, line, what, got != NULL ? got : "(null)", wanted);
    exit(1);
}

static inline void check_bytes(const char *file, int line, const char *what, const void *got, const void *wanted,
                               size_t size)
{
    const unsigned char *g = (const unsigned char *)got, *w = (const unsigned char *)wanted;
    size_t i = 0;

    if (memcmp(g, w, size) == 0)
        return;
    while (g[i] == w[i])
        i++;
    fprintf(stderr, "%s:%d: byte %zu of %zu of %s is %#x, not %#x\n", file, line, i, size, what, g[i], w[i]);
    exit(1);
}

/* Every main() ends with this. */
static inline int passed(const char *name)
{
    printf("ok %s\n", name);
    return 0;
}

static inline void waive(const char *name, const char *reason)
{
    printf("waived %s: %s\n", name, reason);
    exit(WAIVED);
}

/* How much slower than usual this program runs: more than 1 under valgrind, as tests/c_programs.rs sets it. */
static inline long slowness(void)
{
    const char *set = getenv("CHECK_SLOWNESS");

    return set != NULL && atol(set) > 1 ? atol(set) : 1;
}

/* Number of repetitions, reduced on slow systems. */
static inline long rounds(long usual)
{
    long fewer = usual / slowness();

    return fewer > 0 ? fewer : 1;
}

/* Whether the program runs without this system call, as tests/c_programs.rs sets it. */
static inline int is_denied(const char *call)
{
    const char *denied = getenv("CHECK_DENIED");

    return denied != NULL && strcmp(denied, call) == 0;
}

/* Whether the libgdrapi is c_tests/another, which checks nothing, as tests/c_programs.rs sets it. */
static inline int is_another_library(void)
{
    return getenv("CHECK_ANOTHER") != NULL;
}

/* Runs part of a test in a forked child, whose failed checks fail this program too. */
static inline void in_child(void (*part)(void))
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        part();
        fflush(NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_EQUAL(WEXITSTATUS(status), 0);
}

/* Number of open file descriptors. */
static inline int open_descriptors(void)
{
    int open = 0, fd;

    for (fd = 0; fd < 1024; fd++) {
        int copy = dup(fd);

        if (copy >= 0) {
            open++;
            close(copy);
        }
    }
    return open;
}

#endif
