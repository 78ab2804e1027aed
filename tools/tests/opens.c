/* Opens libgdrapi in this process, and in a child if there is an argument. Prints its number, and for each line of its input
   the states of both. Pins and maps, where the library takes any address. With the argument "silent" it answers requests by
   nothing, as a thread that is no helper might. */
#include "gdrapi.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

static void silent(void)
{
    sigset_t requests;
    siginfo_t info = {0};
    char name[16];

    sigemptyset(&requests);
    sigaddset(&requests, SIGRTMAX - 1);
    sigprocmask(SIG_BLOCK, &requests, NULL);
    for (;;) {
        snprintf(name, sizeof(name), "gdr%06x%03x", (unsigned)getpid(), (unsigned)info.si_value.sival_int >> 8 & 0xfff);
        prctl(PR_SET_NAME, name);
        if (info.si_signo == 0)
            printf("%d\n", getpid()), fflush(stdout);
        sigwaitinfo(&requests, &info);
    }
}

int main(int argc, char **argv)
{
    volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    gdr_mh_t handle;
    void *va;

    if (argc > 1 && strcmp(argv[1], "silent") == 0)
        silent();
    shared[0] = -2;
    if (argc > 1 && fork() == 0) {
        volatile int *descriptor = (int *)(void *)gdr_open();

        while (getppid() != 1) {
            shared[0] = *descriptor;
            usleep(100);
        }
        return 0;
    }
    gdr_t g = gdr_open();
    while (argc > 1 && shared[0] == -2)
        usleep(100);
    if (gdr_pin_buffer(g, 1 << 16, 1 << 16, 0, 0, &handle) == 0)
        gdr_map(g, handle, &va, 1 << 16);
    printf("%d\n", getpid());
    fflush(stdout);
    while (getchar() == '\n') {
        usleep(10000);
        printf("%s %s\n", *(int *)(void *)g < 0 ? "suspended" : "open", argc < 2 ? "" : shared[0] < 0 ? "suspended" : "open");
        fflush(stdout);
    }
    return 0;
}
