/* Uses libgdrapi in each way that gdrcopy trace reports; the first argument says how. Not linked with libgdrapi. */

#include "loaded.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SIZE GPU_PAGE_SIZE
#define NOT_INLINE __attribute__((noinline, noclone))
/* No tail call, so the caller stays on the stack. */
#define KEEP_CALL __asm__ volatile("" ::: "memory")

static struct loaded gdr;
static struct gpu_buffer buffer;
static char host[1 << 20];

NOT_INLINE static gdr_mh_t pin_here(gdr_t g)
{
    gdr_mh_t handle;

    CHECK_OK(gdr.pin_buffer(g, (unsigned long)buffer.address, 2 * SIZE, 0, 0, &handle));
    KEEP_CALL;
    return handle;
}

NOT_INLINE static char *map_here(gdr_t g, gdr_mh_t handle)
{
    void *va;

    CHECK_OK(gdr.map(g, handle, &va, SIZE));
    return va;
}

NOT_INLINE static int copy_here(gdr_mh_t handle, void *va, size_t size)
{
    int result = gdr.copy_to_mapping(handle, va, host, size);

    KEEP_CALL;
    return result;
}

NOT_INLINE static void ask_here(gdr_t g, gdr_mh_t handle)
{
    gdr_info_v2_t info;

    CHECK_OK(gdr.get_info_v2(g, handle, &info));
    KEEP_CALL;
}

/* Everything that is reported, in numbers that a test knows. */
static void everything(gdr_t g)
{
    gdr_mh_t handle, forged = {12345};
    char *va;
    int i;

    for (i = 0; i < 12; i++)
        CHECK_OK(gdr.unpin_buffer(g, pin_here(g)));
    handle = pin_here(g);
    CHECK_EQUAL(copy_here(handle, host, 8), EINVAL); /* not mapped */
    va = map_here(g, handle);
    for (i = 0; i < 200; i++) {
        ask_here(g, handle);
        CHECK_OK(copy_here(handle, va + 8 * i, 8));
    }
    for (i = 0; i < 9; i++) /* One more would get advice, where they are slow. */
        CHECK_OK(gdr.copy_from_mapping(handle, host, va, 16384));
    CHECK_OK(gdr.copy_from_mapping(handle, host, va, 1));
    CHECK_EQUAL(copy_here(forged, va, 8), EINVAL);
    CHECK_OK(gdr.unpin_buffer(g, handle));
    CHECK_EQUAL(copy_here(handle, va, 8), EINVAL); /* unpinned */
    map_here(g, pin_here(g));                      /* left at the end */
}

/* A mapping that begins inside a page of the GPU. */
static void unaligned(gdr_t g)
{
    const size_t head = SIZE / 2;
    gdr_mh_t handle;
    void *va;

    CHECK_OK(gdr.pin_buffer(g, (unsigned long)buffer.address + head, SIZE, 0, 0, &handle));
    CHECK_OK(gdr.map(g, handle, &va, SIZE));
    CHECK_OK(copy_here(handle, (char *)va + head + SIZE - 8, 8));
}

struct copied {
    gdr_mh_t handle;
    char *va;
};

static void *copy_in_thread(void *argument)
{
    const struct copied *to = argument;

    CHECK_OK(copy_here(to->handle, to->va, 8));
    return NULL;
}

/* One after the other, as these often have the same address, and together. */
static void threads(gdr_t g)
{
    pthread_t all[50];
    struct copied to;
    int i;

    to.handle = pin_here(g);
    to.va = map_here(g, to.handle);
    for (i = 0; i < 50; i++) {
        CHECK(pthread_create(&all[i], NULL, copy_in_thread, &to) == 0);
        if (i < 10)
            CHECK(pthread_join(all[i], NULL) == 0);
    }
    for (i = 10; i < 50; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
}

/* A child that cannot write a file of its size. */
static void limited(gdr_t g)
{
    const struct rlimit none = {0, 0};
    gdr_mh_t handle = pin_here(g);
    int status;

    if (fork() == 0) {
        CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
        CHECK_ERROR(copy_here(handle, host, 8), EACCES);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && status == 0);
}

static void ends_in(const char *end, gdr_t g)
{
    gdr_mh_t handle = pin_here(g);
    char *va = map_here(g, handle);

    if (strcmp(end, "empty") == 0) {
        CHECK_OK(copy_here(handle, va, 0));
        return;
    }
    CHECK_OK(copy_here(handle, va, 8));
    if (strcmp(end, "_exit") == 0)
        _exit(7);
    if (strcmp(end, "abort") == 0)
        abort();
    if (strcmp(end, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(end, "outside") == 0)
        copy_here(handle, va + SIZE - 8, 1 << 20); /* also past the end of the memory */
    if (strcmp(end, "fault") == 0)
        *(volatile char *)8 = 0;
    if (strcmp(end, "wait") == 0)
        CHECK(getchar() == EOF);
    if (strcmp(end, "fork") == 0) {
        int status;

        if (fork() == 0) {
            gdr_t own = gdr.open();

            CHECK(own != NULL);
            CHECK_ERROR(copy_here(handle, host, 8), EACCES);
            _exit(0);
        }
        CHECK(wait(&status) > 0 && status == 0);
    }
    if (strcmp(end, "many") == 0) {
        int i;

        for (i = 0; i < 100000; i++)
            CHECK_OK(copy_here(handle, va, 8));
        CHECK_OK(gdr.unpin_buffer(g, handle));
    }
}

int main(int argc, char **argv)
{
    const struct rlimit no_file = {0, 0};
    int left = 600;
    gdr_t g;

    CHECK_EQUAL(argc, 2);
    if (strcmp(argv[1], "full") == 0)
        CHECK(setrlimit(RLIMIT_NOFILE, &no_file) == 0);
    gdr = load_gdrapi(strcmp(argv[1], "wait") == 0 ? "libgdrapi.so.2" : "libgdrapi.so", RTLD_NOW);
    if (strcmp(argv[1], "nothing") == 0 || strcmp(argv[1], "full") == 0)
        return 0;
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, 2 * SIZE);
    g = gdr.open();
    CHECK(g != NULL);
    if (strcmp(argv[1], "everything") == 0)
        everything(g);
    else if (strcmp(argv[1], "unaligned") == 0)
        unaligned(g);
    else if (strcmp(argv[1], "threads") == 0)
        threads(g);
    else if (strcmp(argv[1], "limited") == 0)
        limited(g);
    else if (strcmp(argv[1], "pins") == 0)
        while (left-- > 0)
            pin_here(g);
    else
        ends_in(argv[1], g);
    return 0;
}
