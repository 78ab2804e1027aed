/* Uses libgdrapi step by step, for tests of `gdrcopy trace`. Each argument is a step. */

#include "gdrapi.h"
#include "kit/check.h"
#include "kit/gpu.h"

#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#define SIZE GPU_PAGE_SIZE
#define THREADS 40
#define SWAP(one, other) do { gdr_mh_t both = one; one = other; other = both; } while (0)

static gdr_t g;
static unsigned long memory;
static gdr_mh_t handle, spare = {12345}; /* at first, no pin has the handle `spare` */
static char *va;
static char host[16384];

__attribute__((noinline)) static void pin_here(unsigned long address, size_t size)
{
    CHECK_OK(gdr_pin_buffer(g, address, size, 0, 0, &handle));
}

__attribute__((noinline)) static int copy_here(size_t offset, size_t size)
{
    return gdr_copy_to_mapping(handle, va + offset, host, size);
}

static void pin_and_unpin(unsigned long address)
{
    pin_here(address, SIZE);
    CHECK_OK(gdr_unpin_buffer(g, handle));
}

static void *copies_once(void *number)
{
    CHECK_OK(copy_here(0, 8));
    return number;
}

static void in_threads(int count, void *(*work)(void *))
{
    pthread_t threads[THREADS];

    for (long i = 0; i < count; i++)
        threads[i] = start_thread(work, (void *)i);
    while (count-- > 0)
        finish_thread(threads[count]);
}

static volatile int copied;
static int missing = THREADS;

/* Runs in several threads, which begin to pin at the same time. Each pins its own address, and may get handles that
 * other threads have just unpinned. */
static void *pins(void *number)
{
    gdr_mh_t handle;
    void *va;

    __atomic_sub_fetch(&missing, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&missing, __ATOMIC_RELAXED) > 0)
        sched_yield();
    for (int i = 0; i < 300; i++) {
        CHECK_OK(gdr_pin_buffer(g, SIZE * (1 + (unsigned long)number), SIZE, 0, 0, &handle));
        CHECK_OK(gdr_map(g, handle, &va, SIZE));
        for (int j = 0; j < 10; j++)
            CHECK_OK(gdr_copy_to_mapping(handle, va, host, 64));
        CHECK_OK(gdr_unmap(g, handle, va, SIZE));
        CHECK_OK(gdr_unpin_buffer(g, handle));
    }
    return NULL;
}

/* A thread that takes turns with another one in mapping the same pin. */
static void *turns(void *nothing)
{
    void *mapped;

    for (int i = 0; i < 100;) {
        if (gdr_map(g, handle, &mapped, SIZE) != 0)
            continue;
        usleep(500);
        CHECK_OK(gdr_copy_to_mapping(handle, mapped, host, 64));
        CHECK_OK(gdr_unmap(g, handle, mapped, SIZE));
        i++;
    }
    return nothing;
}

/* Copies until this thread is canceled, which can happen at any instruction. */
static void *copies(void *to)
{
    CHECK_OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    for (;; copied = 1)
        gdr_copy_to_mapping(spare, to, host, 64);
    return NULL;
}

static void cancels(void)
{
    static char to[64];
    void *result;

    for (int i = 0; i < 100; i++) {
        copied = 0;
        pthread_t thread = start_thread(copies, to);
        while (!copied)
            sched_yield();
        CHECK_OK(pthread_cancel(thread));
        CHECK_OK(pthread_join(thread, &result));
        CHECK(result == PTHREAD_CANCELED);
    }
    missing = 0;
    pins(NULL);
}

#define FOUR(call) call, call, call, call

/* Misuses the library in 68 places in the code, more than the 64 that trace.c can record. */
static void misuses(void)
{
    FOUR(FOUR(FOUR(gdr_copy_to_mapping(spare, host, "unknown", 8))));
    FOUR(gdr_copy_to_mapping(spare, host, "unknown", 8));
}

/* Loads a shared object, calls its function, which pins, and unloads the object. */
static void calls_plugin(void)
{
    void *plugin = dlopen("plugin.so", RTLD_NOW);
    int (*pins_here)(gdr_t, gdr_mh_t *);

    CHECK(plugin != NULL);
    *(void **)&pins_here = dlsym(plugin, "pins_here");
    CHECK_OK(pins_here(g, &handle));
    CHECK_OK(dlclose(plugin));
}

static void opens(void)
{
    if (memory == 0) {
        gpu_init();
        memory = gpu_alloc(MEM_ALLOC, 2 * SIZE).address;
    }
    g = gdr_open();
    CHECK(g != NULL);
}

/* Forks. The child takes the rest of the steps, and the parent waits for it. */
static void forks(void)
{
    pid_t child = fork();

    if (child == 0)
        return;
    finish_child(child);
    exit(0);
}

/* Takes a step: a word that a number may follow. Ignores errors of copies, because trace must report these errors. */
static void take(const char *step)
{
    const struct rlimit none = {0, 0};
    char word[16];
    long number = 0;
    int version;

    sscanf(step, "%15[a-z_]%ld", word, &number);
    if (strcmp(word, "open") == 0)
        opens();
    else if (strcmp(word, "version") == 0)
        gdr_runtime_get_version(&version, &version);
    else if (strcmp(word, "gdr") == 0)
        g = (gdr_t)number;
    else if (strcmp(word, "close") == 0)
        gdr_close(g);
    else if (strcmp(word, "pin") == 0)
        pin_here(memory, 2 * SIZE);
    else if (strcmp(word, "range") == 0)
        pin_here(SIZE * number, SIZE);
    else if (strcmp(word, "pins") == 0)
        while (number-- > 0)
            pin_here(memory, SIZE);
    else if (strcmp(word, "ranges") == 0)
        for (; number > 0; number--)
            pin_and_unpin(SIZE * number);
    else if (strcmp(word, "half") == 0)
        pin_here(memory + SIZE / 2, SIZE);
    else if (strcmp(word, "map") == 0)
        CHECK_OK(gdr_map(g, handle, (void **)&va, SIZE));
    else if (strcmp(word, "map_v") == 0)
        gdr_map_v2(g, handle, (void **)&va, SIZE, number);
    else if (strcmp(word, "unmap") == 0)
        gdr_unmap(g, handle, va, SIZE);
    else if (strcmp(word, "unpin") == 0)
        gdr_unpin_buffer(g, handle);
    else if (strcmp(word, "swap") == 0)
        SWAP(handle, spare);
    else if (strcmp(word, "write") == 0)
        copy_here(0, number);
    else if (strcmp(word, "read") == 0)
        gdr_copy_from_mapping(handle, host, va, number);
    else if (strcmp(word, "end") == 0)
        copy_here(number - 8, 8);
    else if (strcmp(word, "past") == 0)
        copy_here(SIZE - 8, 16);
    else if (strcmp(word, "protect") == 0)
        CHECK_OK(mprotect(va + SIZE - 4096, 4096, PROT_NONE));
    else if (strcmp(word, "_exit") == 0)
        _exit(number);
    else if (strcmp(word, "exits") == 0)
        signal(SIGSEGV, _exit);
    else if (strcmp(word, "abort") == 0)
        abort();
    else if (strcmp(word, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(word, "fork") == 0)
        forks();
    else if (strcmp(word, "no_files") == 0)
        CHECK_OK(setrlimit(RLIMIT_FSIZE, &none));
    else if (strcmp(word, "no_fds") == 0)
        CHECK_OK(setrlimit(RLIMIT_NOFILE, &none));
    else if (strcmp(word, "serial") == 0)
        while (number-- > 0)
            in_thread(copies_once, NULL);
    else if (strcmp(word, "parallel") == 0)
        in_threads(number, copies_once);
    else if (strcmp(word, "threads") == 0)
        in_threads(THREADS, pins);
    else if (strcmp(word, "turns") == 0)
        in_threads(2, turns);
    else if (strcmp(word, "cancel") == 0)
        cancels();
    else if (strcmp(word, "misuses") == 0)
        misuses();
    else if (strcmp(word, "plugin") == 0)
        calls_plugin();
    else
        CHECK(!step);
}

int main(int argc, char **argv)
{
    while (--argc > 0)
        take(*++argv);
    return 0;
}
