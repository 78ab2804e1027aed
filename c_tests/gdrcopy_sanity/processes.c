#include "processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* ---- Life of a process ---- */

struct process start_process(void (*part)(int socket, void *context), void *context)
{
    struct process process;
    pid_t parent = getpid();
    int sockets[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    fflush(NULL);
    process.pid = fork();
    CHECK(process.pid >= 0);
    if (process.pid == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        if (getppid() != parent)
            _exit(1); /* it died before that */
        close(sockets[0]);
        part(sockets[1], context);
        fflush(NULL);
        _exit(0);
    }
    close(sockets[1]);
    process.socket = sockets[0];
    return process;
}

static int wait_for(struct process *process)
{
    int status;

    close(process->socket);
    CHECK(waitpid(process->pid, &status, 0) == process->pid);
    return status;
}

void finish_process(struct process *process)
{
    int status = wait_for(process);

    if (WIFEXITED(status) && WEXITSTATUS(status) == WAIVED)
        exit(WAIVED);
    CHECK(WIFEXITED(status));
    CHECK_EQUAL(WEXITSTATUS(status), 0);
}

void kill_process(struct process *process)
{
    CHECK(kill(process->pid, SIGKILL) == 0);
    int status = wait_for(process);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- Messages ---- */

/* A child whose parent has ended reports nothing. A parent reports how its child ended. */
static void other_side_ended(void)
{
    int status;

    if (waitpid(-1, &status, 0) > 0) {
        if (WIFEXITED(status) && WEXITSTATUS(status) == WAIVED)
            exit(WAIVED);
        fprintf(stderr, "a child of the test ended early, with wait status %#x\n", (unsigned)status);
    }
    exit(1);
}

void send_bytes(int socket, const void *bytes, size_t size)
{
    if (send(socket, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
        other_side_ended();
}

void receive_bytes(int socket, void *bytes, size_t size)
{
    if (recv(socket, bytes, size, MSG_WAITALL) != (ssize_t)size)
        other_side_ended();
}

void signal_step(int socket)
{
    send_bytes(socket, "", 1);
}

void await_step(int socket)
{
    char step;

    receive_bytes(socket, &step, 1);
}

void exchange_steps(int socket)
{
    signal_step(socket);
    await_step(socket);
}

void await_end(int socket)
{
    char nothing;

    CHECK(recv(socket, &nothing, 1, 0) <= 0);
}
