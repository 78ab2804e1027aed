/*
 * A libgdrapi without a GPU or a driver that does what another one may. It calls its own functions by their symbols, and
 * gives a handle again as soon as its pin has ended. It has no functions of 2.4 but gdr_pin_buffer_v2. With DIES_AT, the
 * call of that number ends its process, by a signal that none can catch.
 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PINS 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char pinned[PINS], mapped[PINS];
static unsigned long addresses[PINS];
static void *mappings[PINS];
static size_t sizes[PINS];

/* Returns what the call does. */
static int step(int result)
{
    static int calls;

    if (getenv("DIES_AT") != NULL && ++calls == atoi(getenv("DIES_AT")))
        kill(getpid(), SIGKILL);
    return result;
}

void *gdr_open(void)
{
    static int descriptor = -1;

    step(0);
    return &descriptor;
}

int gdr_unmap(void *g, unsigned long handle, void *va, size_t size)
{
    (void)g, (void)va, (void)size;
    if (mapped[handle - 1])
        munmap(mappings[handle - 1], sizes[handle - 1]);
    __atomic_clear(&mapped[handle - 1], __ATOMIC_RELEASE);
    usleep(1); /* Another thread maps it before this function returns. */
    return step(0);
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
    return step(0);
}

/* Fails with the error that a small number is. */
int gdr_close(void *g)
{
    return step((uintptr_t)g < 256 ? (int)(uintptr_t)g : 0);
}

int gdr_pin_buffer_v2(void *g, unsigned long address, size_t size, uint32_t flags, unsigned long *handle)
{
    int i;

    (void)g, (void)size, (void)flags;
    pthread_mutex_lock(&lock);
    for (i = 0; i < PINS && pinned[i]; i++)
        ;
    if (i < PINS) {
        pinned[i] = 1;
        addresses[i] = address;
    }
    pthread_mutex_unlock(&lock);
    *handle = i + 1;
    return step(i < PINS ? 0 : ENOMEM);
}

int gdr_pin_buffer(void *g, unsigned long address, size_t size, uint64_t token, uint32_t space, unsigned long *handle)
{
    (void)token, (void)space;
    return gdr_pin_buffer_v2(g, address, size, 0, handle);
}

int gdr_map(void *g, unsigned long handle, void **va, size_t size)
{
    (void)g;
    if (__atomic_test_and_set(&mapped[handle - 1], __ATOMIC_ACQUIRE))
        return EAGAIN;
    *va = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mappings[handle - 1] = *va;
    sizes[handle - 1] = size;
    return step(0);
}

int gdr_get_info(void *g, unsigned long handle, uint64_t *info)
{
    (void)g;
    gdr_close(NULL);
    info[0] = addresses[handle - 1];
    return step(0);
}

int gdr_get_callback_flag(void *g, unsigned long handle, int *flag)
{
    (void)g, (void)handle, (void)flag;
    return step(0);
}

int gdr_copy_to_mapping(unsigned long handle, void *dst, const void *src, size_t size)
{
    (void)handle;
    memcpy(dst, src, size);
    return 0;
}
