/* This program's malloc returns NULL to the library. So gdr_open and pins must fail with ENOMEM, and other calls must
   work. */

#include "kit/library.h"
#include "logged.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>

#define SIZE GPU_PAGE_SIZE
#define UNTOUCHED 0x5a5a5a5aUL
#define PINS 100

/* The range of addresses of the library's code. While `failing` is set, allocations by this code fail. */
static uintptr_t library_start, library_end;
static volatile int failing, refused;

static gdr_t g;
static struct gpu_buffer buffer;

/* ---- The allocator ---- */

#ifdef __SANITIZE_ADDRESS__
static int can_fail(void)
{
    return 0;
}
#else
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

/* Returns whether an allocation that the code at this address asks for must fail. Counts the failures. */
static int fails_for(const void *code)
{
    int fails = failing && library_start <= (uintptr_t)code && (uintptr_t)code < library_end;

    refused += fails;
    if (fails)
        errno = ENOMEM;
    return fails;
}

void *malloc(size_t size)
{
    return fails_for(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails_for(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return fails_for(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails_for(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    if (fails_for(__builtin_return_address(0)))
        return ENOMEM;
    *memory = __libc_memalign(alignment, size);
    return *memory != NULL ? 0 : ENOMEM;
}

/* Returns whether this program can make allocations fail. It cannot if valgrind replaces the program's malloc. */
static int can_fail(void)
{
    void *volatile memory;

    library_start = 0;
    library_end = UINTPTR_MAX;
    failing = 1;
    memory = malloc(1);
    failing = refused = 0;
    free(memory);
    return memory == NULL;
}
#endif

static int note_library(struct dl_phdr_info *info, size_t size, void *function)
{
    uintptr_t start = UINTPTR_MAX, end = 0;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];

        if (part->p_type != PT_LOAD)
            continue;
        if (info->dlpi_addr + part->p_vaddr < start)
            start = info->dlpi_addr + part->p_vaddr;
        if (info->dlpi_addr + part->p_vaddr + part->p_memsz > end)
            end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    if ((uintptr_t)function < start || end <= (uintptr_t)function)
        return 0;
    library_start = start;
    library_end = end;
    return 1;
}

/* ---- Calls that need memory ---- */

/* Checks that the library asks for memory, gets none, and returns ENOMEM. */
#define CHECK_NO_MEMORY(call)                                                                                          \
    do {                                                                                                               \
        refused = 0;                                                                                                    \
        failing = 1;                                                                                                   \
        CHECK_ERROR(call, ENOMEM);                                                                                     \
        failing = 0;                                                                                                   \
        CHECK(refused > 0);                                                                                             \
    } while (0)

/* Checks that the call succeeds and asks for no memory. */
#define CHECK_NEEDS_NONE(call)                                                                                         \
    do {                                                                                                               \
        refused = 0;                                                                                                    \
        failing = 1;                                                                                                   \
        CHECK_OK(call);                                                                                                \
        failing = 0;                                                                                                   \
        CHECK_EQUAL(refused, 0);                                                                                        \
    } while (0)

static int open_error(void)
{
    errno = 0;
    return gdr_open() == NULL ? errno : 0;
}

/* main() calls this twice: in a child, which has not called the library before, and after a gdr_open has succeeded. */
static void open_fails(void)
{
    CHECK_NO_MEMORY(open_error());
}

static void pin_fails(void)
{
    gdr_mh_t handle = {UNTOUCHED};

    CHECK_NO_MEMORY(gdr_pin_buffer(g, (unsigned long)buffer.address, SIZE, 0, 0, &handle));
    CHECK_NO_MEMORY(gdr_pin_buffer_v2(g, (unsigned long)buffer.address, SIZE, 0, &handle));
    CHECK_EQUAL(handle.h, UNTOUCHED);
}

/* The first call of the library fails. Without memory, it can read no environment variable, so it logs nothing. */
static void first_call_fails(void)
{
    CHECK(setenv("GDRCOPY_ENABLE_LOGGING", "1", 1) == 0);
    failing = 1;
    CHECK_ERROR(gdr_close((gdr_t)UNTOUCHED), EINVAL);
    failing = 0;
}

/* ---- Calls that need no memory ---- */

static void maps_copies_and_questions_need_none(void)
{
    gdr_mh_t handle = pin(g, buffer.address, SIZE);
    void *va = NULL;
    char bytes[256] = {0};
    gdr_info_t info;
    int value;

    CHECK_NEEDS_NONE(gdr_map(g, handle, &va, SIZE));
    CHECK_NEEDS_NONE(gdr_unmap(g, handle, va, SIZE));
    CHECK_NEEDS_NONE(gdr_map_v2(g, handle, &va, SIZE, GDR_MAP_FLAG_DEFAULT));
    CHECK_NEEDS_NONE(gdr_copy_to_mapping(handle, va, bytes, sizeof(bytes)));
    CHECK_NEEDS_NONE(gdr_copy_from_mapping(handle, bytes, va, sizeof(bytes)));
    CHECK_NEEDS_NONE(gdr_get_info_v2(g, handle, &info));
    CHECK_NEEDS_NONE(gdr_get_callback_flag(g, handle, &value));
    CHECK_NEEDS_NONE(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value));
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

/* Maps PINS pins. Then, while allocations fail, unmaps two of them, unpins half of them, and closes the connection. */
static void release(void)
{
    gdr_mh_t handles[PINS];
    void *va[PINS];

    g = open_driver();
    for (int i = 0; i < PINS; i++) {
        handles[i] = pin(g, buffer.address, SIZE);
        va[i] = map(g, handles[i], SIZE);
    }
    CHECK_NEEDS_NONE(gdr_unmap(g, handles[0], va[0], SIZE));
    CHECK_NEEDS_NONE(gdr_unmap(g, handles[1], va[1], 1)); /* this logs a warning */
    for (int i = 0; i < PINS / 2; i++)
        CHECK_NEEDS_NONE(gdr_unpin_buffer(g, handles[i]));
    refused = 0;
    failing = 1;
    CHECK_ERROR(gdr_unpin_buffer(g, handles[0]), EINVAL); /* logging the error needs no memory either */
    failing = 0;
    CHECK_EQUAL(refused, 0);
    CHECK_NEEDS_NONE(gdr_close(g));
}

int main(void)
{
    if (!can_fail())
        waive("malloc is the sanitizer's or valgrind's");
    /* dlsym finds the function in the library. In C, `gdr_open` may be the address of a stub in this program. */
    CHECK(dl_iterate_phdr(note_library, dlsym(RTLD_DEFAULT, "gdr_open")) == 1);
    in_child(open_fails);
    in_child(first_call_fails);
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, SIZE);
    g = open_driver();
    open_fails();
    pin_fails();
    maps_copies_and_questions_need_none();
    CHECK_OK(gdr_close(g));
    release();
    CHECK_LOGGED(log_of(release, "1"), "gdr_unmap: called for");
    gpu_free(&buffer);
    return passed("no_memory");
}
