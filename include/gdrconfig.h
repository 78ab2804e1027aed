/*
 * gdrconfig.h: architecture and page size of the host, for programs that
 * include it because NVIDIA's GDRCopy installs a header of this name. gdrapi.h
 * does not need it. The two may be included in any order.
 */

#ifndef GDRCONFIG_H
#define GDRCONFIG_H

/* Exactly one of these is defined, as 1. */
#if defined(__x86_64__)
#define GDRAPI_X86 1
#elif defined(__aarch64__)
#define GDRAPI_ARM64 1
#elif defined(__powerpc64__)
#define GDRAPI_POWER 1
#endif

/*
 * The page size of the host, not of the GPU (GPU_PAGE_SIZE in gdrapi.h). Only
 * x86-64 has one page size. Elsewhere the host's kernel decides, so these macros
 * are not constants there. System headers may have defined them.
 */
#if defined(__x86_64__)
#ifndef PAGE_SHIFT
#define PAGE_SHIFT 12
#endif
#ifndef PAGE_SIZE
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#endif
#else
#include <unistd.h>
#ifndef PAGE_SIZE
#define PAGE_SIZE ((unsigned long)sysconf(_SC_PAGESIZE))
#endif
#ifndef PAGE_SHIFT
#define PAGE_SHIFT __builtin_ctzl(PAGE_SIZE)
#endif
#endif
#ifndef PAGE_MASK
#define PAGE_MASK (~(PAGE_SIZE-1)) /* spelled as in <sys/user.h> */
#endif

#endif
