/*
 * Distinguishes a test that hangs from one that is slow. On a busy system, a test may wait very long for a CPU.
 *
 * A process group hangs if for five minutes all its threads slept and none of them used a CPU. A process in an endless
 * loop reaches its CPU time limit.
 */
#ifndef WATCH_H
#define WATCH_H

#include <sys/types.h>

/* A group counts as hung if this many calls of watchdog_sees_hang() in a row, one second apart, see no activity. */
#define WATCHDOG_PATIENCE 300
/* The limit of a process's CPU time in seconds, as `ulimit -t` sets it. */
#define WATCHDOG_CPU_LIMIT 1800

struct watchdog {
    pid_t group;
    unsigned long long last; /* a number that the previous call made from the group's CPU time and processes */
    int idle;                /* number of consecutive calls without activity */
};

/* Makes the calling child the leader of a process group that its parent watches, and limits its CPU time. */
void watchdog_enter_group(void);

/* Returns whether the process group hangs. If it does, prints the state of its threads, and where each waits. */
int watchdog_sees_hang(struct watchdog *dog);

#endif
