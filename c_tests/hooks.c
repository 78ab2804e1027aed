/* Tests a program that defines its own mmap, munmap, madvise and ioctl. The library calls these, and they call the
   library again. */

#include "kit/library.h"
#include "logged.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define SIZE GPU_PAGE_SIZE
#define VICTIMS 64
#define ROUNDS 1200 /* more than two times 512, the number of handles that the library gets memory for at once */

static struct gpu_buffer buffer;
static gdr_t g;
static gdr_mh_t current, other;
static void *current_va, *other_va;
static gdr_mh_t victims[VICTIMS];
static int next_victim;

/* Unless this is NULL, this program's mmap, munmap, madvise and ioctl call it before they call libc's function. */
static void (*volatile hook)(void);
/* The number of calls of `hook`. */
static int hooked;

#ifndef __SANITIZE_ADDRESS__
static void call_hook(const void *caller)
{
    void (*now)(void) = hook;
    Dl_info of;

    if (now == NULL || dladdr(caller, &of) == 0 || strstr(of.dli_fname, "/libgdrapi.so") == NULL)
        return; /* the caller is gdremu or another library */
    hook = NULL; /* so that the system calls that now() makes do not call now() again */
    hooked++;
    now();
    hook = now;
}

#define NEXT(type, name) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))

typedef void *(*mmap_function)(void *, size_t, int, int, int, off_t);

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    call_hook(__builtin_return_address(0));
    return NEXT(mmap_function, "mmap")(address, size, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    call_hook(__builtin_return_address(0));
    return NEXT(mmap_function, "mmap64")(address, size, protection, flags, fd, offset);
}

int munmap(void *address, size_t size)
{
    call_hook(__builtin_return_address(0));
    return NEXT(int (*)(void *, size_t), "munmap")(address, size);
}

int madvise(void *address, size_t size, int advice)
{
    call_hook(__builtin_return_address(0));
    return NEXT(int (*)(void *, size_t, int), "madvise")(address, size, advice);
}

int ioctl(int fd, unsigned long number, ...)
{
    va_list arguments;
    void *argument;

    va_start(arguments, number);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    call_hook(__builtin_return_address(0));
    return NEXT(int (*)(int, unsigned long, ...), "ioctl")(fd, number, argument);
}

static const int is_hooked = 1;
#else
static const int is_hooked = 0;
#endif

/* Runs statements with a hook, which must be called at least once. */
#define HOOKED(function, statements)                                                                                   \
    do {                                                                                                               \
        hooked = 0;                                                                                                    \
        hook = function;                                                                                               \
        statements;                                                                                                    \
        hook = NULL;                                                                                                   \
        CHECK(hooked > 0);                                                                                             \
    } while (0)

static void call_for_the_handle_at_work(void)
{
    gdr_info_t info;
    void *va = NULL;
    int flag;

    CHECK_ERROR(gdr_get_info(g, current, &info), EDEADLK);
    CHECK_ERROR(gdr_get_callback_flag(g, current, &flag), EDEADLK);
    CHECK_ERROR(gdr_map(g, current, &va, SIZE), EDEADLK);
    CHECK_ERROR(gdr_unmap(g, current, current_va, SIZE), EDEADLK);
    CHECK_ERROR(gdr_unpin_buffer(g, current), EDEADLK);
    CHECK_ERROR(gdr_close(g), EDEADLK);
}

static void call_for_another_handle(void)
{
    gdr_info_t info;
    char byte = 1;
    int value;

    CHECK_OK(gdr_get_info(g, other, &info));
    CHECK_OK(gdr_get_callback_flag(g, other, &value));
    CHECK_OK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_OK(gdr_copy_to_mapping(other, other_va, &byte, 1));
    CHECK_OK(gdr_unmap(g, other, other_va, SIZE));
    CHECK_OK(gdr_map(g, other, &other_va, SIZE));
    if (next_victim < VICTIMS)
        CHECK_OK(gdr_unpin_buffer(g, victims[next_victim++]));
}

/* A hook. Its calls of gdr_pin_buffer and gdr_unpin_buffer may fail with EDEADLK, because the library call in which the
   hook runs may be taking or giving back memory for handles. */
static void call_that_may_be_refused(void)
{
    gdr_info_t info;
    gdr_mh_t handle;

    CHECK_OK(gdr_get_info(g, other, &info));
    int result = gdr_pin_buffer(g, (unsigned long)buffer.address, SIZE, 0, 0, &handle);
    if (result == 0)
        result = gdr_unpin_buffer(g, handle);
    CHECK(result == 0 || result == EDEADLK);
}

static void map_and_unmap(void (*function)(void))
{
    current = pin(g, buffer.address, SIZE);
    HOOKED(function, CHECK_OK(gdr_map(g, current, &current_va, SIZE)));
    HOOKED(function, CHECK_OK(gdr_unmap(g, current, current_va, SIZE)));
    HOOKED(function, CHECK_OK(gdr_map(g, current, &current_va, SIZE)));
    HOOKED(function, CHECK_OK(gdr_unpin_buffer(g, current)));
}

static void pins_by_the_step(void)
{
    hook = call_that_may_be_refused;
    for (long i = rounds(ROUNDS); i > 0; i--) {
        gdr_mh_t handle;

        CHECK_OK(gdr_pin_buffer(g, (unsigned long)buffer.address, SIZE, 0, 0, &handle));
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    hook = NULL;
}

static void refused_calls(void)
{
    g = open_driver();
    map_and_unmap(call_for_the_handle_at_work);
    CHECK_OK(gdr_close(g));
}

int main(void)
{
    if (!is_hooked)
        waive("mmap is the sanitizer's");
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    CHECK_LOGGED(log_of(refused_calls, "4"), "gdr_get_info_v2: this thread is in another call for the same handle");
    refused_calls();
    g = open_driver();
    other = pin(g, buffer.address, SIZE);
    other_va = map(g, other, SIZE);
    for (int i = 0; i < VICTIMS; i++)
        victims[i] = pin(g, buffer.address, SIZE);
    for (int i = 0; i < 3; i++)
        map_and_unmap(call_for_another_handle);
    pins_by_the_step();
    CHECK_OK(gdr_close(g));
    gpu_free(&buffer);
    return passed("hooks");
}
