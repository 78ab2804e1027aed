/* Tests whether memory can be accessed, by accessing it. */
#ifndef FAULT_H
#define FAULT_H

#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the signal that a read of one byte raises, or 0. valgrind.supp has the name of this function, so that
   valgrind does not report the read. */
int fault_at(const volatile void *address);

/* Reads one byte into *value, and returns the signal that this raises, or 0. Call handle_faults() before. */
int touch(const volatile unsigned char *address, unsigned char *value);
/* Installs handlers of SIGSEGV and SIGBUS for touch(). Faults outside of touch() still end the program. */
void handle_faults(void);

/* ---- Code that may fault, other than fault_at() and touch() ---- */

/* The handlers that SIGSEGV and SIGBUS had before catch_faults(). */
struct fault_handlers {
    struct sigaction segv, bus;
};

/* From now on until release_faults(), a fault of this thread jumps to where it called sigsetjmp(fault_return, ...).
   Returns the old handlers. */
struct fault_handlers catch_faults(void);
void release_faults(const struct fault_handlers *old);
extern __thread sigjmp_buf fault_return;

/* ---- Checks ---- */

#define CHECK_READABLE(address) CHECK_EQUAL(fault_at(address), 0)
/* Checks that nothing can be accessed at the address, but that it is still reserved, so that no other memory is mapped
   where stale pointers point. */
#define CHECK_GONE(address)                                                                                            \
    do {                                                                                                               \
        CHECK_EQUAL(fault_at(address), SIGSEGV);                                                                       \
        CHECK(is_reserved(address));                                                                                   \
    } while (0)
/* Checks that the driver has taken away the memory of a mapping. */
#define CHECK_REVOKED(address) CHECK_EQUAL(fault_at(address), SIGBUS)
/* Checks that nothing is mapped at the address. */
#define CHECK_UNMAPPED(address)                                                                                        \
    do {                                                                                                               \
        CHECK_EQUAL(fault_at(address), SIGSEGV);                                                                       \
        CHECK(!is_reserved(address));                                                                                  \
    } while (0)

/* Checks that an access to any page of the range raises SIGBUS. handle_faults() must have been called. */
#define CHECK_PAGES_GONE(va, size) check_pages(HERE, va, size, SIGBUS, 0)
/* Checks that the first byte of every page of the range has this value. */
#define CHECK_PAGES(va, size, value) check_pages(HERE, va, size, 0, value)
void check_pages(const char *file, int line, const char *function, const unsigned char *va, size_t size, int signal,
                 unsigned char value);

void *host_page_of(const void *address);

/* Returns whether there is a mapping of any kind at the address. */
int is_reserved(const void *address);

/* Checks that the kernel places a new mapping elsewhere, even with this address as a hint. */
void check_new_mappings_avoid(const void *address);

#ifdef __cplusplus
}
#endif

#endif
