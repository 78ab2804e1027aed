/*
 * Pins end with their owner, however it ends, and with the last descriptor of the driver. The module counts them in a
 * file, for the whole machine: other programs that pin meanwhile disturb these tests.
 */

#include "buffer.h"
#include "fault.h"
#include "processes.h"
#include "tables.h"
#include "watchdog.h"

#include <time.h>

#define SIZE (4 * GPU_PAGE_SIZE)
#define REFCOUNT "/proc/driver/gdrdrv/nv_get_pages_refcount"

/* ---- The count ---- */

/* Page tables pinned now, or -1 if the module does not tell. */
static long refcount(void)
{
    FILE *file = fopen(REFCOUNT, "r");
    long count = -1;

    if (file == NULL)
        return -1;
    if (fscanf(file, "%ld", &count) != 1)
        count = -1;
    fclose(file);
    return count;
}

/* The kernel may take back what a process held a while after it ended; it has as long as a hang takes to be one. */
static void check_refcount_becomes(long wanted)
{
    struct timespec moment = {0, 10 * 1000 * 1000}, second = {1, 0};
    int tries;

    for (tries = 0; refcount() != wanted && tries < 100 + WATCHDOG_PATIENCE; tries++)
        nanosleep(tries < 100 ? &moment : &second, NULL);
    CHECK_EQUAL(refcount(), wanted);
}

/* ---- Owners ---- */

struct owner {
    enum memory_kind kind;
    int maps; /* maps its pin too */
};

static struct buffer own(const struct owner *owner)
{
    gdr_t g = open_connection();
    struct buffer buffer;

    gpu_init();
    buffer = buffer_pin(g, owner->kind, SIZE, pin_v1);
    if (owner->maps)
        buffer_map(&buffer);
    return buffer;
}

/* Ends without giving anything back. */
static void end_with_pin(int socket, void *context)
{
    own(context);
    tell(socket);
    await(socket);
}

static void unpin(int socket, void *context)
{
    struct buffer buffer = own(context);

    tell(socket);
    await(socket);
    CHECK_OK(gdr_unpin_buffer(buffer.g, buffer.handle));
    tell(socket);
    await(socket);
    close_connection(buffer.g);
}

static void close_without_unpin(int socket, void *context)
{
    struct buffer buffer = own(context);

    tell(socket);
    await(socket);
    close_connection(buffer.g);
    tell(socket);
    await(socket);
}

/* Closes the descriptor behind the library's back, and then lives on. */
static void lose_descriptor(int socket, void *context)
{
    struct buffer buffer = own(context);
    int holds;

    tell(socket);
    await(socket);
    CHECK(close(descriptor_of(buffer.g)) == 0);
    /* A mapping that is left holds the driver's file, and so the pin; or the module has ended it with the descriptor. */
    holds = buffer.va != NULL && fault_at(buffer.va) == 0;
    send_bytes(socket, &holds, sizeof(holds));
    await(socket);
    if (buffer.va != NULL)
        CHECK_OK(gdr_unmap(buffer.g, buffer.handle, buffer.va, buffer.memory.size));
    tell(socket);
    await(socket);
    _exit(0);
}

static void inherit(int socket, void *context)
{
    (void)context;
    await_end(socket);
}

/* Ends without giving anything back, after the child that inherited its descriptor. */
static void end_after_heir(int socket, void *context)
{
    struct process heir;

    own(context);
    heir = start_process(inherit, NULL);
    finish_process(&heir);
    tell(socket);
    await(socket);
}

/* ---- The test, which itself holds nothing ---- */

static long unpinned; /* the count without the pin of the owner under test */

static struct process start_owner(void (*part)(int socket, void *context), struct owner *owner)
{
    struct process process = start_process(part, owner);

    await(process.socket);
    check_refcount_becomes(unpinned + 1);
    return process;
}

static void next_step(struct process *process, long pins_then)
{
    tell(process->socket);
    await(process->socket);
    check_refcount_becomes(unpinned + pins_then);
}

static void end(struct process *process)
{
    tell(process->socket);
    finish_process(process);
    check_refcount_becomes(unpinned);
}

static void owners_end(struct owner *owner)
{
    struct process process;
    int holds;

    process = start_owner(unpin, owner);
    next_step(&process, 0);
    end(&process);

    process = start_owner(close_without_unpin, owner);
    next_step(&process, 0);
    end(&process);

    process = start_owner(lose_descriptor, owner);
    tell(process.socket);
    receive_bytes(process.socket, &holds, sizeof(holds));
    check_refcount_becomes(unpinned + holds);
    next_step(&process, 0);
    end(&process);

    process = start_owner(end_with_pin, owner);
    end(&process);

    process = start_owner(end_after_heir, owner);
    end(&process);

    process = start_owner(end_with_pin, owner);
    kill_process(&process);
    check_refcount_becomes(unpinned);
}

static void leakage_pin_pages_fork(enum memory_kind kind)
{
    gdr_t g = open_connection();
    struct owner owner;

    if (uses_dmabuf(g))
        waive_test("nothing counts dma-bufs");
    close_connection(g);
    unpinned = refcount();
    if (unpinned < 0)
        waive_test(REFCOUNT " does not tell the count; load gdrdrv with dbg_enabled=1");
    owner.kind = kind;
    for (owner.maps = 0; owner.maps < 2; owner.maps++)
        owners_end(&owner);
}

const struct test leakage_tests[] = {
    {"leakage_pin_pages_fork", leakage_pin_pages_fork, BOTH_KINDS, 0},
    END_OF_TESTS,
};
