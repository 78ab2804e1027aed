/* Runs tests, each in its own process, and records their results. */
#ifndef SANITY_RUNNER_H
#define SANITY_RUNNER_H

#include "test.h"

enum verdict { PASSED, FAILED, NOT_APPLICABLE };

/* A test for one kind of memory. */
struct run {
    const char *name; /* with the memory kind, if the test has several */
    const struct test *test;
    enum gpu_memory kind;
    enum verdict verdict;
};

/* Runs the test and sets its verdict. A crash, a signal or a hang fails only this test. */
void run_in_child(struct run *run);

/* Prints the counts, then the names for each count that is not 0. */
void print_summary(const struct run *runs, size_t count);

#endif
