/*
 * Distinguishes a test that hangs from one that is slow. On a busy system a test may wait for a CPU for any time.
 *
 * A process group hangs if for five minutes all its threads slept and none of them used a CPU. A process in an endless
 * loop reaches its CPU time limit.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

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
static inline void watchdog_enter_group(void)
{
    struct rlimit limit = {WATCHDOG_CPU_LIMIT, WATCHDOG_CPU_LIMIT + 5};

    setpgid(0, 0);
    setrlimit(RLIMIT_CPU, &limit);
}

/* The fields of a stat file from the third on, or NULL if the process has ended. */
static inline const char *watchdog_stat(const char *process, const char *thread)
{
    static char text[1024];
    char path[600];
    size_t size = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%s%s%s/stat", process, thread != NULL ? "/task/" : "", thread != NULL ? thread : "");
    file = fopen(path, "r");
    if (file != NULL) {
        size = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[size] = '\0';
    return strrchr(text, ')') != NULL ? strrchr(text, ')') + 2 : NULL;
}

/* Returns whether a thread of the process runs, waits for a CPU, or waits for a disk. Prints what each waits for, to
   `report`. */
static inline int watchdog_process_runs(const char *process, FILE *report)
{
    char path[300];
    struct dirent *entry;
    int runs = 0;
    DIR *threads;

    snprintf(path, sizeof(path), "/proc/%s/task", process);
    threads = opendir(path);
    while (threads != NULL && (entry = readdir(threads)) != NULL) {
        const char *stat = isdigit((unsigned char)entry->d_name[0]) ? watchdog_stat(process, entry->d_name) : NULL;

        if (stat == NULL)
            continue;
        runs |= stat[0] == 'R' || stat[0] == 'D';
        if (report != NULL) {
            char where[64] = "";
            FILE *file;

            snprintf(path, sizeof(path), "/proc/%.20s/task/%.20s/wchan", process, entry->d_name);
            file = fopen(path, "r");
            if (file == NULL || fgets(where, sizeof(where), file) == NULL)
                where[0] = '\0';
            if (file != NULL)
                fclose(file);
            fprintf(report, "  process %s, thread %s: state %c, waits in %s\n", process, entry->d_name, stat[0], where);
        }
    }
    if (threads != NULL)
        closedir(threads);
    return runs;
}

/* The group's CPU time so far; *runs says whether it runs now. */
static inline unsigned long long watchdog_used(pid_t group, int *runs, FILE *report)
{
    DIR *processes = opendir("/proc");
    unsigned long long used = 0;
    struct dirent *entry;

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        const char *stat = isdigit((unsigned char)entry->d_name[0]) ? watchdog_stat(entry->d_name, NULL) : NULL;
        unsigned long long user, system;
        int its_group;

        /* state, parent, group, 8 fields, user time, system time */
        if (stat == NULL || sscanf(stat, "%*c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &its_group, &user, &system) != 3)
            continue;
        if (its_group != group)
            continue;
        used += user + system + (unsigned long long)atol(entry->d_name); /* a process that comes or goes is progress */
        *runs |= watchdog_process_runs(entry->d_name, report);
    }
    if (processes != NULL)
        closedir(processes);
    return used;
}

/* Returns whether the group hangs. If so, prints what its threads wait for. */
static inline int watchdog_sees_hang(struct watchdog *dog)
{
    int runs = 0;
    unsigned long long used = watchdog_used(dog->group, &runs, NULL);

    dog->idle = runs || used != dog->last ? 0 : dog->idle + 1;
    dog->last = used;
    if (dog->idle < WATCHDOG_PATIENCE)
        return 0;
    fprintf(stderr, "no progress for %d s:\n", WATCHDOG_PATIENCE);
    watchdog_used(dog->group, &runs, stderr);
    return 1;
}

#endif
