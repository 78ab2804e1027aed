/*
 * Runs the cases, each in a process of its own, and prints their results as TAP.
 *
 * usage: contract [case ...]
 *
 * Exit status: 0 no case failed, 1 a case failed, 2 no case has such a name, 4 there is no device or all cases were
 * skipped.
 */
#include "contract.h"

/* The result of all_page_tables() before the current case. */
static long before;

long page_tables(void)
{
    return before < 0 ? -1 : all_page_tables() - before;
}

int to_child[2], to_parent[2];

int fd;
struct memory memory;
uint64_t handle;
unsigned char *va;

void begin_partly_mapped(uint64_t size, size_t mapped_size)
{
    memory = memory_alloc(size);
    memory_fill(memory, OURS);
    fd = driver_open();
    handle = pinned(fd, memory, size);
    va = mapped(fd, handle, mapped_size);
    CHECK_PAGES(va, mapped_size, OURS);
}

void begin(uint64_t size)
{
    begin_partly_mapped(size, size);
}

void begin_unmapped(uint64_t size)
{
    begin(size);
    unmap(va, size);
}

void exec_self(const char *then, int fd)
{
    char number[16], count[24];

    snprintf(number, sizeof(number), "%d", fd);
    snprintf(count, sizeof(count), "%ld", before);
    execl("/proc/self/exe", "contract", "--after-exec", then, number, count, (char *)NULL);
    _exit(127);
}

/* Runs a case in the process that was forked for it, and writes its output to `output`. */
_Noreturn static void run_case(const struct named_test *c, int output)
{
    CHECK(dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0);
    CHECK(close(output) == 0);
    CHECK(setpgid(0, 0) == 0);
    CHECK(pipe2(to_child, O_CLOEXEC) == 0 && pipe2(to_parent, O_CLOEXEC) == 0);
    handle_faults();
    c->run();
    fflush(NULL);
    _exit(0);
}

/* Runs a case in a child, and prints the result. Returns 0 if it passed, 1 if it failed, or WAIVED. */
static int run(int number, const struct named_test *c)
{
    int output[2], status;
    char text[8192];

    before = all_page_tables();
    CHECK(pipe2(output, O_CLOEXEC) == 0);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        run_case(c, output[1]);
    CHECK(close(output[1]) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    kill(-child, SIGKILL); /* ends processes that a failed case has left */
    FILE *from = fdopen(output[0], "r");
    text[fread(text, 1, sizeof(text) - 1, from)] = '\0';
    fclose(from);
    if (WIFEXITED(status) && WEXITSTATUS(status) == WAIVED) {
        printf("ok %d - %s # SKIP %s", number, c->name, strchr(text, ':') + 2);
        return WAIVED;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && page_tables() <= 0) {
        printf("ok %d - %s\n", number, c->name);
        return 0;
    }
    printf("not ok %d - %s\n", number, c->name);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        printf("# %s\n", line);
    if (WIFSIGNALED(status))
        printf("# ended by signal %d\n", WTERMSIG(status));
    if (page_tables() > 0)
        printf("# %ld page tables are still pinned\n", page_tables());
    return 1;
}

/* Returns the case with this name. Ends the program if there is none. */
static const struct named_test *case_of(const char *name)
{
    for (int i = 0; i < tests_count; i++)
        if (strcmp(all_tests[i].name, name) == 0)
            return &all_tests[i];
    fprintf(stderr, "contract: no case is named %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    int results[WAIVED + 1] = {0};

    if (argc == 5 && strcmp(argv[1], "--after-exec") == 0) {
        before = atol(argv[4]);
        handle_faults();
        after_exec(argv[2], atoi(argv[3]));
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("TAP version 13");
    if (access(GDRDRV_DEVICE, R_OK | W_OK) != 0) {
        printf("1..0 # SKIP %s: %s\n", GDRDRV_DEVICE, strerror(errno));
        return WAIVED;
    }
    int count = argc > 1 ? argc - 1 : tests_count;
    for (int i = 1; i < argc; i++)
        (void)case_of(argv[i]);
    printf("1..%d\n", count);
    for (int i = 0; i < count; i++)
        results[run(i + 1, argc > 1 ? case_of(argv[i + 1]) : &all_tests[i])]++;
    printf("# %d passed, %d failed, %d skipped\n", results[0], results[1], results[WAIVED]);
    return results[1] > 0 ? 1 : results[0] > 0 ? 0 : WAIVED;
}
