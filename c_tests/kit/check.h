/*
 * Checks for the C tests. A failed check prints its place and function, the expression and both values on stderr, and
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

/* The exit status of a program that cannot test anything on this system. Linux's kselftest uses 4 for this, too. */
#define WAIVED 4

/* The place of a check in the source code, as the first three arguments of each function that checks. */
#define HERE __FILE__, __LINE__, __func__

/* These check a call that returns 0 or an errno. CHECK_OK expects 0, and CHECK_ERROR expects the errno `wanted`. */
#define CHECK_OK(call) check_result(HERE, #call, (call), 0)
#define CHECK_ERROR(call, wanted) check_result(HERE, #call, (call), (wanted))

#define CHECK(condition) check_condition(HERE, #condition, (condition) != 0)
#define CHECK_EQUAL(got, wanted) check_equal(HERE, #got, (unsigned long long)(got), (unsigned long long)(wanted))
/* Compares two numbers: CHECK_COMPARE(count, <, most). */
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

/* Prints "ok NAME", and returns the exit status 0. Every main() ends with a call of this function. */
int passed(const char *name);

/* Prints the reason, and ends the program with the status WAIVED. The caller need not close anything before. */
void waive(const char *reason) __attribute__((noreturn));

/* The name of the running test, which waive() prints. If it is NULL, waive() prints the name of the program. */
extern const char *running_test;

/* Returns the factor by which the program must make fewer repetitions than usual, and wait longer than usual.
   tests/c_programs.rs sets it, for example to 100 under valgrind. */
long slowness(void);

/* Returns the usual number of repetitions divided by slowness(), but at least 1. */
long rounds(long usual);

/* Returns whether this system call fails with EPERM or ENOSYS, because tests/c_programs.rs has denied it. */
int is_denied(const char *call);

/* Returns whether tests/c_programs.rs runs the program with c_tests/another, a libgdrapi that checks no handles. */
int is_another_library(void);

/* Runs part of a test in a forked child. If the child fails or is waived, this program fails or is waived, too. */
void in_child(void (*part)(void));
/* Runs part of a test in a forked child, and does not wait for the child. */
pid_t start_child(void (*part)(void));
/* Waits until a child ends. If the child has failed or is waived, this program fails or is waived, too. */
void finish_child(pid_t child);

/* Writes a byte to a pipe, to signal another process that a step of the test is done. */
void say(int pipe);
/* Waits for a byte that another process writes by say(). Fails if that process ends, provided that this process has
   closed its own writing end of the pipe. */
void await(int pipe);

/* Runs part of a test in another thread. */
void in_thread(void *(*part)(void *), void *argument);
pthread_t start_thread(void *(*part)(void *), void *argument);
void finish_thread(pthread_t thread);

/* Returns the text of a file, at most 64 KiB, which is valid until the next call. */
const char *file_text(const char *path);
/* Writes the text to an existing file by a single write(). */
void write_text(const char *path, const char *text);

/* Returns the number of open file descriptors. */
int open_descriptors(void);

/* Sets the soft limit of a resource, but at most to the hard limit, and returns the previous soft limit. */
rlim_t set_limit(int resource, rlim_t soft);

/* Returns how many pins of all processes gdrdrv holds (one page table of the GPU driver per pin), or -1 if the number
   cannot be read. */
long all_page_tables(void);

/* ---- Programs whose tests can be run by name ---- */

/* Defines a test: TEST(name) { ... } */
#define TEST(test)                                                                                                     \
    static void test(void);                                                                                            \
    __attribute__((constructor)) static void add_##test(void)                                                          \
    {                                                                                                                  \
        add_test(#test, test);                                                                                         \
    }                                                                                                                  \
    static void test(void)

void add_test(const char *name, void (*run)(void));

/* The tests that TEST has defined, in the order in which the files are linked and in which each file defines them. */
extern struct named_test {
    const char *name;
    void (*run)(void);
} all_tests[128];
extern int tests_count;

#ifdef __cplusplus
}
#endif

#endif
