/* The main function of programs with several tests. `program NAME [ARGUMENT ...]` runs one test. `program` runs all,
   each in a process of its own. */
#ifndef TESTS_H
#define TESTS_H

#include "kit/check.h"

/* The arguments after the test's name on the command line. */
static char **arguments;

int main(int argc, char **argv)
{
    int ran = 0;

    arguments = argv + (argc > 1 ? 2 : 1);
    for (int i = 0; i < tests_count; i++) {
        if (argc == 1)
            in_child(all_tests[i].run);
        else if (strcmp(argv[1], all_tests[i].name) == 0)
            all_tests[i].run();
        else
            continue;
        ran += passed(all_tests[i].name) == 0;
    }
    CHECK(ran > 0); /* This fails if there is no test of that name. */
    return 0;
}

#endif
