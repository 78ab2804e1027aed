/* gdrcopy_sanity: tests a libgdrapi.so.2 and its driver, with the test names of NVIDIA's GDRCopy 2.6. */

#include "kit/watch.h"
#include "tests.h"

#include <time.h>

static int option_verbose = 0, option_summary = 1, option_list = 0, option_extended = 0;

/* ---- All tests, in order ---- */

enum verdict { PASSED, FAILED, NOT_APPLICABLE };

/* A test for one kind of memory. */
struct run {
    const char *name; /* with the memory kind, if the test has several */
    const struct test *test;
    enum gpu_memory kind;
    enum verdict verdict;
};

#define MOST_RUNS 256
#define LONGEST_NAME 128

static struct run all[MOST_RUNS];
static size_t all_count = 0;

static void add(const struct test *test, enum gpu_memory kind, const char *suffix)
{
    static char names[MOST_RUNS][LONGEST_NAME];
    struct run *run = &all[all_count];

    CHECK(all_count < MOST_RUNS);
    snprintf(names[all_count], LONGEST_NAME, "%s%s", test->name, suffix);
    run->name = names[all_count++];
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

/* ---- The chosen tests ---- */

static struct run chosen[MOST_RUNS];
static size_t chosen_count = 0;

static void choose(const struct run *run)
{
    CHECK(chosen_count < MOST_RUNS);
    chosen[chosen_count++] = *run;
}

static void choose_by_name(const char *name)
{
    for (size_t i = 0; i < all_count; i++)
        if (strcmp(all[i].name, name) == 0) {
            choose(&all[i]);
            return;
        }
    fprintf(stderr, "gdrcopy_sanity: no test %s; list all with -l -e\n", name);
    exit(1);
}

static void choose_default(void)
{
    for (size_t i = 0; i < all_count; i++)
        if (option_extended || !all[i].test->extended)
            choose(&all[i]);
}

/* ---- Running ---- */

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Returns the wait status of the child, which leads a group. If it hangs, it is killed, and *hung is set. SIGCHLD is
   blocked. */
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
    kill(-child, SIGKILL); /* processes that it has left */
    return status;
}

/* Prints failures here, because the test may not have been able to. */
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
    static const char *const words[] = {"passed", "FAILED", "waived"};
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

static size_t count_of(const struct run *runs, size_t count, enum verdict verdict)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += runs[i].verdict == verdict;
    return found;
}

static void print_names(const char *title, const struct run *runs, size_t count, enum verdict verdict)
{
    if (count_of(runs, count, verdict) == 0)
        return;
    printf("\nList of %s tests:\n", title);
    for (size_t i = 0; i < count; i++)
        if (runs[i].verdict == verdict)
            printf("    %s\n", runs[i].name);
}

/* Prints the counts, then the names for each count that is not 0. */
static void print_summary(const struct run *runs, size_t count)
{
    printf("Total: %zu, Passed: %zu, Failed: %zu, Waived: %zu\n", count, count_of(runs, count, PASSED),
           count_of(runs, count, FAILED), count_of(runs, count, NOT_APPLICABLE));
    print_names("passed", runs, count, PASSED);
    print_names("failed", runs, count, FAILED);
    print_names("waived", runs, count, NOT_APPLICABLE);
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
    int failed = 0;

    setvbuf(stdout, NULL, _IOLBF, 0); /* keeps the order with stderr and with what the tests print */
    add_all();
    read_options(argc, argv);
    if (chosen_count == 0)
        choose_default();
    for (size_t i = 0; i < chosen_count; i++) {
        if (option_list) {
            puts(chosen[i].name);
            continue;
        }
        run_in_child(&chosen[i]);
        failed |= chosen[i].verdict == FAILED;
    }
    if (option_summary && !option_list)
        print_summary(chosen, chosen_count);
    return failed;
}
