/* Definition of a test. Each topic has a file of tests, which ends with its table; tables.h declares all tables. */
#ifndef SANITY_TEST_H
#define SANITY_TEST_H

#include "kit/library.h"

enum test_variants {
    ONE_KIND,  /* only cuMemAlloc; no suffix */
    BOTH_KINDS /* run for each kind of memory, which is the suffix of the name */
};

/*
 * A test returns if it passed, exits with 1 if a check failed, and with WAIVED if it cannot test anything here. It
 * runs in its own process, in which CUDA was not initialized before.
 */
struct test {
    const char *name;
    void (*run)(enum gpu_memory kind);
    enum test_variants variants;
    int extended; /* run only with -e or by name */
};

/* Ends every table. */
#define END_OF_TESTS {NULL, NULL, ONE_KIND, 0}

extern int option_verbose;

/* With -v, prints a line about what the test does. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
