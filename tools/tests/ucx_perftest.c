/*
 * Answers as UCX's ucx_perftest does to `-b LIST -f -v -p PORT [SERVER]`. The time of a message is TIME in the line `MEMORY
 * MODE SIZE TIME` of the variable FAKE_TIMES or, without such a line, the message's size. MODE is default, model, eager or
 * rendezvous, as the variables of UCX select it. LIST is the file of tests that `gdrcopy tune` writes. Other options
 * are refused, and so are other lines in LIST. The variable FAKE makes this program fail, hang, or print garbage.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int refuse(const char *reason)
{
    printf("[1] UCX  ERROR %s\n", reason);
    return 255;
}

static const char *mode(void)
{
    const char *bandwidth = getenv("UCX_GDR_COPY_BW"), *threshold = getenv("UCX_RNDV_THRESH");

    if (!getenv("UCX_GDR_COPY_LAT") != !bandwidth || (bandwidth && strncmp(bandwidth, "0MBs,", 5)))
        return NULL;
    if (!threshold)
        return bandwidth ? "model" : "default";
    if (!strcmp(threshold, "auto,intra:inf"))
        return "eager";
    if (!strcmp(threshold, "auto,intra:0"))
        return "rendezvous";
    return NULL;
}

/* Returns the time of a message in microseconds. */
static double latency(const char *memory, const char *mode, int size)
{
    const char *times = getenv("FAKE_TIMES");
    char key[100];
    const char *found;

    snprintf(key, sizeof key, "%s %s %d ", memory, mode, size);
    found = times ? strstr(times, key) : NULL;
    return found ? atof(found + strlen(key)) : size;
}

int main(int argc, char **argv)
{
    const char *fake = getenv("FAKE") ? getenv("FAKE") : "", *list = NULL, *memory_of_failure = getenv("FAKE_MEMORY");
    struct sockaddr_in address = { .sin_family = AF_INET };
    int option, final = 0, csv = 0, fd, yes = 1, is_client, size, message, count, warm_up;
    char line[200], memory[32];
    FILE *tests;

    while ((option = getopt(argc, argv, "b:fvp:")) != -1) {
        switch (option) {
        case 'b': list = optarg; break;
        case 'f': final = 1; break;
        case 'v': csv = 1; break;
        case 'p': address.sin_port = htons(atoi(optarg)); break;
        default: return refuse("option");
        }
    }
    is_client = optind + 1 == argc;
    if (!mode())
        return refuse("Invalid value for BW");
    tests = list ? fopen(list, "r") : NULL;
    if (!tests || !final || !csv || !address.sin_port)
        return refuse("usage");

    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!is_client) {
        if (!strcmp(fake, "deaf"))
            return refuse("server failed. bind() failed: Address already in use");
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(fd, (void *)&address, sizeof address) || listen(fd, 1))
            return refuse("bind() failed");
        fd = accept(fd, NULL, NULL);
        return read(fd, line, sizeof line) < 0;
    }
    inet_pton(AF_INET, argv[optind], &address.sin_addr);
    if (connect(fd, (void *)&address, sizeof address))
        return refuse("connect() failed: Connection refused");
    if (!strcmp(fake, "fail"))
        return refuse("no usable transports");
    if (!strcmp(fake, "silent"))
        return 0;
    if (!strcmp(fake, "hang")) {
        /* tune does not know this child, which only a signal to the whole process group reaches. */
        if (!fork())
            execl("/bin/sleep", getenv("FAKE_SLEEP"), "1000", (char *)NULL);
        wait(NULL);
    }
    while (!strcmp(fake, "endless"))
        puts("1,2");
    while (fgets(line, sizeof line, tests)) {
        if (sscanf(line, "%d -t tag_lat -m %31s -s %d -n %d -w %d", &size, memory, &message, &count, &warm_up) != 5 ||
            size != message || count < 1)
            return refuse(line);
        if (!strcmp(fake, "garbage"))
            printf("%d,,\n\xff,%d,nan\n", size, size);
        else if (strcmp(fake, "skip") || size != 8192 || strcmp(memory, memory_of_failure))
            printf("%d,%4d,%.3f,1.0,1.0,1.0,1.0,1,1\n", size, count, latency(memory, mode(), size));
    }
    return 0;
}
