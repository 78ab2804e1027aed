/*
 * Tests that tokens give no access. emugpu does not compare the process that a token names with the calling process, so
 * no token may reach emugpu. For persistent pins, tokens are refused. For other pins, they are ignored, and the memory
 * is that of the calling process.
 *
 * usage: tokens [rounds]
 */

#include "device.h"

#define OURS 0x11
#define THEIRS 0x5e

static struct gpu_memory theirs;
static long rounds_wanted;
static int traditional;

static int pin_with_tokens(int fd, struct gpu_memory memory, uint64_t p2p_token, uint32_t va_space, uint64_t *handle)
{
    struct gdrdrv_pin_buffer a = {
        .addr = memory.va, .size = memory.size, .p2p_token = p2p_token, .va_space = va_space, .handle = 77};
    int error = command(fd, GDRDRV_IOC_PIN_BUFFER, &a);

    CHECK(error == 0 || a.handle == 77);
    *handle = a.handle;
    return error;
}

static void memory_of_others_stays_out_of_reach(void)
{
    const uint32_t process = (uint32_t)getppid();
    int fd = driver_open();

    drop_privileges();
    handle_faults();
    for (int with_gpu = 0; with_gpu < 2; with_gpu++) {
        uint64_t handle;
        int error = pin_with_tokens(fd, theirs, EMUGPU_TOKEN(process), process, &handle);

        if (error == 0) {
            unsigned char value = 0, *va = mapped(fd, handle, theirs.size);
            int signal = touch(va, &value);

            fprintf(stderr, "%s:%d: memory of process %u: signal %d, %#x\n", __FILE__, __LINE__, process, signal,
                    value);
            exit(1);
        }
        CHECK_EQUAL(error, EINVAL);
        CHECK_EQUAL(page_tables(), 0);
        (void)gpu_alloc(GPU_PAGE);
    }
}

/* A process passes the tokens of another process. Both have memory at the same address. */
static void every_token_is_the_callers(void)
{
    CHECK(read(steps[1], &theirs, sizeof(theirs)) == sizeof(theirs));
    const uint32_t self = (uint32_t)getpid(), other = (uint32_t)getppid();
    const struct {
        uint64_t p2p_token;
        uint32_t va_space;
    } tokens[] = {
        {EMUGPU_TOKEN(self), self}, {EMUGPU_TOKEN(other), other}, {EMUGPU_TOKEN(self), other}, {1, 0}, {0, 77}, {1, 77},
    };
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    int fd = driver_open();

    drop_privileges();
    handle_faults();
    CHECK_EQUAL(memory.va, theirs.va);
    memset(memory.view, OURS, GPU_PAGE);
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        uint64_t handle;
        int error = pin_with_tokens(fd, memory, tokens[i].p2p_token, tokens[i].va_space, &handle);

        if (traditional) {
            CHECK_OK(error);
            CHECK_PAGES(mapped(fd, handle, GPU_PAGE), GPU_PAGE, OURS);
            CHECK_OK(unpin(fd, handle));
        } else {
            CHECK_ERROR(error, EINVAL);
        }
        CHECK_EQUAL(page_tables(), 0);
    }
}

/* The unpin may come after the free of the memory, which frees the page table. If gdrdrv passed the tokens on, a GPU
   driver would free the table a second time. emugpu warns instead. */
static void unpin_against_free_frees_once(void)
{
    const uint32_t self = (uint32_t)getpid();
    struct live_pin live = {.fd = driver_open()};
    unsigned int seed = 1;

    drop_privileges();
    for (long round = 0; round < rounds_wanted; round++) {
        struct gpu_memory memory = gpu_alloc(GPU_PAGE);

        gpu_inject((struct emugpu_inject){.put_delay = (uint32_t)(round % 3) * 200});
        CHECK_OK(pin_with_tokens(live.fd, memory, EMUGPU_TOKEN(self), self, &live.handle));
        pthread_t thread = start_thread(unpin_thread, &live);
        delay(&seed, 200000);
        gpu_free(memory);
        finish_thread(thread);
        CHECK_EQUAL(page_tables(), 0);
    }
}

int main(int argc, char **argv)
{
    rounds_wanted = argc > 1 ? atol(argv[1]) : 300;
    traditional = !pins_persist();
    if (traditional)
        in_child(unpin_against_free_frees_once);

    pid_t child = start_steps(every_token_is_the_callers);
    theirs = gpu_alloc(GPU_PAGE);
    memset(theirs.view, THEIRS, GPU_PAGE);
    in_child(memory_of_others_stays_out_of_reach);
    CHECK(write(steps[0], &theirs, sizeof(theirs)) == sizeof(theirs));
    finish_steps(child);
    CHECK_PAGES(theirs.view, GPU_PAGE, THEIRS);
    return passed("tokens");
}
