/* Opens libgdrapi in this process, and in a child if there is an argument. Prints their numbers, and for each line of its
   input the descriptors of both, which are -1 while suspended. */
#include "gdrapi.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile int *of_parent = NULL;

    (void)argv;
    shared[0] = -2;
    if (argc > 1 && fork() == 0) {
        volatile int *descriptor = (int *)(void *)gdr_open();

        shared[1] = getpid();
        while (getppid() != 1) {
            shared[0] = *descriptor;
            usleep(100);
        }
        return 0;
    }
    of_parent = (int *)(void *)gdr_open();
    while (argc > 1 && shared[0] == -2)
        usleep(100);
    printf("%d\n", getpid());
    fflush(stdout);
    while (getchar() == '\n') {
        usleep(10000);
        printf("%s %s\n", *of_parent < 0 ? "suspended" : "open", argc < 2 ? "" : shared[0] < 0 ? "suspended" : "open");
        fflush(stdout);
    }
    return 0;
}
