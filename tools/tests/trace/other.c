/* A libgdrapi without a GPU that does what another one may. It calls its own functions by their symbols, and gives a handle
 * again as soon as its pin has ended. */

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PINS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char pinned[PINS], mapped[PINS], memory[PINS][65536];

void *gdr_open(void)
{
    return pinned;
}

int gdr_unmap(void *g, unsigned long handle, void *va, size_t size)
{
    (void)g, (void)va, (void)size;
    __atomic_clear(&mapped[handle - 1], __ATOMIC_RELEASE);
    usleep(1); /* Another thread maps it before this function returns. */
    return 0;
}

int gdr_unpin_buffer(void *g, unsigned long handle)
{
    if (!pinned[handle - 1])
        abort(); /* Some free twice. */
    gdr_unmap(g, handle, NULL, 0);
    pthread_mutex_lock(&lock);
    pinned[handle - 1] = 0;
    pthread_mutex_unlock(&lock);
    usleep(1); /* Another thread gets the handle before this function returns. */
    return 0;
}

/* Fails with the error that a small number is. */
int gdr_close(void *g)
{
    return (uintptr_t)g < 256 ? (int)(uintptr_t)g : 0;
}

int gdr_pin_buffer_v2(void *g, unsigned long address, size_t size, uint32_t flags, unsigned long *handle)
{
    int i;

    (void)g, (void)address, (void)size, (void)flags;
    pthread_mutex_lock(&lock);
    for (i = 0; i < PINS && pinned[i]; i++)
        ;
    if (i < PINS)
        pinned[i] = 1;
    pthread_mutex_unlock(&lock);
    *handle = i + 1;
    return i < PINS ? 0 : ENOMEM;
}

int gdr_pin_buffer(void *g, unsigned long address, size_t size, uint64_t token, uint32_t space, unsigned long *handle)
{
    (void)token, (void)space;
    return gdr_pin_buffer_v2(g, address, size, 0, handle);
}

int gdr_map(void *g, unsigned long handle, void **va, size_t size)
{
    (void)g, (void)size;
    if (__atomic_test_and_set(&mapped[handle - 1], __ATOMIC_ACQUIRE))
        return EAGAIN;
    *va = memory[handle - 1];
    return 0;
}

int gdr_get_info(void *g, unsigned long handle, void *info)
{
    (void)g, (void)handle, (void)info;
    gdr_close(NULL);
    return ENOSYS;
}

int gdr_copy_to_mapping(unsigned long handle, void *dst, const void *src, size_t size)
{
    (void)handle;
    memcpy(dst, src, size);
    return 0;
}
