/* Definition of a test. Each topic has a file of tests, which ends with its table; tables.h declares all tables. */
#ifndef SANITY_TEST_H
#define SANITY_TEST_H

#include "check.h"

/* Where a test's GPU memory comes from. */
enum memory_kind {
    CUMEMALLOC, /* cuMemAlloc */
    VMMALLOC    /* cuMemCreate and cuMemMap */
};

enum test_variants {
    ONE_KIND, /* only cuMemAlloc; no suffix */
    BOTH_KINDS /* run for each kind of memory, which is the suffix of the name */
};

/*
 * A test returns if it passed, exits with 1 if a check failed, and with WAIVED if it cannot test anything here. It
 * runs in its own process, in which CUDA was not initialized before.
 */
struct test {
    const char *name;
    void (*run)(enum memory_kind kind);
    enum test_variants variants;
    int extended; /* run only with -e or by name */
};

/* Ends every table. */
#define END_OF_TESTS {NULL, NULL, ONE_KIND, 0}

/* ---- Options, for tests ---- */

/* The GPU to use. */
extern int option_gpu;
extern int option_verbose;
/* The full name of the running test. */
extern const char *running_test;

/* With -v, prints a line about what the test does. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the test as waived, and prints the reason. The exit closes whatever is open. */
void waive_test(const char *reason) __attribute__((noreturn));

#endif
