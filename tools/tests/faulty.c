/*
 * A libgdrapi that forwards every call to the library that FAULTY_BEHIND names, and corrupts copies as FAULTY selects.
 * "short" writes omit the last byte, "long" ones add a byte, "wrong" reads change the last byte, "crash", "exit" and "hang" ones do so.
 * "vanish" ends the process when it is loaded, "kill" and "illegal" by a signal.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gdrapi.h"

static void *behind(const char *function)
{
    static void *library;

    if (library == NULL)
        library = dlopen(getenv("FAULTY_BEHIND"), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        abort();
    return dlsym(library, function);
}

/* The function of that library which has the name of this one. */
#define BEHIND(function) ((__typeof__(&function))behind(#function))

static int faulty(const char *how)
{
    return strcmp(getenv("FAULTY"), how) == 0;
}

__attribute__((constructor)) static void vanish(void)
{
    if (getenv("FAULTY") == NULL)
        return;
    if (faulty("vanish"))
        exit(0);
    if (faulty("kill"))
        raise(SIGKILL);
    if (faulty("illegal"))
        raise(SIGILL);
}

#define FORWARDED(type, name, parameters, arguments)                                                                   \
    type name parameters                                                                                               \
    {                                                                                                                  \
        return BEHIND(name) arguments;                                                                                 \
    }

FORWARDED(gdr_t, gdr_open, (void), ())
FORWARDED(int, gdr_close, (gdr_t g), (g))
FORWARDED(int, gdr_pin_buffer,
          (gdr_t g, unsigned long address, size_t size, uint64_t token, uint32_t space, gdr_mh_t *handle),
          (g, address, size, token, space, handle))
FORWARDED(int, gdr_unpin_buffer, (gdr_t g, gdr_mh_t handle), (g, handle))
FORWARDED(int, gdr_get_info_v2, (gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info), (g, handle, info))
FORWARDED(int, gdr_map, (gdr_t g, gdr_mh_t handle, void **va, size_t size), (g, handle, va, size))
FORWARDED(int, gdr_unmap, (gdr_t g, gdr_mh_t handle, void *va, size_t size), (g, handle, va, size))

int gdr_copy_to_mapping(gdr_mh_t handle, void *to, const void *from, size_t size)
{
    if (faulty("short"))
        size--;
    if (faulty("long"))
        size++;
    return BEHIND(gdr_copy_to_mapping)(handle, to, from, size);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *to, const void *from, size_t size)
{
    int result = BEHIND(gdr_copy_from_mapping)(handle, to, from, size);

    if (faulty("crash"))
        abort();
    if (faulty("exit"))
        exit(0);
    while (faulty("hang"))
        pause();
    if (faulty("wrong"))
        ((unsigned char *)to)[size - 1] ^= 1;
    return result;
}
