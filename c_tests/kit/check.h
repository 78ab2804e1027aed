/*
 * Checks for the C tests. A failed check prints its place, function, what was compared and both values on stderr, and
 * ends the program with status 1. A program whose checks all pass prints one line, "ok NAME".
 */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exit status of a program that cannot test anything here, for the reason it prints. As in kselftest. */
#define WAIVED 4

/* The place of a check, the first arguments of each function below. */
#define HERE __FILE__, __LINE__, __func__

/* Calls of gdr_*, which succeed, or fail with exactly that errno. */
#define CHECK_OK(call) check_result(HERE, #call, (call), 0)
#define CHECK_ERROR(call, wanted) check_result(HERE, #call, (call), (wanted))

#define CHECK(condition) check_condition(HERE, #condition, (condition) != 0)
#define CHECK_EQUAL(got, wanted) check_equal(HERE, #got, (unsigned long long)(got), (unsigned long long)(wanted))
/* CHECK_COMPARE(count, <, most), of numbers. */
#define CHECK_COMPARE(got, relation, bound)                                                                            \
    do {                                                                                                               \
        long long got_ = (long long)(got), bound_ = (long long)(bound);                                                \
        if (!(got_ relation bound_))                                                                                   \
            failed(HERE, "%s is %lld, not %s %lld", #got, got_, #relation, bound_);                                    \
    } while (0)
#define CHECK_STRING(got, wanted) check_string(HERE, #got, (got), (wanted))
#define CHECK_BYTES(got, wanted, size) check_bytes(HERE, #got, (got), (wanted), (size))

/* Prints `FILE:LINE: FUNCTION: MESSAGE`, and ends the program. */
void failed(const char *file, int line, const char *function, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

void check_result(const char *file, int line, const char *function, const char *call, int got, int wanted);

void check_condition(const char *file, int line, const char *function, const char *condition, int holds);

void check_equal(const char *file, int line, const char *function, const char *what, unsigned long long got,
                 unsigned long long wanted);

void check_string(const char *file, int line, const char *function, const char *what, const char *got,
                  const char *wanted);

void check_bytes(const char *file, int line, const char *function, const char *what, const void *got,
                 const void *wanted, size_t size);

/* Every main() ends with this. */
int passed(const char *name);

/* Ends the program as waived. The exit closes whatever is open. */
void waive(const char *reason) __attribute__((noreturn));

/* The name of the running test where it is not the program's. */
extern const char *running_test;

/* How much slower than usual this program runs, more than 1 under valgrind, as tests/c_programs.rs sets it. */
long slowness(void);

/* Number of repetitions, reduced on slow systems. */
long rounds(long usual);

/* Returns whether the program runs without this system call, as tests/c_programs.rs sets it. */
int is_denied(const char *call);

/* Returns whether the libgdrapi is c_tests/another, which checks nothing, as tests/c_programs.rs sets it. */
int is_another_library(void);

/* Runs part of a test in a forked child, whose failed checks fail this program too. If it is waived, so is this. */
void in_child(void (*part)(void));
/* Start the child, and wait for its end, as in_child() does in one step. */
pid_t start_child(void (*part)(void));
void finish_child(pid_t child);

/* One byte signals that a step is done, or that the next one may start. */
void say(int pipe);
/* Fails if the other process has ended, so each must close its copy of the end that the other writes to. */
void await(int pipe);

/* Runs part of a test in another thread. */
void in_thread(void *(*part)(void *), void *argument);
pthread_t start_thread(void *(*part)(void *), void *argument);
void finish_thread(pthread_t thread);

/* The text of a file, at most 64 KiB, until the next call. */
const char *file_text(const char *path);
/* Writes to a file that exists, by one write. */
void write_text(const char *path, const char *text);

/* Number of open file descriptors. */
int open_descriptors(void);

/* Sets a soft limit, to at most the hard one, and returns the limit that it replaced. */
rlim_t set_limit(int resource, rlim_t soft);

/* Number of page tables that gdrdrv has pinned, in all processes, or -1 if it cannot be read. */
long all_page_tables(void);

/* ---- Programs whose tests can be run by name ---- */

/* TEST(name) { ... } */
#define TEST(test)                                                                                                     \
    static void test(void);                                                                                            \
    __attribute__((constructor)) static void add_##test(void)                                                          \
    {                                                                                                                  \
        add_test(#test, test);                                                                                         \
    }                                                                                                                  \
    static void test(void)

void add_test(const char *name, void (*run)(void));

/* The tests of all files, in the order of the files and of the tests in them. */
extern struct named_test {
    const char *name;
    void (*run)(void);
} all_tests[128];
extern int tests_count;

#ifdef __cplusplus
}
#endif

#endif
