/*
 * A libgdrapi that needs neither GPU nor driver, and does what a libgdrapi of another maker may do. It calls its
 * own functions by symbols that a preloaded library can replace, and reuses a handle as soon as its pin has ended.
 * It has gdr_pin_buffer_v2, but no other function that NVIDIA's libgdrapi 2.4 and 2.5 added.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PINS 64

static struct pin {
    char pinned, mapped;
    unsigned long address;
    void *va;
    size_t size;
} pins[PINS + 1]; /* the index is the handle */

void *gdr_open(void)
{
    static int descriptor = -1;

    return &descriptor;
}

int gdr_unmap(void *g, unsigned long handle, void *va, size_t size)
{
    struct pin *pin = &pins[handle];

    (void)g, (void)va, (void)size;
    if (pin->mapped)
        munmap(pin->va, pin->size);
    __atomic_clear(&pin->mapped, __ATOMIC_RELEASE);
    usleep(1); /* So another thread can map the pin before this function returns. */
    return 0;
}

int gdr_unpin_buffer(void *g, unsigned long handle)
{
    if (!pins[handle].pinned)
        abort(); /* This ends a program that unpins twice. */
    gdr_unmap(g, handle, NULL, 0);
    __atomic_clear(&pins[handle].pinned, __ATOMIC_RELEASE);
    usleep(1); /* So another thread can get the handle before this function returns. */
    return 0;
}

/* Tests may pass a small number as g. Then this fails with that number as the error. */
int gdr_close(void *g)
{
    return (uintptr_t)g < 256 ? (int)(uintptr_t)g : 0;
}

int gdr_pin_buffer_v2(void *g, unsigned long address, size_t size, uint32_t flags, unsigned long *handle)
{
    (void)g, (void)size, (void)flags;
    for (*handle = 1; *handle <= PINS; ++*handle)
        if (!__atomic_test_and_set(&pins[*handle].pinned, __ATOMIC_ACQUIRE)) {
            pins[*handle].address = address;
            return 0;
        }
    return ENOMEM;
}

int gdr_pin_buffer(void *g, unsigned long address, size_t size, uint64_t token, uint32_t space, unsigned long *handle)
{
    (void)token, (void)space;
    return gdr_pin_buffer_v2(g, address, size, 0, handle);
}

int gdr_map(void *g, unsigned long handle, void **va, size_t size)
{
    struct pin *pin = &pins[handle];

    (void)g;
    if (__atomic_test_and_set(&pin->mapped, __ATOMIC_ACQUIRE))
        return EAGAIN;
    *va = pin->va = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pin->size = size;
    return 0;
}

int gdr_get_info(void *g, unsigned long handle, uint64_t *info)
{
    (void)g;
    gdr_close(NULL);
    info[0] = pins[handle].address;
    return 0;
}

int gdr_get_callback_flag(void *g, unsigned long handle, int *flag)
{
    (void)g, (void)handle, (void)flag;
    return 0;
}

int gdr_copy_to_mapping(unsigned long handle, void *dst, const void *src, size_t size)
{
    (void)handle;
    memcpy(dst, src, size);
    return 0;
}
