/* Shares GPU memory with a process that has no CUDA. A client allocates memory, exports it as a dma-buf, and sends the descriptor
 * to a daemon over a Unix socket. The daemon maps the dma-buf, and answers in the memory itself. Mapping needs CUDA 13.3. */
#include "example.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (256 * 1024)

/* The part of the dma-buf that the daemon maps, and the type of the mapping. */
struct part {
    uint64_t offset;
    uint64_t size;
    uint32_t type;
};

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr aligned;
};

static void send_part(int socket, const struct part *part, int fd)
{
    union control control;
    struct iovec bytes = {(void *)part, sizeof(*part)};
    struct msghdr message = {0};

    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
    CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
    CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof(fd));
    must("sendmsg", sendmsg(socket, &message, 0) != sizeof(*part));
}

/* Receives the struct part, and returns the descriptor that came with it. */
static int receive_part(int socket, struct part *part)
{
    union control control;
    struct iovec bytes = {part, sizeof(*part)};
    struct msghdr message = {0};
    int fd;

    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    must("recvmsg", recvmsg(socket, &message, 0) != sizeof(*part) || CMSG_FIRSTHDR(&message) == NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

/* Reads the client's question, and writes the answer after it. Returns an exit status. */
static int daemon_of(int socket)
{
    struct part part;
    struct gdrx_map map;
    char question[8] = "", answer[8] = "answer";
    struct gdrx_copy copies[2] = {{0, question, sizeof(question)}, {sizeof(question), answer, sizeof(answer)}};
    int fd = receive_part(socket, &part);
    int error = gdrx_map_dmabuf(&map, fd, part.offset, part.size, (gdr_mapping_type_t)part.type);

    if (error != 0) {
        printf("the driver maps no dma-buf (error %d), which takes CUDA 13.3\n", error);
        return 3;
    }
    close(fd); /* The mapping keeps the dma-buf open. */
    MUST(gdrx_read_many(&map, copies, 1));
    printf("the daemon reads \"%s\"\n", question);
    MUST(gdrx_write_many(&map, copies + 1, 1));
    MUST(gdrx_flush(&map));
    MUST(gdrx_unmap_dmabuf(&map));
    return strcmp(question, "asked") != 0;
}

int main(void)
{
    struct part part;
    CUdeviceptr address;
    CUcontext context;
    char seen[16] = "asked";
    int sockets[2], fd, status;
    pid_t daemon;

    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    fflush(stdout);
    daemon = fork(); /* The child stands for another program. It is started before this process initializes CUDA. */
    if (daemon == 0)
        exit(daemon_of(sockets[1]));

    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc(&address, SIZE));
    MUST(cuMemcpyHtoD(address, seen, sizeof(seen)));
    /* With this flag, the mapping is write-combining on every platform, so `type` is known before the daemon maps. */
    MUST(gdrx_dmabuf(address, SIZE, GDR_PIN_FLAG_FORCE_PCIE, &fd, &part.offset));
    part.size = SIZE;
    part.type = GDR_MAPPING_TYPE_WC;
    send_part(sockets[0], &part, fd);
    close(fd);
    must("waitpid", waitpid(daemon, &status, 0) != daemon || !WIFEXITED(status));
    if (WEXITSTATUS(status) == 0) {
        MUST(cuMemcpyDtoH(seen, address, sizeof(seen)));
        printf("the client reads \"%s\"\n", seen + 8);
        must("the answer is not in GPU memory", strcmp(seen + 8, "answer"));
    }
    MUST(cuMemFree(address));
    return WEXITSTATUS(status) == 3 ? 0 : WEXITSTATUS(status);
}
