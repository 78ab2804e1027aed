/* Suspends and resumes this process, as `gdrcopy suspend` and `gdrcopy resume` do from outside. */
#ifndef SUSPENSION_H
#define SUSPENSION_H

#include "process.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

/* A connection to the listener of a process, or -1. */
static inline int connect_to_listener(pid_t pid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "gdrcopy-suspend-%d-0", (int)pid);
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(client >= 0);
    if (connect(client, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) == 0)
        return client;
    close(client);
    return -1;
}

/* Returns the answer of the listener to a request. "" is success. */
static inline const char *request(pid_t pid, const char *word)
{
    static __thread char answer[1024];
    int client = connect_to_listener(pid);
    size_t len = 0;
    ssize_t more;

    CHECK(client >= 0);
    /* Fails where the listener refuses the user, and has answered that. */
    (void)!send(client, word, strlen(word), MSG_NOSIGNAL);
    while ((more = read(client, answer + len, sizeof(answer) - 1 - len)) > 0)
        len += (size_t)more;
    answer[len] = '\0';
    close(client);
    return answer;
}

#define SUSPEND() CHECK_STRING(request(getpid(), "suspend"), "")
#define RESUME() CHECK_STRING(request(getpid(), "resume"), "")

/* Returns whether a descriptor is the listener's end of a connection. */
static inline int is_served(int fd)
{
    struct sockaddr_un own = {0};
    socklen_t len = sizeof(own) - 1, of_listens = sizeof(int);
    int listens;

    return getsockname(fd, (struct sockaddr *)&own, &len) == 0 && own.sun_family == AF_UNIX &&
           strncmp(own.sun_path + 1, "gdrcopy-suspend-", 16) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &of_listens) == 0 && !listens;
}

/* Number of connections that the listener of this process has. Clients see the end of one a moment before it is closed. */
static inline int served_connections(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += is_served(fd);
    return count;
}

/* Number of descriptors of the driver. */
static inline int driver_descriptors(void)
{
    DIR *descriptors = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    CHECK(descriptors != NULL);
    while ((entry = readdir(descriptors)) != NULL) {
        char path[300], target[300];

        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        ssize_t len = readlink(path, target, sizeof(target) - 1);
        target[len > 0 ? len : 0] = '\0';
        /* The second is gdremu's. */
        count += strcmp(target, "/dev/gdrdrv") == 0 || (strstr(target, "/gdremu-") != NULL && strstr(target, "/devices/") != NULL);
    }
    closedir(descriptors);
    return count;
}

/* Ends a child. _exit would do, but valgrind's search for leaks crashes in children with addresses of closed mappings. */
static inline void end_child(void)
{
    execlp("true", "true", NULL);
    CHECK(!"there is a program true");
}

#endif
