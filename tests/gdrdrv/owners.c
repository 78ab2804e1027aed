/* Which process may use an open device, and when its pins end. */
#include "contract.h"

#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define SIZE (2 * GPU_PAGE)
#define OURS 0x11

static struct memory memory;

static void check_refused(int fd)
{
    unsigned char argument[64] = {0}, *va;
    const unsigned long commands[] = {
        GDRDRV_IOC_PIN_BUFFER,    GDRDRV_IOC_UNPIN_BUFFER,     GDRDRV_IOC_GET_CB_FLAG,
        GDRDRV_IOC_GET_INFO,      GDRDRV_IOC_GET_INFO_V2,      GDRDRV_IOC_GET_ATTR,
        GDRDRV_IOC_PIN_BUFFER_V2, GDRDRV_IOC_REQ_MAPPING_TYPE, GDRDRV_IOC_GET_VERSION,
        0xDA00 /* no command */,
    };
    size_t i;

    for (i = 0; i < COUNT(commands); i++)
        CHECK_ERROR(command(fd, commands[i], argument), EACCES);
    CHECK_ERROR(map(fd, 0, SIZE, &va), EACCES);
}

/* Opens the device, with a pin that is mapped. */
static unsigned char *opened(int *fd, uint64_t *handle)
{
    unsigned char *va;

    if (memory.size == 0)
        memory = memory_alloc(SIZE);
    memory_fill(memory, OURS);
    *fd = driver_open();
    *handle = pinned(*fd, memory, SIZE);
    va = mapped(*fd, *handle, SIZE);
    CHECK_PAGES(va, SIZE, OURS);
    return va;
}

/* ---- Steps of two processes ---- */

struct steps {
    int to_child[2], to_parent[2];
};

/* The child waits for each step of the parent. */
static struct steps steps_new(void)
{
    struct steps steps;

    CHECK(pipe2(steps.to_child, O_CLOEXEC) == 0 && pipe2(steps.to_parent, O_CLOEXEC) == 0);
    return steps;
}

static void say(const int pipe[2])
{
    CHECK(write(pipe[1], "", 1) == 1);
}

/* Fails if the other process has ended, so each must close its copy of the end that the other writes
   to. */
static void await(const int pipe[2])
{
    char byte;

    CHECK(read(pipe[0], &byte, 1) == 1);
}

static void check_ended_well(pid_t child)
{
    int status;

    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- Forked children ---- */

static int inherited;
static uint64_t inherited_handle;
static unsigned char *inherited_va;

static void child_has_nothing(void)
{
    unsigned char value;

    CHECK_EQUAL(touch(inherited_va, &value), SIGSEGV);
    check_refused(inherited);
    CHECK_PINNED(1);
    CHECK(close(inherited) == 0);
    CHECK_PINNED(1);
    CHECK(close(driver_open()) == 0);
}

static void forked_child_can_use_nothing(void)
{
    inherited_va = opened(&inherited, &inherited_handle);
    in_child(child_has_nothing);
    /* The child's close and exit must not affect the parent. */
    CHECK_PAGES(inherited_va, SIZE, OURS);
    CHECK_MAPPED(inherited, inherited_handle);
    CHECK_PINNED(1);
    unmap(inherited_va, SIZE);
    CHECK(close(inherited) == 0);
}

/* With its own memory. It cannot pin the parent's. */
static void use_a_device_of_its_own(uint64_t parents)
{
    struct memory own;
    int fd = driver_open();
    unsigned char *va;
    uint64_t handle;

    if (parents != 0)
        CHECK_ERROR(pin(fd, parents, SIZE, &handle), EINVAL);
    own = memory_alloc(SIZE);
    memory_fill(own, 0x22);
    handle = pinned(fd, own, SIZE);
    va = mapped(fd, handle, SIZE);
    CHECK_PAGES(va, SIZE, 0x22);
    unmap(va, SIZE);
    CHECK(close(fd) == 0);
}

static void forked_child_can_open_its_own(void)
{
    struct steps steps = steps_new();
    uint64_t va;
    pid_t child = fork();

    if (child == 0) {
        CHECK(read(steps.to_child[0], &va, sizeof(va)) == sizeof(va));
        use_a_device_of_its_own(va);
        _exit(0);
    }
    inherited_va = opened(&inherited, &inherited_handle);
    va = memory.va;
    CHECK(write(steps.to_child[1], &va, sizeof(va)) == sizeof(va));
    check_ended_well(child);
    CHECK_PAGES(inherited_va, SIZE, OURS);
    unmap(inherited_va, SIZE);
    CHECK(close(inherited) == 0);
}

/* A child that keeps its copies of all descriptors until the parent says so. */
static pid_t keeper(const struct steps *steps)
{
    pid_t child = fork();

    if (child == 0) {
        await(steps->to_child);
        _exit(0);
    }
    return child;
}

static void close_while_a_child_has_a_copy(void)
{
    struct steps steps = steps_new();
    uint64_t handle;
    int fd;
    unsigned char *va = opened(&fd, &handle);
    pid_t child = keeper(&steps);

    CHECK(close(fd) == 0);
    CHECK_PAGES(va, SIZE, OURS);
    say(steps.to_child);
    check_ended_well(child);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_PINNED(1);
    unmap(va, SIZE);
}

/* The GPU driver ignores unpins of other pins by a process that does not own the memory. */
static void last_close_by_a_child_ends_persistent_pins(void)
{
    struct steps steps = steps_new();
    int fd = driver_open();
    pid_t child;

    if (!persistent(fd))
        waive("the pins are not persistent");
    memory = memory_alloc(SIZE);
    (void)pinned(fd, memory, SIZE);
    child = keeper(&steps);
    CHECK(close(fd) == 0);
    CHECK_PINNED(1);
    say(steps.to_child);
    check_ended_well(child);
    CHECK_PINNED(0);
}

/* The owner has forked before it used CUDA, so its child has no descriptor of the GPU. */
_Noreturn static void end_before_a_child(const struct steps *steps)
{
    int fd = driver_open();

    if (fork() == 0) {
        await(steps->to_child);
        check_refused(fd);
        CHECK(close(fd) == 0);
        say(steps->to_parent);
        _exit(0);
    }
    memory = memory_alloc(SIZE);
    (void)pinned(fd, memory, SIZE);
    _exit(0);
}

static void owner_exits_before_a_child(void)
{
    struct steps steps = steps_new();
    int fd = driver_open();
    pid_t owner;

    if (!persistent(fd))
        waive("the pins end with the memory of the process");
    CHECK(close(fd) == 0);
    owner = fork();
    if (owner == 0)
        end_before_a_child(&steps);
    CHECK(close(steps.to_parent[1]) == 0);
    check_ended_well(owner);
    CHECK_PINNED(expected("pins of an owner that has exited", 0));
    say(steps.to_child);
    await(steps.to_parent);
    CHECK_PINNED(0);
}

/* ---- Passed descriptors ---- */

static void send_descriptor(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof(fd))] __attribute__((aligned(8))) = {0}, byte = 0;
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
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0}, byte;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fd;

    CHECK(recvmsg(socket, &message, 0) == 1);
    CHECK(CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static int sockets[2];

static void receiver(void)
{
    int fd;

    CHECK(close(sockets[0]) == 0);
    fd = receive_descriptor(sockets[1]);
    check_refused(fd);
    /* By now the sender has closed its descriptor, and has the pin mapped. */
    CHECK_PINNED(1);
    CHECK(close(fd) == 0);
}

static void receiver_of_a_descriptor_can_use_nothing(void)
{
    uint64_t handle;
    int fd;
    unsigned char *va = opened(&fd, &handle);

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    send_descriptor(sockets[0], fd);
    CHECK(close(fd) == 0);
    in_child(receiver);
    CHECK_PAGES(va, SIZE, OURS);
    unmap(va, SIZE);
}

static void owner_that_receives_its_descriptor_can_use_it(void)
{
    uint64_t handle;
    int fd;
    unsigned char *va = opened(&fd, &handle);

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    send_descriptor(sockets[0], fd);
    CHECK(close(fd) == 0);
    fd = receive_descriptor(sockets[1]);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
    CHECK_PINNED(0);
    CHECK(close(fd) == 0);
    unmap(va, SIZE);
}

static void taker(void)
{
    int process = (int)syscall(SYS_pidfd_open, getppid(), 0);
    int fd = (int)syscall(SYS_pidfd_getfd, process, inherited, 0);

    if (fd < 0)
        _exit(0); /* a sandbox */
    check_refused(fd);
    CHECK(close(fd) == 0);
}

static void taker_of_a_descriptor_can_use_nothing(void)
{
    inherited_va = opened(&inherited, &inherited_handle);
    in_child(taker);
    CHECK_PAGES(inherited_va, SIZE, OURS);
    unmap(inherited_va, SIZE);
    CHECK(close(inherited) == 0);
}

/* ---- exec ---- */

void after_exec(const char *then, int fd)
{
    struct gdrdrv_get_version version;

    if (strcmp(then, "refused") == 0) {
        check_refused(fd);
        CHECK_PINNED(1);
    } else if (strcmp(then, "owner") == 0) {
        CHECK_PINNED(1);
        CHECK_ERROR(command(fd, GDRDRV_IOC_GET_VERSION, &version), expected("GET_VERSION by the owner after exec", 0));
        /* The process has lost its mappings, but not its pins. */
        if (expected("GET_VERSION by the owner after exec", 0) == 0) {
            CHECK_NOT_MAPPED(fd, 0);
            CHECK_OK(unpin(fd, 0));
            CHECK_PINNED(0);
        }
    } else {
        CHECK_STRING(then, "closed");
        CHECK_PINNED(0);
        CHECK(fcntl(fd, F_GETFD) < 0);
    }
    fflush(NULL);
    _exit(0);
}

static void exec_as_another_process(void)
{
    exec_self("refused", inherited);
}

static void program_of_a_child_can_use_nothing(void)
{
    inherited_va = opened(&inherited, &inherited_handle);
    CHECK(fcntl(inherited, F_SETFD, 0) == 0);
    in_child(exec_as_another_process);
    CHECK_PAGES(inherited_va, SIZE, OURS);
    unmap(inherited_va, SIZE);
    CHECK(close(inherited) == 0);
}

static void exec_keeps_pins_of_an_inherited_descriptor(void)
{
    inherited_va = opened(&inherited, &inherited_handle);
    if (!persistent(inherited))
        waive("the pins end with the memory of the program");
    CHECK(fcntl(inherited, F_SETFD, 0) == 0);
    exec_self("owner", inherited);
}

static void *exec_from_a_thread(void *unused)
{
    (void)unused;
    exec_self("closed", inherited);
}

/* By another thread, which then becomes the process. */
static void exec_ends_pins_of_a_closed_descriptor(void)
{
    pthread_t thread;

    inherited_va = opened(&inherited, &inherited_handle);
    CHECK(pthread_create(&thread, NULL, exec_from_a_thread, NULL) == 0);
    for (;;)
        pause();
}

/* ---- Copies of the owner, and how they end ---- */

static void copies_are_equal(void)
{
    uint64_t handle;
    int fd, copy;
    unsigned char *va = opened(&fd, &handle);

    copy = dup(fd);
    CHECK(close(fd) == 0);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK(dup2(copy, fd) == fd);
    CHECK(dup2(copy, fd) == fd);
    CHECK(close(copy) == 0);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
    unmap(va, SIZE);
    CHECK(close(fd) == 0);
}

static void last_close_unpins_by_any_call(void)
{
    int fd = driver_open(), other;

    memory = memory_alloc(SIZE);
    (void)pinned(fd, memory, SIZE);
    other = dup(fd);
    CHECK(close(fd) == 0);
    CHECK_PINNED(1);
    (void)pinned(other, memory, SIZE);
    fd = fcntl(other, F_DUPFD_CLOEXEC, 100);
    CHECK_EQUAL(fd, 100);
    CHECK(close(other) == 0);
    CHECK_EQUAL(dup2(fd, 200), 200);
    CHECK(close(fd) == 0);
    CHECK_PINNED(2);
    /* Something else takes its number. */
    CHECK_EQUAL(dup2(STDERR_FILENO, 200), 200);
    CHECK_PINNED(0);
    CHECK(close(200) == 0);

    fd = driver_open();
    CHECK_EQUAL(dup2(fd, 299), 299); /* below, CUDA has descriptors */
    CHECK_EQUAL(dup3(fd, 300, O_CLOEXEC), 300);
    CHECK(close(fd) == 0);
    (void)pinned(300, memory, SIZE);
    CHECK_EQUAL(close_range(299, 299, 0), 0);
    CHECK_PINNED(1);
    CHECK_EQUAL(close_range(300, 400, 0), 0);
    CHECK_PINNED(0);

    fd = driver_open();
    (void)pinned(fd, memory, SIZE);
    CHECK_EQUAL(syscall(SYS_close, fd), 0);
    CHECK_PINNED(0);
}

static void killed_process_keeps_no_pins(void)
{
    struct steps steps = steps_new();
    pid_t child = fork();
    uint64_t handle;
    int fd;

    if (child == 0) {
        (void)opened(&fd, &handle);
        (void)pinned(fd, memory, SIZE);
        CHECK(close(fd) == 0);
        say(steps.to_parent);
        for (;;)
            pause();
    }
    CHECK(close(steps.to_parent[1]) == 0);
    await(steps.to_parent);
    CHECK_PINNED(2);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_PINNED(0);
}

/* ---- Threads ---- */

static void *close_descriptor(void *fd)
{
    CHECK(close(*(int *)fd) == 0);
    return NULL;
}

static void thread_can_close(void)
{
    uint64_t handle;
    int fd;
    unsigned char *va = opened(&fd, &handle);
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, close_descriptor, &fd) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_ERROR(unpin(fd, handle), EBADF);
    CHECK_PAGES(va, SIZE, OURS);
    unmap(va, SIZE);
}

static void *ask_for_the_flag(void *unused)
{
    struct gdrdrv_get_cb_flag a = {.handle = inherited_handle};

    (void)unused;
    CHECK_ERROR(command(inherited, GDRDRV_IOC_GET_CB_FLAG, &a),
                expected("GET_CB_FLAG by another thread of the owner", 0));
    return NULL;
}

static void all_threads_are_the_owner(void)
{
    pthread_t thread;

    inherited_va = opened(&inherited, &inherited_handle);
    CHECK(pthread_create(&thread, NULL, ask_for_the_flag, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    unmap(inherited_va, SIZE);
    CHECK_OK(unpin(inherited, inherited_handle));
}

static void *end_with_a_table_of_its_own(void *fd)
{
    CHECK(unshare(CLONE_FILES) == 0);
    if (fd != NULL)
        CHECK(close(*(int *)fd) == 0);
    return NULL;
}

/* The exit of a thread with its own descriptor table must not end the pins of its process. */
static void thread_with_its_own_table_ends_no_pins(void)
{
    uint64_t handle, other;
    int fd, i;
    unsigned char *va = opened(&fd, &handle);

    for (i = 0; i < 2; i++) {
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, end_with_a_table_of_its_own, i ? &fd : NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        usleep(100000); /* the kernel closes its table after pthread_join */
        CHECK_PAGES(va, SIZE, OURS);
        CHECK_PINNED(1);
    }
    CHECK_OK(pin(fd, memory.va, SIZE, &other));
    CHECK_OK(unpin(fd, other));
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
    unmap(va, SIZE);
    CHECK(close(fd) == 0);
}

/* ---- Users ---- */

static void unprivileged_user_can_pin(void)
{
    if (getenv("GDREMU_CONFIG") != NULL)
        waive("the session of gdremu belongs to another user");
    if (geteuid() == 0) {
        CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        CHECK(setuid(0) != 0);
    }
    use_a_device_of_its_own(0);
}

const struct contract_case owner_cases[] = {
    CASE(forked_child_can_use_nothing),
    CASE(forked_child_can_open_its_own),
    CASE(close_while_a_child_has_a_copy),
    CASE(last_close_by_a_child_ends_persistent_pins),
    CASE(owner_exits_before_a_child),
    CASE(receiver_of_a_descriptor_can_use_nothing),
    CASE(owner_that_receives_its_descriptor_can_use_it),
    CASE(taker_of_a_descriptor_can_use_nothing),
    CASE(program_of_a_child_can_use_nothing),
    CASE(exec_keeps_pins_of_an_inherited_descriptor),
    CASE(exec_ends_pins_of_a_closed_descriptor),
    CASE(copies_are_equal),
    CASE(last_close_unpins_by_any_call),
    CASE(killed_process_keeps_no_pins),
    CASE(thread_can_close),
    CASE(all_threads_are_the_owner),
    CASE(thread_with_its_own_table_ends_no_pins),
    CASE(unprivileged_user_can_pin),
    {NULL, NULL},
};
