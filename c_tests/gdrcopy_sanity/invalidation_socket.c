/*
 * The driver's descriptor, sent to another process over a unix socket, is useless there. The receiver tries it by
 * itself, in place of its own connection's descriptor, and in a forged connection.
 */

#include "buffer.h"
#include "kit/descriptor.h"
#include "processes.h"
#include "tables.h"

#include <sys/mman.h>

#define SIZE (4 * GPU_PAGE_SIZE)

/* The objects behind a gdr_t and a gdr_mh_t of release 2.6, as far as programs are known to copy them. */
#define GDR_BYTES 48
#define HANDLE_BYTES 104

/* The sender is the test itself. The receiver was started before. */
static void send_to(struct process *receiver, enum gpu_memory kind)
{
    gdr_t g = open_driver();

    gpu_init();
    struct buffer mapped = buffer_pin_and_map(g, kind, SIZE);
    struct buffer pinned = buffer_pin(g, kind, SIZE, pin);
    (void)send_descriptor(receiver->socket, descriptor_of(g)); /* if that fails, so does the next */
    send_bytes(receiver->socket, (const void *)pinned.handle.h, HANDLE_BYTES);
    await_step(receiver->socket);

    check_views_agree(&mapped, 1);
    buffer_map(&pinned);
    check_views_agree(&pinned, 2);
    buffer_drop(&pinned);
    buffer_drop(&mapped);
    CHECK_OK(gdr_close(g));
    signal_step(receiver->socket);
    finish_process(receiver);
}

/* ---- The receiver ---- */

/* The receiver's means of trying the descriptor. */
struct receiver {
    gdr_t own;             /* its own connection, whose descriptor is now the sender's */
    struct buffer buffer;  /* pinned while the descriptor was still its own */
    int descriptor;        /* the sender's */
    unsigned char handle[HANDLE_BYTES] __attribute__((aligned(16))); /* what a handle of the sender's points to */
    unsigned char forged[GDR_BYTES] __attribute__((aligned(16)));    /* a connection with the sender's descriptor */
};

static void receive(struct receiver *receiver, int socket, enum gpu_memory kind)
{
    receiver->own = open_driver();
    gpu_init();
    receiver->buffer = buffer_pin(receiver->own, kind, SIZE, pin);
    receiver->descriptor = receive_descriptor(socket);
    receive_bytes(socket, receiver->handle, HANDLE_BYTES);

    memcpy(receiver->forged, (const void *)receiver->own, GDR_BYTES);
    memcpy(receiver->forged, &receiver->descriptor, sizeof(int));
    CHECK(dup2(receiver->descriptor, descriptor_of(receiver->own)) >= 0);
}

static void pin_by_received_descriptor(int socket, void *context)
{
    struct receiver receiver;
    gdr_mh_t handle = {0};

    receive(&receiver, socket, *(enum gpu_memory *)context);
    CUdeviceptr address = receiver.buffer.memory.address;
    CHECK_ERROR(gdr_pin_buffer(receiver.own, (unsigned long)address, SIZE, 0, 0, &handle), EACCES);
    CHECK_ERROR(gdr_pin_buffer_v2(receiver.own, (unsigned long)address, SIZE, 0, &handle), EACCES);
    CHECK(gdr_pin_buffer((gdr_t)(void *)receiver.forged, (unsigned long)address, SIZE, 0, 0, &handle) != 0);
    CHECK_EQUAL(handle.h, 0);
    exchange_steps(socket);
}

static void map_by_received_descriptor(int socket, void *context)
{
    struct receiver receiver;
    gdr_mh_t senders;
    void *va = NULL;

    receive(&receiver, socket, *(enum gpu_memory *)context);
    senders.h = (unsigned long)receiver.handle;
    CHECK(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, receiver.descriptor, 0) == MAP_FAILED);
    CHECK_EQUAL(errno, EACCES);
    CHECK_ERROR(gdr_map(receiver.own, receiver.buffer.handle, &va, SIZE), EACCES);
    CHECK(gdr_map(receiver.own, senders, &va, SIZE) != 0);
    CHECK(gdr_map((gdr_t)(void *)receiver.forged, senders, &va, SIZE) != 0);
    CHECK(va == NULL);
    exchange_steps(socket);
}

/* ---- Tests ---- */

static void send_to_receiver(enum gpu_memory kind, void (*part)(int socket, void *context))
{
    gdr_t g = open_driver();

    if (uses_dmabuf(g))
        waive("with dma-bufs there is no driver descriptor to send");
    CHECK_OK(gdr_close(g));
    struct process receiver = start_process(part, &kind);
    send_to(&receiver, kind);
}

static void invalidation_unix_sock_shared_fd_gdr_pin_buffer(enum gpu_memory kind)
{
    send_to_receiver(kind, pin_by_received_descriptor);
}

static void invalidation_unix_sock_shared_fd_gdr_map(enum gpu_memory kind)
{
    send_to_receiver(kind, map_by_received_descriptor);
}

const struct test socket_tests[] = {
    {"invalidation_unix_sock_shared_fd_gdr_pin_buffer", invalidation_unix_sock_shared_fd_gdr_pin_buffer, BOTH_KINDS, 0},
    {"invalidation_unix_sock_shared_fd_gdr_map", invalidation_unix_sock_shared_fd_gdr_map, BOTH_KINDS, 0},
    END_OF_TESTS,
};
