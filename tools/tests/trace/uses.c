/* Uses libgdrapi in each way that gdrcopy trace reports; the first argument says how. Not linked with libgdrapi. */

#include "loaded.h"

#include <signal.h>
#include <sys/wait.h>

#define SIZE GPU_PAGE_SIZE
#define NOT_INLINE __attribute__((noinline, noclone))
/* The call is no tail call: the caller stays on the stack. */
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
    for (i = 0; i < 10; i++)
        CHECK_OK(gdr.copy_from_mapping(handle, host, va, 16384));
    CHECK_OK(gdr.copy_from_mapping(handle, host, va, 1));
    CHECK_EQUAL(copy_here(forged, va, 8), EINVAL);
    CHECK_OK(gdr.unpin_buffer(g, handle));
    CHECK_EQUAL(copy_here(handle, va, 8), EINVAL); /* unpinned */
    map_here(g, pin_here(g));                      /* left at the end */
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
        copy_here(handle, va + SIZE - 8, 1 << 20); /* past the end of the memory, too */
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
    gdr_t g;

    CHECK_EQUAL(argc, 2);
    gdr = load_gdrapi(strcmp(argv[1], "wait") == 0 ? "libgdrapi.so.2" : "libgdrapi.so", RTLD_NOW);
    if (strcmp(argv[1], "nothing") == 0)
        return 0;
    gpu_init();
    buffer = gpu_alloc(MEM_ALLOC, 2 * SIZE);
    g = gdr.open();
    CHECK(g != NULL);
    if (strcmp(argv[1], "everything") == 0)
        everything(g);
    else
        ends_in(argv[1], g);
    return 0;
}
