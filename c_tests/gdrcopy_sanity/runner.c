#include "runner.h"

#include <signal.h>
#include <stdarg.h>
#include <time.h>

/* How long a test may take. Far more than any needs, also in a virtual machine: it is there to end a hang. */
#define TIME_LIMIT_S 120

const char *running_test = "";

void say(const char *format, ...)
{
    va_list arguments;

    if (!option_verbose)
        return;
    va_start(arguments, format);
    printf("%s: ", running_test);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
}

void waive_test(const char *reason)
{
    printf("waived %s: %s\n", running_test, reason);
    fflush(NULL);
    _exit(WAIVED);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The wait status of the child. A child that does not end in time is killed; *late says so. SIGCHLD is blocked. */
static int wait_status(pid_t child, const sigset_t *sigchld, int *late)
{
    double deadline = now_s() + TIME_LIMIT_S * (double)slowness();
    int status;

    *late = 0;
    while (waitpid(child, &status, *late ? 0 : WNOHANG) != child) {
        struct timespec poll = {1, 0};

        sigtimedwait(sigchld, NULL, &poll);
        if (now_s() > deadline) {
            kill(child, SIGKILL);
            *late = 1;
        }
    }
    return status;
}

/* Tells of a failure here, since the test itself may not have been able to. */
static enum verdict judge(const char *name, int status, int late)
{
    if (late)
        fprintf(stderr, "%s: FAILED: took longer than %d s\n", name, TIME_LIMIT_S);
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

void run_in_child(struct run *run)
{
    static const char *const words[] = {"passed", "FAILED", "waived"};
    double start = now_s();
    sigset_t sigchld, before;
    pid_t child;
    int status, late;

    running_test = run->name;
    sigemptyset(&sigchld);
    sigaddset(&sigchld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &sigchld, &before);
    fflush(NULL);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        run->test->run(run->kind);
        exit(0);
    }
    status = wait_status(child, &sigchld, &late);
    sigprocmask(SIG_SETMASK, &before, NULL);
    run->verdict = judge(run->name, status, late);
    say("%s after %.3f s", words[run->verdict], now_s() - start);
}

static size_t count_of(const struct run *runs, size_t count, enum verdict verdict)
{
    size_t found = 0, i;

    for (i = 0; i < count; i++)
        found += runs[i].verdict == verdict;
    return found;
}

static void print_names(const char *title, const struct run *runs, size_t count, enum verdict verdict)
{
    size_t i;

    if (count_of(runs, count, verdict) == 0)
        return;
    printf("\nList of %s tests:\n", title);
    for (i = 0; i < count; i++)
        if (runs[i].verdict == verdict)
            printf("    %s\n", runs[i].name);
}

void print_summary(const struct run *runs, size_t count)
{
    printf("Total: %zu, Passed: %zu, Failed: %zu, Waived: %zu\n", count, count_of(runs, count, PASSED),
           count_of(runs, count, FAILED), count_of(runs, count, NOT_APPLICABLE));
    print_names("passed", runs, count, PASSED);
    print_names("failed", runs, count, FAILED);
    print_names("waived", runs, count, NOT_APPLICABLE);
}
