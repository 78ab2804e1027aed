#include "watch.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void watchdog_enter_group(void)
{
    struct rlimit limit = {WATCHDOG_CPU_LIMIT, WATCHDOG_CPU_LIMIT + 5};

    setpgid(0, 0);
    setrlimit(RLIMIT_CPU, &limit);
}

/* Returns the text of /proc/PROCESS/stat or /proc/PROCESS/task/THREAD/stat from the third field (the state) on, or NULL
   if the process has ended. */
static const char *stat_of(const char *process, const char *thread)
{
    static char text[1024];
    char path[600];
    size_t size = 0;

    if (thread != NULL)
        snprintf(path, sizeof(path), "/proc/%s/task/%s/stat", process, thread);
    else
        snprintf(path, sizeof(path), "/proc/%s/stat", process);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        size = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[size] = '\0';
    return strrchr(text, ')') != NULL ? strrchr(text, ')') + 2 : NULL;
}

/* Returns whether a thread of the process runs, waits for a CPU, or waits for a disk. Prints the threads to `report`,
   unless that is NULL. */
static int process_runs(const char *process, FILE *report)
{
    char path[300];
    struct dirent *entry;
    int runs = 0;

    snprintf(path, sizeof(path), "/proc/%s/task", process);
    DIR *threads = opendir(path);
    while (threads != NULL && (entry = readdir(threads)) != NULL) {
        const char *stat = isdigit((unsigned char)entry->d_name[0]) ? stat_of(process, entry->d_name) : NULL;

        if (stat == NULL)
            continue;
        runs |= stat[0] == 'R' || stat[0] == 'D';
        if (report != NULL) {
            char where[64] = "";

            snprintf(path, sizeof(path), "/proc/%.20s/task/%.20s/wchan", process, entry->d_name);
            FILE *file = fopen(path, "r");
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

/* Returns a number that changes if the group's CPU time or processes change. Sets *runs if one of these runs now. */
static unsigned long long used_by(pid_t group, int *runs, FILE *report)
{
    DIR *processes = opendir("/proc");
    unsigned long long used = 0;
    struct dirent *entry;

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        const char *stat = isdigit((unsigned char)entry->d_name[0]) ? stat_of(entry->d_name, NULL) : NULL;
        unsigned long long user, system;
        int its_group;

        /* The fields are: state, parent, group, 8 others, user time, system time. */
        if (stat == NULL || sscanf(stat, "%*c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &its_group, &user, &system) != 3)
            continue;
        if (its_group != group)
            continue;
        used += user + system + (unsigned long long)atol(entry->d_name); /* adds the pid: a new process is progress */
        *runs |= process_runs(entry->d_name, report);
    }
    if (processes != NULL)
        closedir(processes);
    return used;
}

int watchdog_sees_hang(struct watchdog *dog)
{
    int runs = 0;
    unsigned long long used = used_by(dog->group, &runs, NULL);

    dog->idle = runs || used != dog->last ? 0 : dog->idle + 1;
    dog->last = used;
    if (dog->idle < WATCHDOG_PATIENCE)
        return 0;
    fprintf(stderr, "no progress for %d s:\n", WATCHDOG_PATIENCE);
    used_by(dog->group, &runs, stderr);
    return 1;
}
