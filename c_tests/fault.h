/*
 * Whether memory can be touched, tried out.
 */
#ifndef FAULT_H
#define FAULT_H

#include "check.h"

#include <setjmp.h>
#include <signal.h>

static sigjmp_buf fault_return;

static void fault_handler(int signal)
{
    siglongjmp(fault_return, signal);
}

/* The signal that a read of one byte at `address` raises, or 0. valgrind.supp knows this function by name. */
__attribute__((noinline, no_sanitize("address"))) static int fault_at(const volatile void *address)
{
    struct sigaction catch, old_segv, old_bus;
    int signal;

    memset(&catch, 0, sizeof(catch));
    catch.sa_handler = fault_handler;
    sigaction(SIGSEGV, &catch, &old_segv);
    sigaction(SIGBUS, &catch, &old_bus);
    signal = sigsetjmp(fault_return, 1);
    if (signal == 0)
        (void)*(const volatile unsigned char *)address;
    sigaction(SIGSEGV, &old_segv, NULL);
    sigaction(SIGBUS, &old_bus, NULL);
    return signal;
}

#define CHECK_READABLE(address) CHECK_EQUAL(fault_at(address), 0)
#define CHECK_FAULTS(address) CHECK(fault_at(address) != 0)

#endif
