/*
 * `watched COMMAND ...` runs a command in a process group, and kills the group if it hangs (kit/watch.h). Exit status:
 * the command's, 128 + N if signal N ended it, 124 if it hung, 125 if `watched` failed, 127 if the command is missing.
 */

#include "kit/watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct watchdog dog = {0, 0, 0};
    struct timespec second = {1, 0};
    int status, hung = 0;
    sigset_t signals, before;

    if (argc < 2) {
        fprintf(stderr, "usage: watched COMMAND ...\n");
        return 125;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, &before);
    dog.group = fork();
    if (dog.group == 0) {
        watchdog_enter_group();
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(argv[1], argv + 1);
        fprintf(stderr, "watched: %s: %s\n", argv[1], strerror(errno));
        _exit(127);
    }
    if (dog.group < 0)
        return 125;
    while (waitpid(dog.group, &status, WNOHANG) == 0) {
        int signal = sigtimedwait(&signals, NULL, &second);

        if (signal == SIGINT || signal == SIGTERM)
            kill(-dog.group, signal);
        if (!hung && signal == -1 && watchdog_sees_hang(&dog)) {
            kill(-dog.group, SIGKILL);
            hung = 1;
        }
    }
    if (hung)
        return 124;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
