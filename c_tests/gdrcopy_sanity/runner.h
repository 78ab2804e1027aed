/* Runs tests, each in a process of its own, and remembers how they ended. */
#ifndef SANITY_RUNNER_H
#define SANITY_RUNNER_H

#include "test.h"

enum verdict { PASSED, FAILED, NOT_APPLICABLE };

/* A test for one kind of memory. */
struct run {
    const char *name; /* with the kind, where there are several */
    const struct test *test;
    enum memory_kind kind;
    enum verdict verdict;
};

/* Runs it and sets its verdict. A crash, a signal and a hang are failures of this test alone. */
void run_in_child(struct run *run);

/* Prints the counts, then the names behind each count that is not 0. */
void print_summary(const struct run *runs, size_t count);

#endif
