/*
 * Preloaded, it has the kernel refuse the calls that REFUSE names with the errno in REFUSE_ERRNO, as a sandbox does.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define CALL(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, refused)

__attribute__((constructor)) static void refuse(void)
{
    unsigned refused = SECCOMP_RET_ERRNO | atoi(getenv("REFUSE_ERRNO"));
    struct sock_filter clone[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        CALL(SYS_clone),
        CALL(SYS_clone3),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter poll[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_poll
        CALL(SYS_poll),
#endif
        CALL(SYS_ppoll),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof(clone) / sizeof(*clone), clone};
    if (strcmp(getenv("REFUSE"), "poll") == 0)
        filter = (struct sock_fprog){sizeof(poll) / sizeof(*poll), poll};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        abort();
}
