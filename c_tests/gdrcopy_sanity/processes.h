/*
 * Tests that use several processes, which communicate over a socket. A process that ends early ends those that wait
 * for it, and so fails the test.
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
 * Forks a child that runs part(socket, context) and then exits with status 0. It is killed when its parent dies. CUDA
 * works in it only if it was not initialized in this process before.
 */
struct process start_process(void (*part)(int socket, void *context), void *context);

/* Waits for the child to end; it must have passed. A waived child waives the test. */
void finish_process(struct process *process);

void kill_process(struct process *process);

/* ---- Both sides ---- */

/* One side signals that it has reached a step, the other waits for it. */
void signal_step(int socket);
void await_step(int socket);
/* Signals a step, and waits for the next. */
void exchange_steps(int socket);
/* Waits until the other side has closed its socket, or ended. */
void await_end(int socket);

void send_bytes(int socket, const void *bytes, size_t size);
void receive_bytes(int socket, void *bytes, size_t size);

#endif
