/* Shared by the tests of invalidation. */
#ifndef SANITY_INVALIDATION_H
#define SANITY_INVALIDATION_H

#include "buffer.h"

/*
 * An access to the first byte, to the last, or to one in the middle raises the signal. It is SIGBUS where a
 * mapping was taken away from its owner, SIGSEGV where there is none.
 */
void check_untouchable(const unsigned char *va, size_t size, int signal);

/*
 * CUDA has freed the memory of a mapped buffer. If persistent, it still holds put_pattern's `seed` and can be
 * used. Otherwise the callback flag is set and the mapping faults.
 */
void check_freed_under(const struct buffer *buffer, unsigned seed);

#endif
