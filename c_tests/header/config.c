/*
 * Checks gdrconfig.h in C99 and C++, with nothing included before it, and gdrapi.h after it. The macros must name the
 * arch of the compiler and of the kernel, and the kernel's page size.
 */

#include "gdrconfig.h"
#ifdef GDRAPI_H
#error "gdrconfig.h must not include gdrapi.h"
#endif
#include "gdrapi.h"

#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/utsname.h>

#if defined(GDRAPI_X86) + defined(GDRAPI_ARM64) + defined(GDRAPI_POWER) != 1
#error "not exactly one arch"
#endif
#if defined(__x86_64__) && defined(GDRAPI_X86) && GDRAPI_X86 == 1
#define ARCH "x86_64"
#elif defined(__aarch64__) && defined(GDRAPI_ARM64) && GDRAPI_ARM64 == 1
#define ARCH "aarch64"
#elif defined(__powerpc64__) && defined(GDRAPI_POWER) && GDRAPI_POWER == 1
#define ARCH "ppc64le"
#else
#error "another arch than the compiler's"
#endif
#if !defined(PAGE_SHIFT) || !defined(PAGE_SIZE) || !defined(PAGE_MASK)
#error "no page size"
#endif
#ifdef __x86_64__
#if PAGE_SHIFT != 12 || PAGE_SIZE != 4096
#error "x86-64 has pages of 4 KiB"
#endif
#endif

static int check(const char *what, unsigned long got, unsigned long wanted)
{
    if (got != wanted)
        fprintf(stderr, "%s is %#lx, not %#lx\n", what, got, wanted);
    return got != wanted;
}

int main(void)
{
    unsigned long page = getauxval(AT_PAGESZ);
    struct utsname system;
    int failed = 0;

    if (uname(&system) != 0 || strcmp(system.machine, ARCH) != 0) {
        fprintf(stderr, "the header is for %s, the kernel for %s\n", ARCH, system.machine);
        failed = 1;
    }
    failed |= check("PAGE_SIZE", PAGE_SIZE, page);
    failed |= check("1 << PAGE_SHIFT", 1UL << PAGE_SHIFT, page);
    failed |= check("PAGE_MASK", PAGE_MASK, 0 - page);
    failed |= check("page of an address", (3 * page + 1) & PAGE_MASK, 3 * page);
    return failed;
}
