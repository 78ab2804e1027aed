/* Tests whether memory can be accessed, by accessing it. */
#ifndef FAULT_H
#define FAULT_H

#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

static sigjmp_buf fault_return;

static void fault_handler(int signal)
{
    siglongjmp(fault_return, signal);
}

/* How the signals were handled before. */
struct fault_handlers {
    struct sigaction segv, bus;
};

/* Between the two, faults return to the sigsetjmp of fault_return. */
static inline struct fault_handlers catch_faults(void)
{
    struct fault_handlers old;
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_handler = fault_handler;
    sigaction(SIGSEGV, &action, &old.segv);
    sigaction(SIGBUS, &action, &old.bus);
    return old;
}

static inline void release_faults(const struct fault_handlers *old)
{
    sigaction(SIGSEGV, &old->segv, NULL);
    sigaction(SIGBUS, &old->bus, NULL);
}

/* The signal that a read of one byte at `address` raises, or 0. valgrind.supp knows this function by name. */
__attribute__((noinline, unused, no_sanitize("address"))) static int fault_at(const volatile void *address)
{
    struct fault_handlers old = catch_faults();
    int signal = sigsetjmp(fault_return, 1);

    if (signal == 0)
        (void)*(const volatile unsigned char *)address;
    release_faults(&old);
    return signal;
}

#define CHECK_READABLE(address) CHECK_EQUAL(fault_at(address), 0)
/* The mapping was removed while pointers into it may remain: its range faults, and no other mapping gets it. */
#define CHECK_GONE(address) CHECK_EQUAL(fault_at(address), GONE)
/* What it raises then: SIGBUS, if the library can make an empty file for it. */
#define GONE (is_denied("memfd_create") ? SIGSEGV : SIGBUS)
/* Nothing is mapped there. */
#define CHECK_UNMAPPED(address)                                                                                        \
    do {                                                                                                               \
        CHECK_EQUAL(fault_at(address), SIGSEGV);                                                                       \
        CHECK(!is_reserved(address));                                                                                  \
    } while (0)

static inline void *host_page_of(const void *address)
{
    return (void *)((uintptr_t)address / (uintptr_t)sysconf(_SC_PAGESIZE) * (uintptr_t)sysconf(_SC_PAGESIZE));
}

/* Whether there is a mapping of any kind at that address. */
static inline int is_reserved(const void *address)
{
    return msync(host_page_of(address), 1, MS_ASYNC) == 0 || errno != ENOMEM;
}

/* The kernel places a new mapping elsewhere, even with a hint at this address. */
static inline void check_new_mappings_avoid(const void *address)
{
    void *memory = mmap(host_page_of(address), 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    CHECK(memory != host_page_of(address));
    CHECK(munmap(memory, 1) == 0);
}

#endif
