/*
 * /proc/driver/gdrdrv/pins has a line for each pin of any process, and only root with CAP_SYS_ADMIN can read it.
 *
 * usage: pins [rounds]
 */

#include "device.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define FILE_NAME "/proc/driver/gdrdrv/pins"
#define NAME "a\001\351 name\nof two"

struct line {
    int pid;
    unsigned int uid;
    char gpu[44];
    unsigned long long bytes;
    char mapped[8], type[16];
    unsigned long long age;
    char command[64];
};

/* Reads all lines and checks their format. Stores the lines of a process's pins, and returns how many these are. */
static int lines_of(pid_t pid, struct line *lines, int most)
{
    const char *const header[] = {"pid", "uid", "gpu", "bytes", "mapped", "type", "age", "command", NULL};
    FILE *file = fopen(FILE_NAME, "r");
    char text[256], *rest = NULL;
    int count = 0;

    CHECK(file != NULL);
    CHECK(fgets(text, sizeof(text), file) != NULL);
    for (int i = 0; header[i] != NULL; i++)
        CHECK_STRING(strtok_r(i ? NULL : text, " \n", &rest), header[i]);
    CHECK(strtok_r(NULL, " \n", &rest) == NULL);
    while (fgets(text, sizeof(text), file) != NULL) {
        struct line line;

        CHECK_EQUAL(text[strlen(text) - 1], '\n');
        int end = 0;
        (void)sscanf(text, "%d %u %43s %llu %7s %15s %llu %n", &line.pid, &line.uid, line.gpu, &line.bytes, line.mapped,
                     line.type, &line.age, &end);
        CHECK(end > 0);
        snprintf(line.command, sizeof(line.command), "%.60s", text + end);
        CHECK(strcmp(line.mapped, "yes") == 0 || strcmp(line.mapped, "no") == 0);
        if (line.pid != pid)
            continue;
        CHECK_COMPARE(count, <, most);
        lines[count++] = line;
    }
    CHECK(fclose(file) == 0);
    return count;
}

static void check_line(const struct line *line, uint64_t bytes, const char *mapped, const char *type)
{
    CHECK_EQUAL(line->uid, UNPRIVILEGED);
    CHECK_STRING(line->gpu, EMUGPU_UUID);
    CHECK_EQUAL(line->bytes, bytes);
    CHECK_STRING(line->mapped, mapped);
    CHECK_STRING(line->type, type);
    CHECK_COMPARE(line->age, <, 1000);
    CHECK_STRING(line->command, "a\\001\\351 name\\012of two\n");
}

static void child_of_user(void)
{
    struct gpu_memory memory = gpu_alloc(3 * GPU_PAGE);
    int fd = driver_open();

    (void)pinned(fd, memory);
    next_step();
}

static void user(void)
{
    uint64_t first, second, third;

    drop_privileges();
    CHECK(open(FILE_NAME, O_RDONLY) < 0);
    CHECK_EQUAL(errno, EACCES);
    CHECK(prctl(PR_SET_NAME, NAME) == 0);
    struct gpu_memory memory = gpu_alloc(2 * GPU_PAGE);
    int fd = driver_open();
    next_step(); /* no pin */
    CHECK_OK(pin(fd, memory.va, GPU_PAGE, &first));
    next_step(); /* one pin */
    CHECK_OK(pin(fd, memory.va + 8, GPU_PAGE, &second));
    unsigned char *va = mapped(fd, first, GPU_PAGE);
    next_step(); /* two pins, and the first is mapped */
    CHECK(munmap(va, GPU_PAGE) == 0);
    next_step(); /* in this step, the user has two pins */
    in_child(child_of_user);
    CHECK_OK(unpin(fd, first));
    next_step(); /* now the user has only the second pin */
    va = mapped(fd, pinned(fd, memory), 2 * GPU_PAGE);
    CHECK(close(fd) == 0);
    next_step(); /* two pins again: their file is closed, but the mapping keeps it in use */
    CHECK(munmap(va, 2 * GPU_PAGE) == 0);
    next_step(); /* now no pin */
    fd = driver_open();
    CHECK_OK(pin(fd, memory.va, GPU_PAGE, &third));
    gpu_renew(memory);
    next_step(); /* now one pin if pins are persistent, else none */
}

/* Waits until the child has taken a step. Stores the lines of the child's pins, by size, and returns how many. */
static int step(pid_t pid, struct line lines[2])
{
    await(steps[0]);
    int count = lines_of(pid, lines, 2);
    if (count == 2 && lines[0].bytes > lines[1].bytes) {
        struct line first = lines[1];

        lines[1] = lines[0];
        lines[0] = first;
    }
    return count;
}

/* Checks that the awk command in gdrdrv-c/README.md prints how much of a GPU each user has pinned. */
static void check_sums(void)
{
    char text[256], expected[256];
    FILE *sums = popen("eval \"$(grep ^awk $(dirname $(readlink /proc/$PPID/exe))/../../../gdrdrv-c/README.md)\"", "r");

    CHECK(sums != NULL && fgets(text, sizeof(text), sums) != NULL);
    snprintf(expected, sizeof(expected), "%s: %ld KiB of uid %d\n", EMUGPU_UUID, 6 * GPU_PAGE / 1024, UNPRIVILEGED);
    CHECK_STRING(text, expected);
    CHECK(fgets(text, sizeof(text), sums) == NULL);
    CHECK(pclose(sums) == 0);
}

static void pins_of_a_user(void)
{
    struct line lines[2];

    pid_t child = start_steps(user);
    CHECK_EQUAL(step(child, lines), 0);
    say(steps[0]);
    CHECK_EQUAL(step(child, lines), 1);
    check_line(&lines[0], GPU_PAGE, "no", "-");
    say(steps[0]);
    CHECK_EQUAL(step(child, lines), 2);
    check_line(&lines[0], GPU_PAGE, "yes", "WC");
    check_line(&lines[1], 2 * GPU_PAGE, "no", "-");
    say(steps[0]);
    CHECK_EQUAL(step(child, lines), 2);
    check_line(&lines[0], GPU_PAGE, "no", "-");
    say(steps[0]);
    CHECK_EQUAL(step(child, lines), 2); /* the child of user() has pinned, too */
    check_sums();
    CHECK_EQUAL(page_tables(), 3);
    say(steps[0]);
    CHECK_EQUAL(step(child, lines), 1);
    check_line(&lines[0], 2 * GPU_PAGE, "no", "-");
    say(steps[0]);
    CHECK_EQUAL(step(child, lines), 2);
    say(steps[0]);
    CHECK_EQUAL(step(child, lines), 0);
    say(steps[0]);
    CHECK_EQUAL(step(child, lines), pins_persist());
    say(steps[0]);
    finish_steps(child);
    CHECK_EQUAL(lines_of(child, lines, 2), 0);
}

/* Opens the device, pins and closes again and again, until it is killed or its parent ends. */
static void pin_forever(void)
{
    drop_privileges();
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    struct gpu_memory memory = gpu_alloc(GPU_PAGE);
    for (unsigned int i = 0;; i++) {
        int fd = driver_open();
        uint64_t handle = pinned(fd, memory);

        if (i % 3 == 1)
            CHECK_OK(unpin(fd, handle));
        if (i % 3 == 2)
            CHECK(munmap(mapped(fd, handle, GPU_PAGE), GPU_PAGE) == 0);
        CHECK(close(fd) == 0);
    }
}

/* Each line of /proc/driver/gdrdrv/pins must be complete, even if its pin ends while the file is read. */
static void read_while_pins_end(long rounds_wanted)
{
    static struct line lines[1000];
    long round, seen = 0;

    pid_t child = start_child(pin_forever);
    for (round = 0; round < rounds_wanted || seen == 0; round++)
        seen += lines_of(child, lines, 1000) > 0;
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_EQUAL(lines_of(child, lines, 1000), 0);
    printf("%ld reads, a pin in %ld\n", round, seen);
}

/* Runs `pins refused` as root without CAP_SYS_ADMIN, which root lacks in a container without a user namespace. */
static void root_without_capabilities(void)
{
    CHECK(prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN) == 0);
    execl("/proc/self/exe", "pins", "refused", (char *)NULL);
    _exit(127);
}

int main(int argc, char **argv)
{
    struct stat file;

    if (argc > 1 && strcmp(argv[1], "refused") == 0) {
        CHECK_EQUAL(geteuid(), 0);
        CHECK(open(FILE_NAME, O_RDONLY) < 0);
        CHECK_EQUAL(errno, EPERM);
        return 0;
    }

    CHECK(stat(FILE_NAME, &file) == 0);
    CHECK_EQUAL(file.st_mode & 07777, 0400);
    in_child(root_without_capabilities);
    pins_of_a_user();
    read_while_pins_end(argc > 1 ? atol(argv[1]) : 2000);
    CHECK_EQUAL(page_tables(), 0);
    return passed("pins");
}
