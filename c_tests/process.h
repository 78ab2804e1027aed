/* Reads what /proc reports about this process, and drops a privilege. */
#ifndef PROCESS_H
#define PROCESS_H

#include "kit/check.h"

#include <dirent.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/syscall.h>

/* Returns a field of /proc/self/status that is in KiB, for example status_kib("VmLck"). */
static inline long status_kib(const char *name)
{
    FILE *file = fopen("/proc/self/status", "r");
    size_t len = strlen(name);
    char line[256];
    long kib = -1;

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            kib = atol(line + len + 1);
    fclose(file);
    CHECK(kib >= 0);
    return kib;
}

/* Gives up root's capability CAP_IPC_LOCK, because a process that has it may lock more memory than its limit. */
static inline void drop_ipc_lock(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

    CHECK(syscall(SYS_capget, &header, sets) == 0);
    sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    CHECK(syscall(SYS_capset, &header, sets) == 0);
}

/* Returns whether the program runs without a sanitizer and without valgrind. With them, /proc does not show how much
   memory the program itself uses, because both use memory of this process, and keep memory that was freed. */
static inline int memory_is_its_own(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 0;
#else
    return slowness() == 1;
#endif
}

/* Returns the number of threads of this process. */
static inline int process_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Returns the number of mappings, as vm.max_map_count counts them. */
static inline int mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int lines = 0, c;

    CHECK(file != NULL);
    while ((c = getc(file)) != EOF)
        lines += c == '\n';
    fclose(file);
    return lines;
}

/* Returns whether the mapping at an address has this flag of /proc/self/smaps, for example "dd" (not in
   core files). */
static inline int has_flag(const void *address, const char *flag)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    int inside = 0, found = -1;
    unsigned long start, end;
    char line[4096 + 256];

    CHECK(file != NULL);
    while (found < 0 && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (uintptr_t)address && (uintptr_t)address < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line + 8, flag) != NULL;
    }
    fclose(file);
    CHECK(found >= 0);
    return found;
}

#endif
