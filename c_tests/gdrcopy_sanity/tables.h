/* All tests, by topic. */
#ifndef SANITY_TABLES_H
#define SANITY_TABLES_H

#include "test.h"

extern const struct test basic_tests[];           /* basic.c */
extern const struct test data_validation_tests[]; /* data_validation.c */
extern const struct test mix_mappings_tests[];    /* mix_mappings.c */
extern const struct test invalidation_tests[];    /* invalidation.c */
extern const struct test fork_tests[];            /* invalidation_fork.c */
extern const struct test socket_tests[];          /* invalidation_socket.c */
extern const struct test leakage_tests[];         /* leakage.c */
extern const struct test attribute_tests[];       /* attributes.c */

#endif
