/*
 * Who may use an open device, and when its pins end: only the process that opened it, and with that process's last
 * descriptor, whatever copies others have and whatever is still mapped.
 */

#include "device.h"

#include <sys/socket.h>

#define SIZE (2 * GPU_PAGE)
#define OURS 0x11

static struct gpu_memory memory;

static void check_refused(int fd)
{
    unsigned char argument[64] = {0}, *va;
    const unsigned long commands[] = {
        GDRDRV_IOC_PIN_BUFFER,  GDRDRV_IOC_UNPIN_BUFFER,     GDRDRV_IOC_GET_CB_FLAG,
        GDRDRV_IOC_GET_INFO,    GDRDRV_IOC_GET_INFO_V2,      GDRDRV_IOC_GET_ATTR,
        GDRDRV_IOC_PIN_BUFFER_V2, GDRDRV_IOC_REQ_MAPPING_TYPE, GDRDRV_IOC_GET_VERSION,
        0xDA00 /* no command */,
    };
    size_t i;

    for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        CHECK_ERROR(command(fd, commands[i], argument), EACCES);
    CHECK_ERROR(map(fd, 0, SIZE, &va), EACCES);
}

static void send_descriptor(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof(fd))] = {0}, byte = 0;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    CHECK(sendmsg(socket, &message, 0) == 1);
}

static int receive_descriptor(int socket)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fd;

    CHECK(recvmsg(socket, &message, 0) == 1);
    CHECK(CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

/* A mapped pin of handle 0. */
static unsigned char *opened(int *fd)
{
    unsigned char *va;

    *fd = driver_open();
    CHECK_EQUAL(pinned(*fd, memory), 0);
    va = mapped(*fd, 0, SIZE);
    CHECK_SHOWS(va, SIZE, OURS);
    return va;
}

static int inherited;
static unsigned char *inherited_va;

static void child_has_nothing(void)
{
    unsigned char value;

    CHECK_EQUAL(touch(inherited_va, &value), SIGSEGV);
    check_refused(inherited);
    CHECK(close(inherited) == 0);
}

/* What a child opens itself works, with memory of its own. */
static void child_has_its_own(void)
{
    struct gpu_memory own = gpu_alloc(SIZE);
    int fd = driver_open();
    uint64_t handle = pinned(fd, own);
    unsigned char *va = mapped(fd, handle, SIZE);

    memset(own.view, 0x22, SIZE);
    CHECK_SHOWS(va, SIZE, 0x22);
    /* The parent's memory is none of its memory. */
    CHECK_ERROR(pin(fd, memory.va, SIZE, &handle), EINVAL);
    CHECK(close(fd) == 0);
}

static void forked_children(void)
{
    inherited_va = opened(&inherited);
    in_child(child_has_nothing);
    in_child(child_has_its_own);
    /* Its close, and its end, were not ours. */
    CHECK_SHOWS(inherited_va, SIZE, OURS);
    CHECK_EQUAL(page_tables(), 1);
    CHECK(munmap(inherited_va, SIZE) == 0);
    CHECK(close(inherited) == 0);
    CHECK_EQUAL(page_tables(), 0);
}

/* The child keeps its copy open until it is told. */
static void closed_while_a_child_has_a_copy(void)
{
    int fd, go[2];
    unsigned char *va = opened(&fd);
    pid_t child;
    char byte;

    CHECK(pipe(go) == 0);
    child = fork();
    if (child == 0) {
        close(go[1]);
        _exit(read(go[0], &byte, 1) != 0);
    }
    CHECK(close(fd) == 0);
    CHECK_EQUAL(page_tables(), 0);
    CHECK_GONE(va, SIZE);
    CHECK(close(go[1]) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(close(go[0]) == 0);
    CHECK(munmap(va, SIZE) == 0);
}

static void copies_of_our_own(void)
{
    int fd, copy;
    unsigned char *va = opened(&fd);

    copy = dup(fd);
    CHECK(close(fd) == 0);
    CHECK_SHOWS(va, SIZE, OURS);
    CHECK(dup2(copy, fd) == fd);
    CHECK(dup2(copy, fd) == fd);
    CHECK(close(copy) == 0);
    CHECK_SHOWS(va, SIZE, OURS);
    CHECK_OK(unpin(fd, 0));
    CHECK_GONE(va, SIZE);
    CHECK(munmap(va, SIZE) == 0);
    CHECK(close(fd) == 0);
}

static int sockets[2];

static void receiver(void)
{
    int fd;

    CHECK(close(sockets[0]) == 0);
    fd = receive_descriptor(sockets[1]);
    check_refused(fd);
    /* The sender has closed its own by now, which ended the pins. */
    CHECK_EQUAL(page_tables(), 0);
    CHECK(close(fd) == 0);
}

static void descriptors_passed_on(void)
{
    int fd;
    unsigned char *va = opened(&fd);

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    send_descriptor(sockets[0], fd);
    CHECK(close(fd) == 0);
    CHECK_GONE(va, SIZE);
    in_child(receiver);
    CHECK(munmap(va, SIZE) == 0);

    /* One that comes back after the last close is of no use any more. */
    va = opened(&fd);
    send_descriptor(sockets[0], fd);
    CHECK(close(fd) == 0);
    fd = receive_descriptor(sockets[1]);
    {
        uint64_t handle = 77;

        CHECK_ERROR(pin(fd, memory.va, SIZE, &handle), EBADF);
        CHECK_ERROR(unpin(fd, 0), EINVAL);
    }
    CHECK_EQUAL(page_tables(), 0);
    CHECK(close(fd) == 0);
    CHECK(munmap(va, SIZE) == 0);
    CHECK(close(sockets[0]) == 0);
    CHECK(close(sockets[1]) == 0);
}

/* As a library in another thread's way may do it. */
static void *closer(void *fd)
{
    CHECK(close(*(int *)fd) == 0);
    return NULL;
}

static void closed_by_another_thread(void)
{
    int fd;
    unsigned char *va = opened(&fd);
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, closer, &fd) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_GONE(va, SIZE);
    CHECK_EQUAL(page_tables(), 0);
    CHECK_ERROR(unpin(fd, 0), EBADF);
    CHECK(munmap(va, SIZE) == 0);
}

int main(void)
{
    catch_faults();
    memory = gpu_alloc(SIZE);
    memset(memory.view, OURS, SIZE);
    forked_children();
    closed_while_a_child_has_a_copy();
    copies_of_our_own();
    descriptors_passed_on();
    closed_by_another_thread();
    gpu_free(memory);
    CHECK_EQUAL(page_tables(), 0);
    return passed("owners");
}
