/*
 * Distinguishes a test that hangs from one that is slow. On a busy system a test may wait for a CPU for any time.
 *
 * A process group hangs if for five minutes all its threads slept and none of them used a CPU. A process in an endless
 * loop reaches its CPU time limit.
 */
#ifndef WATCH_H
#define WATCH_H

#include <sys/types.h>

/* Calls of watchdog_sees_hang(), one per second, without activity. */
#define WATCHDOG_PATIENCE 300
/* Seconds of CPU time of one process, as `ulimit -t` takes them. */
#define WATCHDOG_CPU_LIMIT 1800

struct watchdog {
    pid_t group;
    unsigned long long last; /* what the group's processes had used */
    int idle;                /* number of consecutive calls without activity */
};

/* Makes the calling child the leader of a process group, with the CPU limit. Its parent watches that group. */
void watchdog_enter_group(void);

/* Returns whether the group hangs. If it does, prints the calls that its threads wait in. */
int watchdog_sees_hang(struct watchdog *dog);

#endif
