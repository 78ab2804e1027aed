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

/* The signal that a read of one byte raises, or 0. valgrind.supp knows this function by name. */
int fault_at(const volatile void *address);

/* The same from any thread, after handle_faults(), and with the value. Faults elsewhere then end the program. */
int touch(const volatile unsigned char *address, unsigned char *value);
void handle_faults(void);

/* ---- Other code that may fault ---- */

/* The handlers that the signals had before. */
struct fault_handlers {
    struct sigaction segv, bus;
};

/* Between begin and end, faults of this thread return to its sigsetjmp of fault_return. */
struct fault_handlers catch_faults(void);
void release_faults(const struct fault_handlers *old);
extern __thread sigjmp_buf fault_return;

/* ---- Checks ---- */

#define CHECK_READABLE(address) CHECK_EQUAL(fault_at(address), 0)
/* The library has removed the mapping while pointers into it may remain, and has reserved its range. */
#define CHECK_GONE(address)                                                                                            \
    do {                                                                                                               \
        CHECK_EQUAL(fault_at(address), SIGSEGV);                                                                       \
        CHECK(is_reserved(address));                                                                                   \
    } while (0)
/* The driver has taken the memory of the mapping away. */
#define CHECK_REVOKED(address) CHECK_EQUAL(fault_at(address), SIGBUS)
/* Nothing is mapped there. */
#define CHECK_UNMAPPED(address)                                                                                        \
    do {                                                                                                               \
        CHECK_EQUAL(fault_at(address), SIGSEGV);                                                                       \
        CHECK(!is_reserved(address));                                                                                  \
    } while (0)

/* Every page of the range raises SIGBUS. After handle_faults(). */
#define CHECK_PAGES_GONE(va, size) check_pages(HERE, va, size, SIGBUS, 0)
/* Every page of the range starts with this value. */
#define CHECK_PAGES(va, size, value) check_pages(HERE, va, size, 0, value)
void check_pages(const char *file, int line, const char *function, const unsigned char *va, size_t size, int signal,
                 unsigned char value);

void *host_page_of(const void *address);

/* Returns whether there is a mapping of any kind at that address. */
int is_reserved(const void *address);

/* The kernel places a new mapping elsewhere, even with a hint at this address. */
void check_new_mappings_avoid(const void *address);

#ifdef __cplusplus
}
#endif

#endif
