/* Opens libgdrapi in this process, and in a child if there is an argument. Prints its number, and for each line of its input
   the states of both. Pins and maps, where the library takes any address. */
#include "gdrapi.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    (void)argv;
    volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int looks; /* of the child at its state, until now */
    gdr_mh_t handle;
    void *va;

    if (argc > 1 && fork() == 0) {
        volatile int *descriptor = (int *)(void *)gdr_open();

        while (getppid() != 1) {
            shared[0] = *descriptor;
            shared[1]++;
            usleep(100);
        }
        return 0;
    }
    gdr_t g = gdr_open();
    while (argc > 1 && shared[1] == 0)
        usleep(100);
    if (gdr_pin_buffer(g, 1 << 16, 1 << 16, 0, 0, &handle) == 0)
        gdr_map(g, handle, &va, 1 << 16);
    printf("%d\n", getpid());
    fflush(stdout);
    while (getchar() == '\n') {
        for (looks = shared[1]; argc > 1 && shared[1] < looks + 2;)
            usleep(100);
        printf("%s %s\n", *(int *)(void *)g < 0 ? "suspended" : "open", argc < 2 ? "" : shared[0] < 0 ? "suspended" : "open");
        fflush(stdout);
    }
    return 0;
}
