/*
 * Tests that take more than one process, which talk over a socket. A process that ends before its time ends those that
 * wait for it, and so fails the test.
 */
#ifndef SANITY_PROCESSES_H
#define SANITY_PROCESSES_H

#include "test.h"

#include <sys/types.h>

struct process {
    pid_t pid;
    int socket;
};

/*
 * Forks a child that runs part(socket, context) and then ends with status 0. It is killed should its parent die.
 * CUDA works in it only if it was not initialized in this process before.
 */
struct process start_process(void (*part)(int socket, void *context), void *context);

/* Waits for its end; it must have passed. A waived child waives the test. */
void finish_process(struct process *process);

/* Kills it, and waits for its end. */
void kill_process(struct process *process);

/* ---- Both sides ---- */

/* One tells that it has come to a step, the other waits for it. */
void tell(int socket);
void await(int socket);
/* Waits until the other side has closed its socket, or ended. */
void await_end(int socket);

void send_bytes(int socket, const void *bytes, size_t size);
void receive_bytes(int socket, void *bytes, size_t size);

/* Hands over a descriptor of an open file; the receiver's has a number of its own. */
void send_descriptor(int socket, int descriptor);
int receive_descriptor(int socket);

#endif
