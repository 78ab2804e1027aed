/* Uses the library of other.c; the first argument says how. With PLUGIN, an object that pins. */

#include "gdrapi.h"
#include "kit/check.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 65536
#define THREADS 40

#ifdef PLUGIN
int pins_here(gdr_t g, unsigned long address)
{
    gdr_mh_t handle;
    int result = gdr_pin_buffer(g, address, SIZE, 0, 0, &handle);

    __asm__ volatile("" ::: "memory"); /* No tail call. */
    return result;
}
#else
static gdr_t g;
static volatile int copied;
static int missing = THREADS;

/* Each thread has addresses of its own; they share the handles. They begin together. */
static void *pins(void *number)
{
    char host[64] = {0};
    gdr_mh_t handle;
    void *va;
    int i, j;

    __atomic_sub_fetch(&missing, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&missing, __ATOMIC_RELAXED) > 0)
        sched_yield();
    for (i = 0; i < 300; i++) {
        CHECK_OK(gdr_pin_buffer(g, SIZE * (1 + (unsigned long)number), SIZE, 0, 0, &handle));
        CHECK_OK(gdr_map(g, handle, &va, SIZE));
        for (j = 0; j < 10; j++)
            CHECK_OK(gdr_copy_to_mapping(handle, va, host, sizeof(host)));
        CHECK_OK(gdr_unmap(g, handle, va, SIZE));
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    return NULL;
}

/* The threads take turns with one pin. */
static void *turns(void *argument)
{
    const gdr_mh_t *handle = argument;
    char host[64] = {0};
    int i = 0;

    while (i < 100) {
        void *va;

        if (gdr_map(g, *handle, &va, SIZE) != 0)
            continue;
        usleep(500);
        CHECK_OK(gdr_copy_to_mapping(*handle, va, host, sizeof(host)));
        CHECK_OK(gdr_unmap(g, *handle, va, SIZE));
        i++;
    }
    return NULL;
}

/* Until it is canceled, wherever it is. */
static void *copies(void *va)
{
    char host[64] = {0};
    gdr_mh_t handle = {1};

    CHECK_OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    for (;; copied = 1)
        gdr_copy_to_mapping(handle, va, host, sizeof(host));
    return NULL;
}

#define FOUR(call) call, call, call, call

/* In 68 places. */
static void misuses(void)
{
    const gdr_mh_t unknown = {99};
    char to[8];

    FOUR(FOUR(FOUR(gdr_copy_to_mapping(unknown, to, "unknown", 8))));
    FOUR(gdr_copy_to_mapping(unknown, to, "unknown", 8));
}

static void calls_plugin(const char *file, unsigned long address)
{
    void *plugin = dlopen(file, RTLD_NOW);
    int (*pins_here)(gdr_t, unsigned long);

    CHECK(plugin != NULL);
    *(void **)&pins_here = dlsym(plugin, "pins_here");
    CHECK_OK(pins_here(g, address));
    CHECK_OK(dlclose(plugin));
}

static int is_library(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size, (void)data;
    return strstr(object->dlpi_name, "/other.so") != NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    long i;

    CHECK(argc == 2);
    /* Lookups load nothing, because the loader may be at work then. */
    CHECK(dlsym(RTLD_DEFAULT, "gdr_close") != NULL && dlsym(RTLD_DEFAULT, "gdr_get_attribute") == NULL);
    CHECK(!dl_iterate_phdr(is_library, NULL));
    g = gdr_open();
    CHECK(dl_iterate_phdr(is_library, NULL));
    if (strcmp(argv[1], "forked") == 0 && fork() != 0) {
        CHECK(wait(NULL) > 0);
        return 0;
    }
    if (strcmp(argv[1], "threads") == 0 || strcmp(argv[1], "forked") == 0) {
        for (i = 0; i < THREADS; i++)
            CHECK_OK(pthread_create(&threads[i], NULL, pins, (void *)i));
        for (i = 0; i < THREADS; i++)
            CHECK_OK(pthread_join(threads[i], NULL));
    }
    if (strcmp(argv[1], "turns") == 0) {
        gdr_mh_t handle;

        CHECK_OK(gdr_pin_buffer(g, SIZE, SIZE, 0, 0, &handle));
        for (i = 0; i < 2; i++)
            CHECK_OK(pthread_create(&threads[i], NULL, turns, &handle));
        for (i = 0; i < 2; i++)
            CHECK_OK(pthread_join(threads[i], NULL));
    }
    if (strcmp(argv[1], "cancel") == 0) {
        static char memory[64];
        void *result;

        for (i = 0; i < 100; i++) {
            copied = 0;
            CHECK_OK(pthread_create(&threads[0], NULL, copies, memory));
            while (!copied)
                sched_yield();
            CHECK_OK(pthread_cancel(threads[0]));
            CHECK_OK(pthread_join(threads[0], &result));
            CHECK(result == PTHREAD_CANCELED);
        }
        missing = 0;
        pins(NULL);
    }
    if (strcmp(argv[1], "closes") == 0) {
        const int errors[] = {EIO, EINVAL, EACCES};

        for (i = 0; i < 3; i++) {
            gdr_t fails = (gdr_t)(long)errors[i];
            gdr_mh_t handle;
            void *va;

            CHECK_OK(gdr_pin_buffer(fails, SIZE * (i + 1), SIZE, 0, 0, &handle));
            CHECK_OK(gdr_map(fails, handle, &va, SIZE));
            CHECK_EQUAL(gdr_close(fails), errors[i]);
        }
    }
    if (strcmp(argv[1], "misuses") == 0)
        for (i = 0; i < 5; i++)
            misuses();
    if (strcmp(argv[1], "ranges") == 0)
        for (i = 1; i <= 600; i++) {
            gdr_mh_t handle;

            CHECK_OK(gdr_pin_buffer(g, SIZE * i, SIZE, 0, 0, &handle));
            CHECK_OK(gdr_unpin_buffer(g, handle));
        }
    if (strcmp(argv[1], "map") == 0) {
        gdr_mh_t handle;
        void *va;

        CHECK_OK(gdr_pin_buffer(g, SIZE, SIZE, 0, 0, &handle));
        CHECK_OK(gdr_map(g, handle, &va, SIZE));
    }
    if (strcmp(argv[1], "plugins") == 0) {
        calls_plugin("first.so", SIZE);
        calls_plugin("second.so", 2 * SIZE);
    }
    return 0;
}
#endif
