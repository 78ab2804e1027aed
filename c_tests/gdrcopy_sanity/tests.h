/* The tests of gdrcopy_sanity. */
#ifndef SANITY_TESTS_H
#define SANITY_TESTS_H

#include "bodies.h"

/*
 * A test returns if it passed, exits with 1 if a check failed, and with WAIVED if it cannot test anything here. It
 * runs in its own process, in which CUDA was not initialized before.
 */
struct test {
    const char *name;
    enum {
        ONE_KIND,  /* the test runs only for memory of cuMemAlloc, and its name has no suffix */
        BOTH_KINDS /* runs for each kind of memory, which is the suffix of its name */
    } variants;
    void (*run)(enum gpu_memory kind);
    /* Called instead of `run` if `pin` is set. */
    void (*run_with)(enum gpu_memory kind, pin_function *pin);
    pin_function *pin;
    int extended; /* run only with -e or by name */
};

extern const struct test tests[]; /* in the order of their runs; a name of NULL ends the list */

#endif
