/*
 * Without gdrdrv, gdr_open loads libcuda once and never unloads it. While it loads libcuda, it holds no lock. Else a
 * child that is forked at that time would inherit the locked lock, and wait for it forever. This program runs outside
 * gdremu, with fake_cuda/libcuda.so.1 on the library path.
 */

#include "kit/check.h"
#include "gdrapi.h"

#include <dlfcn.h>

static void find_fake(void)
{
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);

    if (libcuda == NULL || dlsym(libcuda, "fake_cuda_calls") == NULL)
        waive("fake_cuda is not on the library path");
    CHECK(dlclose(libcuda) == 0);
}

static void library_stays_loaded_and_failure_is_remembered(void)
{
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
    CHECK(gdr_open() == NULL);
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(libcuda != NULL);
    int *calls = dlsym(libcuda, "fake_cuda_calls");
    CHECK(calls != NULL);
    CHECK_EQUAL(*calls, 1);
    for (int i = 0; i < 3; i++)
        CHECK(gdr_open() == NULL);
    CHECK_EQUAL(*calls, 1);
    CHECK(dlclose(libcuda) == 0);
}

static void *open_in_thread(void *unused)
{
    (void)unused;
    CHECK(gdr_open() == NULL);
    return NULL;
}

static void open_in_child(void)
{
    CHECK(gdr_open() == NULL);
}

/* Forks while gdr_open of another thread is inside libcuda. If gdr_open held a lock, the child would wait forever. */
static void child_forked_during_load_can_open(void)
{
    int in[2], out[2];
    char gate[64], byte;

    CHECK(pipe(in) == 0 && pipe(out) == 0);
    snprintf(gate, sizeof(gate), "%d %d %d", (int)getpid(), in[1], out[0]);
    CHECK(setenv("FAKE_CUDA_GATE", gate, 1) == 0);
    pthread_t thread = start_thread(open_in_thread, NULL);
    CHECK(read(in[0], &byte, 1) == 1);
    in_child(open_in_child);
    CHECK(write(out[1], &byte, 1) == 1);
    finish_thread(thread);
}

int main(void)
{
    if (access("/dev/gdrdrv", F_OK) == 0)
        waive("/dev/gdrdrv exists");
    find_fake();
    in_child(child_forked_during_load_can_open);
    library_stays_loaded_and_failure_is_remembered();
    return passed("libcuda_load");
}
