/* Tests which process may use an open device, and when its pins end. */
#include "contract.h"
#include "kit/descriptor.h"

#include <grp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define SIZE (2 * GPU_PAGE)

static void check_refused(int fd)
{
    unsigned char argument[64] = {0}, *va;

    for (size_t i = 0; i < COUNT(commands); i++)
        CHECK_ERROR(command(fd, commands[i].number, argument), EACCES);
    CHECK_ERROR(command(fd, 0xDA00 /* no command */, argument), EACCES);
    CHECK_ERROR(map(fd, 0, SIZE, &va), EACCES);
}

/* ---- Forked children ---- */

static void child_has_nothing(void)
{
    unsigned char value;

    CHECK_EQUAL(touch(va, &value), SIGSEGV);
    check_refused(fd);
    CHECK_PINNED(1);
    CHECK(close(fd) == 0);
    CHECK_PINNED(1);
    CHECK(close(driver_open()) == 0);
}

TEST(forked_child_can_use_nothing)
{
    begin(SIZE);
    in_child(child_has_nothing);
    /* The child's close and exit must not affect the parent. */
    CHECK_MAPPED(fd, handle);
    CHECK_PINNED(1);
    CHECK_PAGES(va, SIZE, OURS);
}

/* The child pins memory of its own. It cannot pin the parent's. */
static void use_a_device_of_its_own(void)
{
    uint64_t parents;

    CHECK(read(to_child[0], &parents, sizeof(parents)) == sizeof(parents));
    fd = driver_open();
    CHECK_ERROR(pin(fd, parents, SIZE, &handle), EINVAL);
    begin(SIZE);
}

TEST(forked_child_can_open_its_own)
{
    pid_t child = start_child(use_a_device_of_its_own);

    begin(SIZE);
    CHECK(write(to_child[1], &memory.va, sizeof(memory.va)) == sizeof(memory.va));
    finish_child(child);
    CHECK_PAGES(va, SIZE, OURS);
}

/* Runs in a child, which keeps its copies of all descriptors open until the parent lets it exit. */
static void keeper(void)
{
    await(to_child[0]);
}

TEST(close_while_a_child_has_a_copy)
{
    begin(SIZE);
    pid_t child = start_child(keeper);
    CHECK(close(fd) == 0);
    CHECK_PAGES(va, SIZE, OURS);
    say(to_child[1]);
    finish_child(child);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_PINNED(1);
}

/* Persistent pins end even if a forked child closes the last descriptor. Other pins do not, because the GPU driver
   lets no child unpin memory of the parent. */
TEST(last_close_by_a_child_ends_persistent_pins)
{
    int fd = driver_open();

    if (!persistent(fd))
        waive("the pins are not persistent");
    memory = memory_alloc(SIZE);
    (void)pinned(fd, memory, SIZE);
    pid_t child = start_child(keeper);
    CHECK(close(fd) == 0);
    CHECK_PINNED(1);
    say(to_child[1]);
    finish_child(child);
    CHECK_PINNED(0);
}

/* Pins, and exits while a child runs. The fork comes before CUDA is used, so the child inherits no GPU descriptor. */
static void end_before_a_child(void)
{
    int fd = driver_open();

    if (fork() == 0) {
        await(to_child[0]);
        check_refused(fd);
        CHECK(close(fd) == 0);
        say(to_parent[1]);
        _exit(0);
    }
    memory = memory_alloc(SIZE);
    (void)pinned(fd, memory, SIZE);
}

TEST(owner_exits_before_a_child)
{
    int fd = driver_open();

    if (!persistent(fd))
        waive("the pins end with the memory of the process");
    CHECK(close(fd) == 0);
    in_child(end_before_a_child);
    CHECK(close(to_parent[1]) == 0);
    CHECK_PINNED(expected("pins of an owner that has exited", 0));
    say(to_child[1]);
    await(to_parent[0]);
    CHECK_PINNED(0);
}

/* ---- Passed descriptors ---- */

static int sockets[2];

/* Opens the device, sends its descriptor to a socket, and then closes the descriptor in this process. */
static void begin_and_send(void)
{
    begin(SIZE);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    CHECK(send_descriptor(sockets[0], fd));
    CHECK(close(fd) == 0);
}

static void receiver(void)
{
    CHECK(close(sockets[0]) == 0);
    int received = receive_descriptor(sockets[1]);
    check_refused(received);
    /* By now the sender has closed its descriptor, but its mapping of the pin still exists. */
    CHECK_PINNED(1);
    CHECK(close(received) == 0);
}

TEST(receiver_of_a_descriptor_can_use_nothing)
{
    begin_and_send();
    in_child(receiver);
    CHECK_PAGES(va, SIZE, OURS);
}

TEST(owner_that_receives_its_descriptor_can_use_it)
{
    begin_and_send();
    fd = receive_descriptor(sockets[1]);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
    CHECK_PINNED(0);
}

static void taker(void)
{
    int process = (int)syscall(SYS_pidfd_open, getppid(), 0);
    int taken = (int)syscall(__NR_pidfd_getfd, process, fd, 0);

    if (taken < 0)
        _exit(0); /* a sandbox may forbid pidfd_getfd() */
    check_refused(taken);
    CHECK(close(taken) == 0);
}

TEST(taker_of_a_descriptor_can_use_nothing)
{
    begin(SIZE);
    in_child(taker);
    CHECK_PAGES(va, SIZE, OURS);
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
        /* The process has lost its mappings by exec, but not its pins. */
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
    exec_self("refused", fd);
}

TEST(program_of_a_child_can_use_nothing)
{
    begin(SIZE);
    CHECK(fcntl(fd, F_SETFD, 0) == 0);
    in_child(exec_as_another_process);
    CHECK_PAGES(va, SIZE, OURS);
}

TEST(exec_keeps_pins_of_an_inherited_descriptor)
{
    begin(SIZE);
    if (!persistent(fd))
        waive("the pins end with the memory of the program");
    CHECK(fcntl(fd, F_SETFD, 0) == 0);
    exec_self("owner", fd);
}

static void *exec_from_a_thread(void *unused)
{
    (void)unused;
    exec_self("closed", fd);
}

/* A thread other than the main thread calls exec. The kernel ends all others, and makes this one the main thread. */
TEST(exec_ends_pins_of_a_closed_descriptor)
{
    begin(SIZE);
    (void)start_thread(exec_from_a_thread, NULL);
    for (;;)
        pause();
}

/* ---- The owner's copies of a descriptor, and how they are closed ---- */

TEST(copies_are_equal)
{
    begin(SIZE);
    int copy = dup(fd);

    CHECK(close(fd) == 0);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK(dup2(copy, fd) == fd);
    CHECK(dup2(copy, fd) == fd);
    CHECK(close(copy) == 0);
    CHECK_PAGES(va, SIZE, OURS);
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
}

#ifndef CLOSE_RANGE_CLOEXEC /* glibc has this flag and close_range() since 2.34 */
#define close_range(first, last, flags) syscall(__NR_close_range, first, last, flags)
#endif

TEST(last_close_unpins_by_any_call)
{
    int fd = driver_open();

    memory = memory_alloc(SIZE);
    (void)pinned(fd, memory, SIZE);
    int other = dup(fd);
    CHECK(close(fd) == 0);
    CHECK_PINNED(1);
    (void)pinned(other, memory, SIZE);
    fd = fcntl(other, F_DUPFD_CLOEXEC, 100);
    CHECK_EQUAL(fd, 100);
    CHECK(close(other) == 0);
    CHECK_EQUAL(dup2(fd, 200), 200);
    CHECK(close(fd) == 0);
    CHECK_PINNED(2);
    /* This gives the number of the device's last descriptor to another file, and so closes that descriptor. */
    CHECK_EQUAL(dup2(STDERR_FILENO, 200), 200);
    CHECK_PINNED(0);
    CHECK(close(200) == 0);

    fd = driver_open();
    CHECK_EQUAL(dup2(fd, 299), 299); /* above CUDA's descriptors, which close_range() must not close */
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

TEST(killed_process_keeps_no_pins)
{
    pid_t child = fork();

    if (child == 0) {
        begin(SIZE);
        (void)pinned(fd, memory, SIZE);
        CHECK(close(fd) == 0);
        say(to_parent[1]);
        for (;;)
            pause();
    }
    CHECK(close(to_parent[1]) == 0);
    await(to_parent[0]);
    CHECK_PINNED(2);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_PINNED(0);
}

/* ---- Threads ---- */

static void *close_descriptor(void *unused)
{
    CHECK(close(fd) == 0);
    return unused;
}

TEST(thread_can_close)
{
    begin(SIZE);
    in_thread(close_descriptor, NULL);
    CHECK_ERROR(unpin(fd, handle), EBADF);
    CHECK_PAGES(va, SIZE, OURS);
}

static void *ask_for_the_flag(void *unused)
{
    struct gdrdrv_get_cb_flag a = {.handle = handle};

    (void)unused;
    CHECK_ERROR(command(fd, GDRDRV_IOC_GET_CB_FLAG, &a),
                expected("GET_CB_FLAG by another thread of the owner", 0));
    return NULL;
}

TEST(all_threads_are_the_owner)
{
    begin(SIZE);
    in_thread(ask_for_the_flag, NULL);
}

static void *end_with_a_table_of_its_own(void *closes)
{
    CHECK(unshare(CLONE_FILES) == 0);
    if (closes != NULL)
        CHECK(close(fd) == 0);
    return NULL;
}

/* The exit of a thread with its own descriptor table must not end the pins of its process. */
TEST(thread_with_its_own_table_ends_no_pins)
{
    uint64_t other;

    begin(SIZE);
    for (int i = 0; i < 2; i++) {
        in_thread(end_with_a_table_of_its_own, i ? &fd : NULL);
        usleep(100000); /* the kernel closes the thread's descriptor table only after pthread_join has returned */
        CHECK_PAGES(va, SIZE, OURS);
        CHECK_PINNED(1);
    }
    CHECK_OK(pin(fd, memory.va, SIZE, &other));
    CHECK_OK(unpin(fd, other));
    CHECK_OK(unpin(fd, handle));
    CHECK_PAGES_GONE(va, SIZE);
}

/* ---- Users ---- */

TEST(unprivileged_user_can_pin)
{
    if (getenv("GDREMU_CONFIG") != NULL)
        waive("the session of gdremu belongs to another user");
    if (geteuid() == 0) {
        CHECK(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        CHECK(setuid(0) != 0);
    }
    begin(SIZE);
}
