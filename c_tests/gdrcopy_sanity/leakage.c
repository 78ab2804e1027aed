/*
 * Pins end with their owner, however it ends, and with the last descriptor of the driver. The module counts the pins
 * of the whole system in a file, so other programs that pin at the same time disturb these tests.
 */

#include "buffer.h"
#include "kit/fault.h"
#include "processes.h"
#include "tables.h"
#include "kit/watch.h"

#include <time.h>

#define SIZE (4 * GPU_PAGE_SIZE)
#define REFCOUNT "/proc/driver/gdrdrv/nv_get_pages_refcount"

/* ---- The count ---- */

/* Page tables pinned now, or -1 if the module does not report it. */
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

/*
 * The kernel may release the pins of a process some time after it ended. Waits as long as the watchdog does before it
 * reports a hang.
 */
static void check_refcount_becomes(long wanted)
{
    struct timespec moment = {0, 10 * 1000 * 1000}, second = {1, 0};

    for (int tries = 0; refcount() != wanted && tries < 100 + WATCHDOG_PATIENCE; tries++)
        nanosleep(tries < 100 ? &moment : &second, NULL);
    CHECK_EQUAL(refcount(), wanted);
}

/* ---- Owners ---- */

struct owner {
    enum gpu_memory kind;
    int maps; /* also maps its pin */
};

static struct buffer own_through(gdr_t g, const struct owner *owner)
{
    gpu_init();
    struct buffer buffer = buffer_pin(g, owner->kind, SIZE, pin);
    if (owner->maps)
        buffer_map(&buffer);
    return buffer;
}

static struct buffer own(const struct owner *owner)
{
    return own_through(open_driver(), owner);
}

/* Exits without unpinning or closing. */
static void end_with_pin(int socket, void *context)
{
    own(context);
    exchange_steps(socket);
}

static void unpin(int socket, void *context)
{
    struct buffer buffer = own(context);

    exchange_steps(socket);
    CHECK_OK(gdr_unpin_buffer(buffer.g, buffer.handle));
    exchange_steps(socket);
    CHECK_OK(gdr_close(buffer.g));
}

static void close_without_unpin(int socket, void *context)
{
    struct buffer buffer = own(context);

    exchange_steps(socket);
    CHECK_OK(gdr_close(buffer.g));
    exchange_steps(socket);
}

/* Closes the descriptor without the library's knowledge, and keeps running. */
static void lose_descriptor(int socket, void *context)
{
    struct buffer buffer = own(context);

    exchange_steps(socket);
    CHECK(close(descriptor_of(buffer.g)) == 0);
    /* A remaining mapping holds the driver's file, and so the pin; or the module has ended it with the descriptor. */
    int holds = buffer.va != NULL && fault_at(buffer.va) == 0;
    send_bytes(socket, &holds, sizeof(holds));
    await_step(socket);
    if (buffer.va != NULL)
        CHECK_OK(gdr_unmap(buffer.g, buffer.handle, buffer.va, buffer.memory.size));
    exchange_steps(socket);
    _exit(0);
}

static void inherit(int socket, void *context)
{
    (void)context;
    await_end(socket);
}

/* Closes the connection that its parent has pinned with since the fork; then it exits only after its parent. */
static void close_inherited(int socket, void *context)
{
    gdr_t *g = context;

    await_step(socket);
    CHECK_OK(gdr_close(*g));
    signal_step(socket);
    await_end(socket);
}

/* Pins after the fork; then its child closes the connection. */
static struct buffer own_after_fork(int socket, const struct owner *owner, struct process *child)
{
    gdr_t g = open_driver();

    *child = start_process(close_inherited, &g);
    struct buffer buffer = own_through(g, owner);
    exchange_steps(socket);
    exchange_steps(child->socket);
    exchange_steps(socket);
    return buffer;
}

static void close_after_child(int socket, void *context)
{
    struct process child;
    struct buffer buffer = own_after_fork(socket, context, &child);

    CHECK_OK(gdr_close(buffer.g));
    exchange_steps(socket);
    finish_process(&child);
}

/* Its descriptor goes as if it was killed, so nothing unpins. */
static void lose_descriptor_after_child(int socket, void *context)
{
    struct process child;
    struct buffer buffer = own_after_fork(socket, context, &child);

    if (buffer.va != NULL)
        CHECK_OK(gdr_unmap(buffer.g, buffer.handle, buffer.va, buffer.memory.size));
    CHECK(close(descriptor_of(buffer.g)) == 0);
    exchange_steps(socket);
    finish_process(&child);
    _exit(0);
}

/* Exits without unpinning or closing, after the child that inherited its descriptor. */
static void end_after_inheriting_child(int socket, void *context)
{
    own(context);
    struct process child = start_process(inherit, NULL);
    finish_process(&child);
    exchange_steps(socket);
}

/* ---- The test; it holds no pins itself ---- */

static long unpinned; /* the count without the pin of the owner under test */

static struct process start_owner(void (*part)(int socket, void *context), struct owner *owner)
{
    struct process process = start_process(part, owner);

    await_step(process.socket);
    check_refcount_becomes(unpinned + 1);
    return process;
}

static void next_step(struct process *process, long pins_then)
{
    exchange_steps(process->socket);
    check_refcount_becomes(unpinned + pins_then);
}

static void end(struct process *process)
{
    signal_step(process->socket);
    finish_process(process);
    check_refcount_becomes(unpinned);
}

static void owners_end(struct owner *owner)
{
    static void (*const after_child[])(int, void *) = {close_after_child, lose_descriptor_after_child};
    int holds;
    struct process process = start_owner(unpin, owner);

    next_step(&process, 0);
    end(&process);

    process = start_owner(close_without_unpin, owner);
    next_step(&process, 0);
    end(&process);

    process = start_owner(lose_descriptor, owner);
    signal_step(process.socket);
    receive_bytes(process.socket, &holds, sizeof(holds));
    check_refcount_becomes(unpinned + holds);
    next_step(&process, 0);
    end(&process);

    process = start_owner(end_with_pin, owner);
    end(&process);

    process = start_owner(end_after_inheriting_child, owner);
    end(&process);

    for (size_t i = 0; i < sizeof(after_child) / sizeof(after_child[0]); i++) {
        process = start_owner(after_child[i], owner);
        next_step(&process, 1); /* closed by the child */
        next_step(&process, 0); /* by both; the child still runs */
        end(&process);
    }

    process = start_owner(end_with_pin, owner);
    kill_process(&process);
    check_refcount_becomes(unpinned);
}

static void leakage_pin_pages_fork(enum gpu_memory kind)
{
    gdr_t g = open_driver();
    struct owner owner;

    if (uses_dmabuf(g))
        waive("dma-bufs are not counted");
    CHECK_OK(gdr_close(g));
    unpinned = refcount();
    if (unpinned < 0)
        waive(REFCOUNT " does not show the count; load gdrdrv with dbg_enabled=1");
    owner.kind = kind;
    for (owner.maps = 0; owner.maps < 2; owner.maps++)
        owners_end(&owner);
}

const struct test leakage_tests[] = {
    {"leakage_pin_pages_fork", leakage_pin_pages_fork, BOTH_KINDS, 0},
    END_OF_TESTS,
};
