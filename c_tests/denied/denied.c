/*
 * `denied CALL ERROR COMMAND ...` runs a command in which a system call fails with EPERM or ENOSYS, as in a sandbox or
 * a container. The exit status is the command's, 125 if the call cannot be denied, or 127 if the command cannot start.
 *
 * The table has calls that libgdrapi makes but can do without. gdremu and glibc need some of these calls, too. Their
 * calls differ in the arguments, so the filter recognizes them, and does not deny them.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define LARGE (2 << 20)

/* These say when a call of the table is not denied: never; if argument 2 (counted from 0) is `value`; or, for mprotect,
   if the memory does not become writable or has at least `value` bytes. */
enum exception { NONE, ARGUMENT_2_IS, NOT_WRITABLE_OR_AT_LEAST };

static const struct call {
    const char *name;
    long number;
    enum exception exception;
    unsigned value;
    long probe[4]; /* arguments of a trial call, made to see whether it is denied */
} calls[] = {
    /* Not denied: gdremu needs MADV_DONTFORK, so that forked children do not inherit mappings of GPU memory. */
    {"madvise", SYS_madvise, ARGUMENT_2_IS, MADV_DONTFORK, {0, 0, MADV_DONTDUMP, 0}},
    /* glibc must be able to make parts of loaded libraries read-only, and large stacks of threads writable. */
    {"mprotect", SYS_mprotect, NOT_WRITABLE_OR_AT_LEAST, LARGE, {0, 0, PROT_READ | PROT_WRITE, 0}},
#ifdef SYS_access
    {"access", SYS_access, NONE, 0, {(long)"/", F_OK, 0, 0}},
#endif
    {"access", SYS_faccessat, NONE, 0, {AT_FDCWD, (long)"/", F_OK, 0}},
#ifdef SYS_faccessat2
    {"access", SYS_faccessat2, NONE, 0, {AT_FDCWD, (long)"/", F_OK, 0}},
#endif
};

static struct sock_filter load(size_t offset)
{
    /* At the offset of a 64-bit argument, this loads the lower half, because the CPUs are little-endian. */
    return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset);
}

static struct sock_filter jump(unsigned short condition, unsigned value, unsigned char yes, unsigned char no)
{
    return (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_K | condition, value, yes, no);
}

/* Makes the call fail from now on, also after exec. Returns whether it fails. */
static int deny(const struct call *call, int error)
{
    struct sock_filter program[8];
    struct sock_filter allowed = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_filter refused = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
    struct sock_fprog filter = {0, program};
    unsigned short at = 0;
    int tests = 0;

    if (call->exception != NONE)
        tests = call->exception == NOT_WRITABLE_OR_AT_LEAST ? 2 : 1;
    program[at++] = load(offsetof(struct seccomp_data, nr));
    /* For any other system call, the filter jumps to its last instruction, which allows the call. It jumps over the
       tests of arguments, which have two instructions each, and over the refusal. */
    program[at++] = jump(BPF_JEQ, (unsigned)call->number, 0, (unsigned char)(2 * tests + 1));
    switch (call->exception) {
    case NONE:
        break;
    case ARGUMENT_2_IS:
        program[at++] = load(offsetof(struct seccomp_data, args[2]));
        program[at++] = jump(BPF_JEQ, call->value, 1, 0);
        break;
    case NOT_WRITABLE_OR_AT_LEAST:
        program[at++] = load(offsetof(struct seccomp_data, args[2]));
        program[at++] = jump(BPF_JSET, PROT_WRITE, 0, 3);
        program[at++] = load(offsetof(struct seccomp_data, args[1]));
        program[at++] = jump(BPF_JGE, call->value, 1, 0);
        break;
    }
    program[at++] = refused;
    program[at++] = allowed;
    filter.len = at;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return 0;
    errno = 0;
    return syscall(call->number, call->probe[0], call->probe[1], call->probe[2], call->probe[3]) == -1 &&
           errno == error;
}

int main(int argc, char **argv)
{
    int found = 0;

    if (argc < 4 || (strcmp(argv[2], "EPERM") != 0 && strcmp(argv[2], "ENOSYS") != 0)) {
        fprintf(stderr, "usage: denied CALL EPERM|ENOSYS COMMAND ...\n");
        return 125;
    }
    int error = strcmp(argv[2], "EPERM") == 0 ? EPERM : ENOSYS;
    for (size_t i = 0; i < COUNT(calls); i++) {
        if (strcmp(argv[1], calls[i].name) != 0)
            continue;
        found = 1;
        if (!deny(&calls[i], error)) {
            fprintf(stderr, "denied: %s cannot be denied (%s)\n", argv[1], strerror(errno));
            return 125;
        }
    }
    if (!found) {
        fprintf(stderr, "denied: unknown call: %s\n", argv[1]);
        return 125;
    }
    execvp(argv[3], argv + 3);
    fprintf(stderr, "denied: %s: %s\n", argv[3], strerror(errno));
    return 127;
}
