/*
 * Which process may use an open device, and when its pins end: only the process that opened it may; its pins end when
 * no descriptor and no mapping is left, or when that process exits, even if other processes have copies of the
 * descriptor.
 */

#include "device.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

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

/* A child can open the device itself, with its own memory. */
static void child_has_its_own(void)
{
    struct gpu_memory own = gpu_alloc(SIZE);
    int fd = driver_open();
    uint64_t handle = pinned(fd, own);
    unsigned char *va = mapped(fd, handle, SIZE);

    memset(own.view, 0x22, SIZE);
    CHECK_SHOWS(va, SIZE, 0x22);
    /* The child cannot pin the parent's memory. */
    CHECK_ERROR(pin(fd, memory.va, SIZE, &handle), EINVAL);
    CHECK(close(fd) == 0);
}

static void forked_children(void)
{
    inherited_va = opened(&inherited);
    in_child(child_has_nothing);
    in_child(child_has_its_own);
    /* The child's close and exit must not affect the parent. */
    CHECK_SHOWS(inherited_va, SIZE, OURS);
    CHECK_EQUAL(page_tables(), 1);
    CHECK(munmap(inherited_va, SIZE) == 0);
    CHECK(close(inherited) == 0);
    CHECK_EQUAL(page_tables(), 0);
}

/* The child keeps its copy of the descriptor open until the pipe is closed. */
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
    CHECK(close(go[1]) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK(close(go[0]) == 0);
    CHECK_SHOWS(va, SIZE, OURS);
    CHECK_EQUAL(page_tables(), 1);
    CHECK(munmap(va, SIZE) == 0);
    CHECK_EQUAL(page_tables(), 0);
}

static int said[2], asked[2];

/* Pins and exits. The child with its descriptors keeps running, and closes them one at a time on request. */
static void end_before_a_child(int flags)
{
    struct gpu_memory mine = gpu_alloc(SIZE);
    int gpu_fd = gpu(), fd = driver_open();

    (void)pinned(fd, mine);
    if (syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
        await(asked[0]);
        check_refused(fd);
        CHECK(close(fd) == 0);
        say(said[1]);
        await(asked[0]);
        CHECK(close(gpu_fd) == 0);
        say(said[1]);
        _exit(0);
    }
    _exit(0);
}

/*
 * With a shared descriptor table, the exit of a process closes nothing. The GPU driver ignores unpins of ordinary pins
 * by the child, and revokes these pins when the child closes the GPU.
 */
static void owner_ends_before_its_descriptors(int flags, long at_end, long at_close)
{
    pid_t owner;

    CHECK(pipe(said) == 0 && pipe(asked) == 0);
    fflush(NULL);
    owner = fork();
    if (owner == 0)
        end_before_a_child(flags);
    CHECK(waitpid(owner, NULL, 0) == owner);
    CHECK_EQUAL(page_tables(), at_end);
    say(asked[1]);
    await(said[0]);
    CHECK_EQUAL(page_tables(), at_close);
    say(asked[1]);
    await(said[0]);
    CHECK_EQUAL(page_tables(), 0);
    CHECK(close(said[0]) == 0 && close(said[1]) == 0 && close(asked[0]) == 0 && close(asked[1]) == 0);
}

static void *end_with_a_table_of_its_own(void *fd)
{
    CHECK(unshare(CLONE_FILES) == 0);
    if (fd != NULL)
        CHECK(close(*(int *)fd) == 0);
    return NULL;
}

/* The exit of a thread with its own descriptor table must not end the pins of its process. */
static void threads_with_tables_of_their_own(void)
{
    int fd, i;
    unsigned char *va = opened(&fd);
    uint64_t handle;

    for (i = 0; i < 2; i++) {
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, end_with_a_table_of_its_own, i ? &fd : NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        usleep(100000); /* the kernel closes its table after pthread_join */
        CHECK_SHOWS(va, SIZE, OURS);
        CHECK_EQUAL(page_tables(), 1);
    }
    CHECK_OK(pin(fd, memory.va, SIZE, &handle));
    CHECK_OK(unpin(fd, handle));
    CHECK_OK(unpin(fd, 0));
    CHECK_GONE(va, SIZE);
    CHECK(munmap(va, SIZE) == 0);
    CHECK(close(fd) == 0);
}

static char *program;

static void *execute(void *fd)
{
    char number[16];

    snprintf(number, sizeof(number), "%d", *(int *)fd);
    execl(program, program, number, (char *)NULL);
    return NULL;
}

/* After exec: the process has lost its mappings, but not its pins. */
static void after_exec(int fd)
{
    struct gdrdrv_get_info_v2 i;

    CHECK_EQUAL(page_tables(), 1);
    CHECK_OK(info(fd, 0, &i));
    CHECK_EQUAL(i.mapping_type, GDRDRV_MAPPING_TYPE_NONE);
    catch_faults();
    CHECK_SHOWS(mapped(fd, 0, SIZE), SIZE, OURS);
    CHECK_OK(unpin(fd, 0));
    CHECK_EQUAL(page_tables(), 0);
    _exit(0);
}

static int keep_on_exec;

static void exec_child(void)
{
    pthread_t thread;
    int fd;

    memory = gpu_alloc(SIZE);
    memset(memory.view, OURS, SIZE);
    (void)opened(&fd);
    if (!keep_on_exec) { /* the new program must find no pins */
        execl("/bin/sh", "sh", "-c", "exit $(cat /proc/driver/gdrdrv/nv_get_pages_refcount)", (char *)NULL);
        _exit(99);
    }
    CHECK(fcntl(fd, F_SETFD, 0) == 0);
    CHECK(fcntl(gpu(), F_SETFD, 0) == 0);
    /* exec from another thread, which then becomes the process. */
    CHECK(pthread_create(&thread, NULL, execute, &fd) == 0);
    pause();
}

static void other_programs(void)
{
    for (keep_on_exec = 0; keep_on_exec < 2; keep_on_exec++)
        in_child(exec_child);
    CHECK_EQUAL(page_tables(), 0);
}

static int parents;

static void taker(void)
{
    int process = (int)syscall(SYS_pidfd_open, getppid(), 0);
    int fd = (int)syscall(SYS_pidfd_getfd, process, parents, 0);

    CHECK(process >= 0 && fd >= 0);
    check_refused(fd);
    CHECK(close(fd) == 0);
}

static void taken_descriptors_are_refused(void)
{
    unsigned char *va = opened(&parents);

    in_child(taker);
    CHECK_SHOWS(va, SIZE, OURS);
    CHECK(munmap(va, SIZE) == 0);
    CHECK(close(parents) == 0);
}

/* Every user may pin their own GPU memory. */
static void unprivileged(void)
{
    drop_privileges();
    child_has_its_own();
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
    /* By now the sender has closed its descriptor, and has the pin mapped. */
    CHECK_EQUAL(page_tables(), 1);
    CHECK(close(fd) == 0);
}

static void passed_descriptors_are_refused(void)
{
    int fd;
    unsigned char *va = opened(&fd);

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    send_descriptor(sockets[0], fd);
    CHECK(close(fd) == 0);
    in_child(receiver);
    CHECK_SHOWS(va, SIZE, OURS);
    CHECK(munmap(va, SIZE) == 0);

    /* A descriptor received back after the last close works as before. */
    va = opened(&fd);
    send_descriptor(sockets[0], fd);
    CHECK(close(fd) == 0);
    fd = receive_descriptor(sockets[1]);
    CHECK_SHOWS(va, SIZE, OURS);
    CHECK_OK(unpin(fd, 0));
    CHECK_GONE(va, SIZE);
    CHECK_EQUAL(page_tables(), 0);
    CHECK(close(fd) == 0);
    CHECK(munmap(va, SIZE) == 0);
    CHECK(close(sockets[0]) == 0);
    CHECK(close(sockets[1]) == 0);
}

/* Closes the descriptor from another thread. */
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
    CHECK_ERROR(unpin(fd, 0), EBADF);
    CHECK_SHOWS(va, SIZE, OURS);
    CHECK(munmap(va, SIZE) == 0);
    CHECK_EQUAL(page_tables(), 0);
}

int main(int argc, char **argv)
{
    int ordinary;

    if (argc > 1)
        after_exec(atoi(argv[1]));
    program = argv[0];
    catch_faults();
    memory = gpu_alloc(SIZE);
    memset(memory.view, OURS, SIZE);
    forked_children();
    closed_while_a_child_has_a_copy();
    copies_of_our_own();
    passed_descriptors_are_refused();
    closed_by_another_thread();
    threads_with_tables_of_their_own();
    taken_descriptors_are_refused();
    other_programs();
    in_child(unprivileged);
    gpu_free(memory);

    inherited = driver_open();
    ordinary = !persistent(inherited);
    CHECK(close(inherited) == 0);
    owner_ends_before_its_descriptors(0, 0, 0);
    owner_ends_before_its_descriptors(CLONE_FILES, 1, ordinary);
    CHECK_EQUAL(page_tables(), 0);
    return passed("owners");
}
