#include "runner.h"

#include "kit/watch.h"

#include <stdarg.h>
#include <time.h>

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

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/*
 * Returns the wait status of the child. A child that hangs is killed with its group, and *hung is set. SIGCHLD is
 * blocked.
 */
static int wait_status(pid_t child, const sigset_t *sigchld, int *hung)
{
    struct watchdog dog = {child, 0, 0};
    struct timespec second = {1, 0};
    int status;

    *hung = 0;
    while (waitpid(child, &status, *hung ? 0 : WNOHANG) != child) {
        if (sigtimedwait(sigchld, NULL, &second) == -1 && watchdog_sees_hang(&dog)) {
            kill(-child, SIGKILL);
            *hung = 1;
        }
    }
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

void run_in_child(struct run *run)
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
        run->test->run(run->kind);
        exit(0);
    }
    int status = wait_status(child, &sigchld, &hung);
    sigprocmask(SIG_SETMASK, &before, NULL);
    run->verdict = judge(run->name, status, hung);
    say("%s after %.3f s", words[run->verdict], now_s() - start);
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

void print_summary(const struct run *runs, size_t count)
{
    printf("Total: %zu, Passed: %zu, Failed: %zu, Waived: %zu\n", count, count_of(runs, count, PASSED),
           count_of(runs, count, FAILED), count_of(runs, count, NOT_APPLICABLE));
    print_names("passed", runs, count, PASSED);
    print_names("failed", runs, count, FAILED);
    print_names("waived", runs, count, NOT_APPLICABLE);
}
