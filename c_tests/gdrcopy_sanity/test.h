/*
 * What a test is. Each topic has a file of tests, which ends with its table; tables.h names them all.
 */
#ifndef SANITY_TEST_H
#define SANITY_TEST_H

#include "check.h"

/* Where a test's GPU memory comes from. */
enum memory_kind {
    CUMEMALLOC, /* cuMemAlloc */
    VMMALLOC    /* cuMemCreate and cuMemMap */
};

enum test_variants {
    ONE_KIND, /* cuMemAlloc alone; named as it stands */
    BOTH_KINDS /* run for each kind of memory, which the name then ends with */
};

/*
 * A test returns if it passed, exits with 1 if a check failed, and with WAIVED if it can prove nothing here. It runs
 * in a process of its own, in which CUDA was not initialized yet.
 */
struct test {
    const char *name;
    void (*run)(enum memory_kind kind);
    enum test_variants variants;
    int extended; /* run only when asked for */
};

/* The end of every table. */
#define END_OF_TESTS {NULL, NULL, ONE_KIND, 0}

/* ---- What the command line says, for tests ---- */

/* The GPU to use. */
extern int option_gpu;
extern int option_verbose;
/* The full name of the running test. */
extern const char *running_test;

/* Prints a line that tells what is going on, with -v. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the test as waived, for the reason that it prints. What is open then ends with the process. */
void waive_test(const char *reason) __attribute__((noreturn));

#endif
