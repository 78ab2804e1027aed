/* Uses libgdrapi step by step, as its arguments say. */

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
static gdr_mh_t handle, spare = {12345}; /* the second one is of no pin */
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

/* Each thread has addresses of its own; they share the handles. They begin together. */
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

/* The threads take turns with one pin. */
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

/* Until it is canceled, wherever it is. */
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

/* In 68 places. */
static void misuses(void)
{
    FOUR(FOUR(FOUR(gdr_copy_to_mapping(spare, host, "unknown", 8))));
    FOUR(gdr_copy_to_mapping(spare, host, "unknown", 8));
}

/* An object that pins, and is unloaded. */
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

/* The child takes the steps that follow. */
static void forks(void)
{
    pid_t child = fork();

    if (child == 0)
        return;
    finish_child(child);
    exit(0);
}

/* A step is a word, and may have a number. Copies may fail, as the report says. */
static void take(const char *step)
{
    const struct rlimit none = {0, 0};
    char word[16];
    long number = 0;
    int version;

    sscanf(step, "%15[a-z_]%ld", word, &number);
#define STEP(name) else if (strcmp(word, name) == 0)
    if (strcmp(word, "open") == 0)
        opens();
    STEP("version") gdr_runtime_get_version(&version, &version);
    STEP("gdr") g = (gdr_t)number;
    STEP("close") gdr_close(g);
    STEP("pin") pin_here(memory, 2 * SIZE);
    STEP("range") pin_here(SIZE * number, SIZE);
    STEP("pins") while (number-- > 0) pin_here(memory, SIZE);
    STEP("ranges") for (; number > 0; number--) pin_and_unpin(SIZE * number);
    STEP("half") pin_here(memory + SIZE / 2, SIZE);
    STEP("map") CHECK_OK(gdr_map(g, handle, (void **)&va, SIZE));
    STEP("map_v") gdr_map_v2(g, handle, (void **)&va, SIZE, number);
    STEP("unmap") gdr_unmap(g, handle, va, SIZE);
    STEP("unpin") gdr_unpin_buffer(g, handle);
    STEP("swap") SWAP(handle, spare);
    STEP("write") copy_here(0, number);
    STEP("read") gdr_copy_from_mapping(handle, host, va, number);
    STEP("end") copy_here(number - 8, 8);
    STEP("past") copy_here(SIZE - 8, 16);
    STEP("protect") CHECK_OK(mprotect(va + SIZE - 4096, 4096, PROT_NONE));
    STEP("_exit") _exit(number);
    STEP("exits") signal(SIGSEGV, _exit);
    STEP("abort") abort();
    STEP("kill") raise(SIGKILL);
    STEP("fork") forks();
    STEP("no_files") CHECK_OK(setrlimit(RLIMIT_FSIZE, &none));
    STEP("no_fds") CHECK_OK(setrlimit(RLIMIT_NOFILE, &none));
    STEP("serial") while (number-- > 0) in_thread(copies_once, NULL);
    STEP("parallel") in_threads(number, copies_once);
    STEP("threads") in_threads(THREADS, pins);
    STEP("turns") in_threads(2, turns);
    STEP("cancel") cancels();
    STEP("misuses") misuses();
    STEP("plugin") calls_plugin();
    else CHECK(!step);
}

int main(int argc, char **argv)
{
    while (--argc > 0)
        take(*++argv);
    return 0;
}
