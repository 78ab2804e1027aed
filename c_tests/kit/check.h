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

/* The exit status of a program that cannot test anything here, and prints the reason. kselftest has the same status. */
#define WAIVED 4

/* The place of a check. Each function below gets it as its first three arguments. */
#define HERE __FILE__, __LINE__, __func__

/* Check that a call that returns 0 or an errno succeeds, or fails with exactly this errno. */
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

/* Prints "ok NAME", and returns the exit status. Every main() ends with this. */
int passed(const char *name);

/* Ends the program as waived. The exit closes everything that is open. */
void waive(const char *reason) __attribute__((noreturn));

/* The name of the running test, if that is not the program's name. */
extern const char *running_test;

/* Returns how many times slower than usual this program runs. tests/c_programs.rs sets more than 1 under valgrind. */
long slowness(void);

/* Returns a number of repetitions: the usual one, or fewer if this program is slow. */
long rounds(long usual);

/* Returns whether the program runs without this system call. tests/c_programs.rs sets it. */
int is_denied(const char *call);

/* Returns whether libgdrapi is the one of c_tests/another, which checks nothing. tests/c_programs.rs sets it. */
int is_another_library(void);

/* Runs part of a test in a forked child. If the child fails or is waived, so is this program. */
void in_child(void (*part)(void));
/* Starts a child as in_child() does, and does not wait for it. */
pid_t start_child(void (*part)(void));
/* Waits for the end of a child, as in_child() does. */
void finish_child(pid_t child);

/* Sends a byte, which signals that a step is done, or that the next one may start. */
void say(int pipe);
/* Waits for a byte. Fails if the other process has ended, if this one has closed its copy of the writing end. */
void await(int pipe);

/* Runs part of a test in another thread. */
void in_thread(void *(*part)(void *), void *argument);
pthread_t start_thread(void *(*part)(void *), void *argument);
void finish_thread(pthread_t thread);

/* Returns the text of a file, at most 64 KiB, which is valid until the next call. */
const char *file_text(const char *path);
/* Writes to a file that exists, by one write. */
void write_text(const char *path, const char *text);

/* Returns the number of open file descriptors. */
int open_descriptors(void);

/* Sets a soft limit, but at most to the hard limit, and returns the soft limit before. */
rlim_t set_limit(int resource, rlim_t soft);

/* Returns the number of page tables that gdrdrv has pinned, in all processes, or -1 if it cannot be read. */
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
