/* Tests that emulated dma-bufs behave like those of Linux in processes that receive them from another process. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "cuda_values.h"
#include "kit/descriptor.h"
#include "tests.h"

enum { BLOCK = 2 << 20, PAGE = 4096, SIZE = 4 * PAGE };

static int sockets[2]; /* a connected pair: the receiver's socket, and the exporter's */
static pid_t exporter;

/* Exports part of a buffer that is filled with 7. */
static int exported_part(CUdeviceptr *buffer)
{
    gpu_start(0);
    *buffer = allocated(BLOCK);
    CUDA(cuMemsetD8(*buffer, 7, BLOCK));
    return exported(*buffer + PAGE, SIZE);
}

/* Sends the descriptor itself over the socket, and then its number, by which the receiver finds it in /proc. */
static void send_both(int fd)
{
    CHECK(send_descriptor(sockets[1], fd));
    CHECK_EQUAL(write(sockets[1], &fd, sizeof(fd)), (ssize_t)sizeof(fd));
}

static void start_exporter(void (*part)(void))
{
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    exporter = start_child(part);
    close(sockets[1]);
}

/* Gets a descriptor of another process by three methods: over a socket, from /proc, and by pidfd_getfd. */
static void receive(int received[3])
{
    char path[64];
    int number;

    received[0] = receive_descriptor(sockets[0]);
    CHECK_EQUAL(read(sockets[0], &number, sizeof(number)), (ssize_t)sizeof(number));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", exporter, number);
    received[1] = open(path, O_RDWR);
    long process = syscall(__NR_pidfd_open, exporter, 0);
    received[2] = (int)syscall(__NR_pidfd_getfd, process, number, 0);
    for (int i = 0; i < 3; i++)
        CHECK(received[i] >= 0);
}

static void *mapped(int fd, size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void frees_and_ends(void)
{
    CUdeviceptr buffer;

    send_both(exported_part(&buffer));
    await(sockets[1]);
    CUDA(cuMemFree(buffer));
}

TEST(outlives_its_exporter)
{
    volatile unsigned char *views[3];
    int received[3];

    start_exporter(frees_and_ends);
    receive(received);
    say(sockets[0]);
    finish_child(exporter);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(lseek(received[i], 0, SEEK_END), SIZE);
        CHECK(mapped(received[i], SIZE + 1) == MAP_FAILED && errno == EINVAL);
        views[i] = mapped(received[i], SIZE);
        CHECK(views[i] != MAP_FAILED);
        close(received[i]);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(views[i][0], i == 0 ? 7 : 9);
        CHECK_EQUAL(views[i][SIZE - 1], 7);
        views[i][0] = 9;
    }
    for (int i = 0; i < 3; i++)
        CHECK_EQUAL(munmap((void *)views[i], SIZE), 0);
}

/* The receiver has a descriptor of the dma-buf, then also a mapping, then only a mapping, and in the last step neither.
   The memory is free only after the last step. */
static void memory_returns_with_the_last_use(void)
{
    gpu_start(0);
    size_t before = free_bytes();
    CUdeviceptr buffer;
    int fd = exported_part(&buffer);

    CUDA(cuMemFree(buffer));
    send_both(fd);
    for (int step = 0; step < 4; step++) {
        await(sockets[1]);
        if (step == 0)
            close(fd);
        CHECK_EQUAL(free_bytes(), before - (step < 3 ? BLOCK : 0));
        CHECK_EQUAL(write(sockets[1], "", 1), 1);
    }
}

TEST(holds_the_memory_until_it_is_closed_and_unmapped)
{
    int received[3];

    start_exporter(memory_returns_with_the_last_use);
    receive(received);
    for (int step = 0; step < 4; step++) {
        void *view = NULL;
        switch (step) {
        case 0: /* Only the descriptor that was opened through /proc is left. */
            close(received[0]);
            close(received[2]);
            break;
        case 1:
            view = mapped(received[1], PAGE);
            CHECK(view != MAP_FAILED);
            break;
        case 2:
            view = mapped(received[1], PAGE);
            close(received[1]);
            break;
        }
        say(sockets[0]);
        await(sockets[0]);
        if (view != NULL) {
            CHECK_EQUAL(*(unsigned char *)view, 7);
            munmap(view, PAGE);
        }
    }
    finish_child(exporter);
}

TEST(is_mapped_after_exec)
{
    CUdeviceptr buffer;
    char number[16];

    if (arguments[0] == NULL) {
        snprintf(number, sizeof(number), "%d", dup(exported_part(&buffer))); /* exec does not close a duplicate. */
        execl("/proc/self/exe", "cuda_received", "is_mapped_after_exec", number, NULL);
    }
    unsigned char *view = mapped(atoi(arguments[0]), SIZE);
    CHECK(view != MAP_FAILED && view[SIZE - 1] == 7);
}

static int mapping_error(int fd)
{
    return mapped(fd, PAGE) == MAP_FAILED ? errno : 0;
}

static void reports_its_own_result(void)
{
    CUdeviceptr buffer;
    int fd = exported_part(&buffer);
    int error = mapping_error(fd);

    send_both(fd);
    CHECK_EQUAL(write(sockets[1], &error, sizeof(error)), (ssize_t)sizeof(error));
    await(sockets[1]);
}

/* The argument is the error with which mmap of a dma-buf must fail in the exporter and in this process. Without an
   argument, mmap must succeed. */
TEST(can_be_mapped_where_its_exporter_can)
{
    int received[3], error;

    start_exporter(reports_its_own_result);
    receive(received);
    CHECK_EQUAL(read(sockets[0], &error, sizeof(error)), (ssize_t)sizeof(error));
    CHECK_EQUAL(error, arguments[0] == NULL ? 0 : atoi(arguments[0]));
    for (int i = 0; i < 3; i++)
        CHECK_EQUAL(mapping_error(received[i]), error);
    say(sockets[0]);
    finish_child(exporter);
}
