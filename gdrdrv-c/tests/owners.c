/* An owner (a process that opened gdrdrv) exits before its child, which has copies of its descriptors. */

#include "device.h"

#include <sys/syscall.h>

#define SIZE (2 * GPU_PAGE)

static int said[2], asked[2], clone_flags;

/* Pins and exits. A child with copies of both descriptors keeps running, and closes each when it is asked to. */
static void end_before_a_child(void)
{
    struct gpu_memory mine = gpu_alloc(SIZE);
    int gpu_fd = gpu(), fd = driver_open();

    (void)pinned(fd, mine);
    if (syscall(SYS_clone, clone_flags | SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
        await(asked[0]);
        CHECK(close(fd) == 0);
        say(said[1]);
        await(asked[0]);
        CHECK(close(gpu_fd) == 0);
        say(said[1]);
        _exit(0);
    }
}

/*
 * If the child shares the owner's descriptor table (CLONE_FILES), the owner's exit closes nothing. If the child then
 * unpins non-persistent pins, the GPU driver ignores that. It revokes them when the child closes the GPU's descriptor.
 */
static void owner_ends_before_its_descriptors(int flags, long at_end, long at_close)
{
    CHECK(pipe(said) == 0 && pipe(asked) == 0);
    clone_flags = flags;
    in_child(end_before_a_child);
    CHECK_EQUAL(page_tables(), at_end);
    say(asked[1]);
    await(said[0]);
    CHECK_EQUAL(page_tables(), at_close);
    say(asked[1]);
    await(said[0]);
    CHECK_EQUAL(page_tables(), 0);
    CHECK(close(said[0]) == 0 && close(said[1]) == 0 && close(asked[0]) == 0 && close(asked[1]) == 0);
}

int main(void)
{
    owner_ends_before_its_descriptors(0, 0, 0);
    owner_ends_before_its_descriptors(CLONE_FILES, 1, !pins_persist());
    CHECK_EQUAL(page_tables(), 0);
    return passed("owners");
}
