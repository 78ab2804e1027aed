/* gdrcopy_sanity: tests a libgdrapi.so.2 and its driver, with the test names of NVIDIA's GDRCopy 2.6. */

#include "kit/watch.h"
#include "tests.h"

#include <time.h>

static int option_verbose = 0, option_summary = 1, option_list = 0, option_extended = 0;

enum verdict { PASSED, FAILED, NOT_APPLICABLE };

static const char *const words[] = {"passed", "failed", "waived"};

/* ---- All tests, in order ---- */

/* A test that runs with one kind of memory, and its result. */
static struct run {
    char name[128]; /* ends with the kind of memory if the test runs with several kinds */
    const struct test *test;
    enum gpu_memory kind;
    int is_chosen;
    enum verdict verdict;
} all[256];
static size_t all_count = 0;

static void add(const struct test *test, enum gpu_memory kind, const char *suffix)
{
    struct run *run = &all[all_count++];

    CHECK_COMPARE(all_count, <, sizeof(all) / sizeof(all[0]));
    snprintf(run->name, sizeof(run->name), "%s%s", test->name, suffix);
    run->test = test;
    run->kind = kind;
}

static void add_all(void)
{
    for (const struct test *test = tests; test->name != NULL; test++) {
        add(test, MEM_ALLOC, test->variants == BOTH_KINDS ? "_cumemalloc" : "");
        if (test->variants == BOTH_KINDS)
            add(test, MEM_CREATE, "_vmmalloc");
    }
}

static void choose_by_name(const char *name)
{
    for (size_t i = 0; i < all_count; i++)
        if (strcmp(all[i].name, name) == 0) {
            all[i].is_chosen = 1;
            return;
        }
    fprintf(stderr, "gdrcopy_sanity: no test %s; list all with -l -e\n", name);
    exit(1);
}

static void choose_default(void)
{
    for (size_t i = 0; i < all_count; i++)
        all[i].is_chosen = option_extended || !all[i].test->extended;
}

/* ---- Running the tests ---- */

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Waits for a child that leads a process group, and returns its wait status. If the group hangs, kills the child and
   sets *hung. The caller must have blocked SIGCHLD. */
static int wait_status(pid_t child, const sigset_t *sigchld, int *hung)
{
    struct watchdog dog = {child, 0, 0};
    struct timespec second = {1, 0};
    int status;

    *hung = 0;
    while (waitpid(child, &status, *hung ? 0 : WNOHANG) != child) {
        if (sigtimedwait(sigchld, NULL, &second) == -1 && watchdog_sees_hang(&dog)) {
            kill(child, SIGKILL);
            *hung = 1;
        }
    }
    kill(-child, SIGKILL); /* ends processes that the child has started and that still run */
    return status;
}

/* Returns the verdict on a test. Prints why the test failed, because a test that crashes or hangs cannot print it. */
static enum verdict judge(const char *name, int status, int hung)
{
    if (hung)
        fprintf(stderr, "%s: FAILED: hangs\n", name);
    else if (WIFSIGNALED(status))
        fprintf(stderr, "%s: FAILED: %s\n", name, strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == 0)
        return PASSED;
    else if (WEXITSTATUS(status) == WAIVED)
        return NOT_APPLICABLE;
    else
        fprintf(stderr, "%s: FAILED: exit status %d\n", name, WEXITSTATUS(status));
    return FAILED;
}

/* Runs the test and sets its verdict. A crash, a signal or a hang fails only this test. */
static void run_in_child(struct run *run)
{
    double start = now_s();
    sigset_t sigchld, before;
    int hung;

    running_test = run->name;
    sigemptyset(&sigchld);
    sigaddset(&sigchld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &sigchld, &before);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        watchdog_enter_group();
        if (run->test->pin != NULL)
            run->test->run_with(run->kind, run->test->pin);
        else
            run->test->run(run->kind);
        exit(0);
    }
    int status = wait_status(child, &sigchld, &hung);
    sigprocmask(SIG_SETMASK, &before, NULL);
    run->verdict = judge(run->name, status, hung);
    if (option_verbose)
        printf("%s: %s after %.3f s\n", run->name, words[run->verdict], now_s() - start);
}

static size_t count_of(enum verdict verdict)
{
    size_t count = 0;

    for (size_t i = 0; i < all_count; i++)
        count += all[i].is_chosen && all[i].verdict == verdict;
    return count;
}

/* Prints how many tests passed, failed and were waived, and then the names of the tests in each of these groups. */
static void print_summary(void)
{
    size_t passed = count_of(PASSED);
    size_t failed = count_of(FAILED);
    size_t waived = count_of(NOT_APPLICABLE);

    printf("Total: %zu, Passed: %zu, Failed: %zu, Waived: %zu\n", passed + failed + waived, passed, failed, waived);
    for (enum verdict verdict = PASSED; verdict <= NOT_APPLICABLE; verdict++) {
        if (count_of(verdict) > 0)
            printf("\nList of %s tests:\n", words[verdict]);
        for (size_t i = 0; i < all_count; i++)
            if (all[i].is_chosen && all[i].verdict == verdict)
                printf("    %s\n", all[i].name);
    }
}

/* ---- Command line ---- */

static void print_usage(FILE *stream)
{
    fputs("usage: gdrcopy_sanity [options]\n"
          "\n"
          "Tests libgdrapi and its driver. Exit status 0 if all tests passed or were waived, 1 if any failed.\n"
          "\n"
          "  -v        print the result and the time of each test\n"
          "  -s        no summary\n"
          "  -l        list the tests and exit\n"
          "  -t TEST   run this test only; may be repeated\n"
          "  -d GPU    number of the GPU (default: 0)\n"
          "  -e        also run the extended tests, which take longer\n"
          "  -h        this text\n",
          stream);
}

static int number_of(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (*text == '\0' || *end != '\0' || number < 0 || number > 1023) {
        fprintf(stderr, "gdrcopy_sanity: -d must be the number of a GPU, not \"%s\"\n", text);
        exit(1);
    }
    return (int)number;
}

static void read_options(int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "vslt:d:eh")) != -1)
        switch (option) {
        case 'v':
            option_verbose = 1;
            break;
        case 's':
            option_summary = 0;
            break;
        case 'l':
            option_list = 1;
            break;
        case 't':
            choose_by_name(optarg);
            break;
        case 'd':
            gpu_under_test = number_of(optarg);
            break;
        case 'e':
            option_extended = 1;
            break;
        case 'h':
            print_usage(stdout);
            exit(0);
        default:
            print_usage(stderr);
            exit(1);
        }
    if (optind < argc) {
        print_usage(stderr);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int chosen = 0;

    setvbuf(stdout, NULL, _IOLBF, 0); /* keeps lines in order with those on stderr and those of the tests' processes */
    add_all();
    read_options(argc, argv);
    for (size_t i = 0; i < all_count; i++)
        chosen |= all[i].is_chosen;
    if (!chosen)
        choose_default();
    for (size_t i = 0; i < all_count; i++) {
        if (all[i].is_chosen && option_list)
            puts(all[i].name);
        else if (all[i].is_chosen)
            run_in_child(&all[i]);
    }
    if (option_summary && !option_list)
        print_summary();
    return count_of(FAILED) > 0;
}
