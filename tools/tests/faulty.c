/*
 * A libgdrapi that forwards every call to the library that FAULTY_BEHIND names, and is faulty as FAULTY selects.
 * Writes omit the last byte with "short", and add a byte with "long". Reads change the last byte with "wrong"; with "crash",
 * "exit" and "hang" they end the process or never return. When the library is loaded, "vanish" ends the process with status 0,
 * and "kill" and "illegal" end it by a signal. "stuck CALL" hangs in that call, and "stuck constructor" when the library is
 * loaded. "starve" lets the parent process open no more files.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../trace/next.c"

static int faulty(const char *how)
{
    return strcmp(getenv("FAULTY"), how) == 0;
}

/* Never returns if FAULTY says that this call hangs. */
static void reach(const char *call)
{
    const char *how = getenv("FAULTY");

    while (strncmp(how, "stuck ", 6) == 0 && strcmp(how + 6, call) == 0)
        pause();
}

__attribute__((constructor)) static void begin(void)
{
    next_load(getenv("FAULTY_BEHIND"));
    if (getenv("FAULTY") == NULL)
        return;
    if (faulty("vanish"))
        exit(0);
    if (faulty("kill"))
        raise(SIGKILL);
    if (faulty("illegal"))
        raise(SIGILL);
    if (faulty("starve")) {
        struct rlimit none = {0, 0};

        prlimit(getppid(), RLIMIT_NOFILE, &none, NULL);
    }
    reach("constructor");
}

#define FORWARDED(type, name, parameters, arguments)                                                                   \
    type gdr_##name parameters                                                                                         \
    {                                                                                                                  \
        reach("gdr_" #name);                                                                                           \
        return next.name arguments;                                                                                    \
    }

FORWARDED(gdr_t, open, (void), ())
FORWARDED(int, close, (gdr_t g), (g))
FORWARDED(int, pin_buffer,
          (gdr_t g, unsigned long address, size_t size, uint64_t token, uint32_t space, gdr_mh_t *handle),
          (g, address, size, token, space, handle))
FORWARDED(int, unpin_buffer, (gdr_t g, gdr_mh_t handle), (g, handle))
FORWARDED(int, get_info_v2, (gdr_t g, gdr_mh_t handle, gdr_info_v2_t *info), (g, handle, info))
FORWARDED(int, map, (gdr_t g, gdr_mh_t handle, void **va, size_t size), (g, handle, va, size))
FORWARDED(int, unmap, (gdr_t g, gdr_mh_t handle, void *va, size_t size), (g, handle, va, size))

int gdr_copy_to_mapping(gdr_mh_t handle, void *to, const void *from, size_t size)
{
    reach("gdr_copy_to_mapping");
    if (faulty("short"))
        size--;
    if (faulty("long"))
        size++;
    return next.copy_to_mapping(handle, to, from, size);
}

int gdr_copy_from_mapping(gdr_mh_t handle, void *to, const void *from, size_t size)
{
    reach("gdr_copy_from_mapping");
    int result = next.copy_from_mapping(handle, to, from, size);

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
