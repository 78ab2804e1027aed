/*
 * Tests of GPU memory that another process has allocated. The exporter exports the memory as a dma-buf and sends the
 * descriptor. The receiver does not use CUDA, and was forked before CUDA was initialized, or started by exec. It maps
 * the memory, and accesses it even after the exporter has freed it.
 */

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "gdrx.h"
#include "kit/descriptor.h"
#include "kit/library.h"

#define SIZE (3 * GPU_PAGE_SIZE)
/* The offset of the exported bytes in the buffer. It is not a multiple of the host's or the GPU's page size. */
#define START (GPU_PAGE_SIZE + 4099)
#define BYTES 70000
#define NOT_MAPPED 3 /* the exit status of a receiver that got no descriptor, or could not map the dma-buf */

/* The data that is sent before a dma-buf's descriptor. */
struct part {
    uint64_t offset;
    uint32_t type, unused;
};

static unsigned char sent[BYTES], answered[BYTES], seen[BYTES];

static void patterns(void)
{
    for (size_t i = 0; i < BYTES; i++) {
        sent[i] = (unsigned char)(i % 251);
        answered[i] = (unsigned char)(i % 241 + 1);
    }
}

static void map_is_unchanged(const struct gdrx_map *map)
{
    static const struct gdrx_map none;

    CHECK(memcmp(map, &none, sizeof(none)) == 0);
}

static void unmapped_in_a_child(struct gdrx_map *map)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        _exit(gdrx_unmap_dmabuf(map) == EACCES && gdrx_flush(map) == EACCES ? 0 : 1);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

/*
 * Maps the memory that an exporter sends, reads its bytes, and writes other bytes to it. The written bytes must still
 * be there after the exporter has freed the memory. Returns the exit status of the process.
 */
static int receive(int socket)
{
    struct part part;
    struct gdrx_map map = {0}, none = {0};
    struct gdrx_copy read = {0, seen, BYTES}, write = {0, answered, BYTES};
    char freed;

    if (recv(socket, &part, sizeof(part), MSG_WAITALL) != sizeof(part))
        return NOT_MAPPED;
    int fd = receive_descriptor(socket);
    CHECK(fd >= 0);
    CHECK_ERROR(gdrx_map_dmabuf(NULL, fd, part.offset, BYTES, part.type), EINVAL);
    CHECK_ERROR(gdrx_map_dmabuf(&map, -1, part.offset, BYTES, part.type), EINVAL);
    CHECK_ERROR(gdrx_map_dmabuf(&map, 1000, part.offset, BYTES, part.type), EBADF);
    CHECK_ERROR(gdrx_map_dmabuf(&map, fd, part.offset, 0, part.type), EINVAL);
    CHECK_ERROR(gdrx_map_dmabuf(&map, fd, part.offset, SIZE_MAX, part.type), EINVAL);
    CHECK_ERROR(gdrx_map_dmabuf(&map, fd, part.offset, SIZE_MAX - 1, part.type), EINVAL);
    CHECK_ERROR(gdrx_unmap_dmabuf(NULL), EINVAL);
    CHECK_ERROR(gdrx_unmap_dmabuf(&none), EINVAL);
    if (gdrx_map_dmabuf(&map, fd, part.offset, BYTES, part.type) != 0) {
        map_is_unchanged(&map);
        return NOT_MAPPED;
    }
    CHECK_OK(gdrx_unmap_dmabuf(&map));
    CHECK(dup2(fd, STDIN_FILENO) == STDIN_FILENO); /* a dma-buf whose descriptor is 0 can be mapped, too */
    CHECK_OK(gdrx_map_dmabuf(&map, STDIN_FILENO, part.offset, BYTES, part.type));
    CHECK_ERROR(gdrx_map_dmabuf(&none, fd, part.offset, BYTES, 0), EINVAL);
    map_is_unchanged(&none);
    close(fd);
    close(STDIN_FILENO);
    CHECK_EQUAL((uintptr_t)map.address % (uintptr_t)sysconf(_SC_PAGESIZE), part.offset);
    CHECK_OK(gdrx_read_many(&map, &read, 1));
    CHECK_BYTES(seen, sent, BYTES);
    CHECK_OK(gdrx_write_many(&map, &write, 1));
    CHECK_OK(gdrx_flush(&map));
    unmapped_in_a_child(&map);
    CHECK_EQUAL(send(socket, "a", 1, 0), 1);
    CHECK_EQUAL(recv(socket, &freed, 1, 0), 1);
    CHECK_OK(gdrx_read_many(&map, &read, 1));
    CHECK_BYTES(seen, answered, BYTES);
    CHECK_OK(gdrx_unmap_dmabuf(&map));
    CHECK_ERROR(gdrx_unmap_dmabuf(&map), EINVAL);
    CHECK_ERROR(gdrx_flush(&map), EINVAL);
    return 0;
}

/* Exports memory to a receiver, and waits until it exits. Returns false if the dma-buf cannot be exported or mapped. */
static bool export_to(int socket, uint32_t flags, pid_t receiver)
{
    struct gpu_buffer buffer = gpu_alloc(MEM_ALLOC, SIZE);
    struct part part = {.type = GDR_MAPPING_TYPE_WC};
    char answer;
    int fd, status;

    gpu_write(buffer.address + START, sent, BYTES);
    if (gdrx_dmabuf(buffer.address + START, BYTES, flags, &fd, &part.offset) == EOPNOTSUPP) {
        shutdown(socket, SHUT_RDWR);
    } else {
        CHECK_EQUAL(send(socket, &part, sizeof(part), 0), (ssize_t)sizeof(part));
        CHECK(send_descriptor(socket, fd));
        close(fd);
    }
    if (recv(socket, &answer, 1, 0) == 1) {
        gpu_read(seen, buffer.address + START, BYTES);
        CHECK_BYTES(seen, answered, BYTES);
        gpu_free(&buffer);
        CHECK_EQUAL(send(socket, "f", 1, 0), 1);
    } else {
        gpu_free(&buffer);
    }
    close(socket);
    CHECK_EQUAL(waitpid(receiver, &status, 0), receiver);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_MAPPED)
        return false;
    CHECK_EQUAL(status, 0);
    return true;
}

int main(int argc, char **argv)
{
    int forked[2], started[2];
    char number[16];
    pid_t receivers[2];

    patterns();
    if (argc == 2)
        return receive(atoi(argv[1]));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, forked) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, started) == 0);
    receivers[0] = fork();
    if (receivers[0] == 0) {
        close(forked[0]), close(started[0]), close(started[1]);
        _exit(receive(forked[1]));
    }
    receivers[1] = fork();
    if (receivers[1] == 0) {
        close(started[0]), close(forked[0]), close(forked[1]);
        snprintf(number, sizeof(number), "%d", started[1]);
        execl(argv[0], argv[0], number, (char *)NULL);
        _exit(1);
    }
    close(forked[1]);
    close(started[1]);
    gpu_init();
    bool to_forked = export_to(forked[0], GDR_PIN_FLAG_DEFAULT, receivers[0]);
    bool to_started = export_to(started[0], GDR_PIN_FLAG_FORCE_PCIE, receivers[1]);
    /* This program may exit now. gdremu then removes files that the receivers needed, but these have exited. */
    if (!to_forked || !to_started) {
        gdr_t g = open_driver();

        CHECK(!uses_dmabuf(g)); /* if the library used dma-bufs, CUDA could map them, so the test must not be waived */
        CHECK_OK(gdr_close(g));
        waive("this CUDA does not export dma-bufs, or does not map them");
    }
    return passed("gdrx_shared");
}
