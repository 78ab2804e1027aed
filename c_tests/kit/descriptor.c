#include "descriptor.h"

#include <string.h>
#include <sys/socket.h>

/* A message of one byte, with room for a control message, which carries a descriptor and is aligned like size_t. */
struct message {
    char byte;
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(sizeof(size_t))));
    struct iovec data;
    struct msghdr header;
};

static void prepare(struct message *message)
{
    memset(message, 0, sizeof(*message));
    message->data.iov_base = &message->byte;
    message->data.iov_len = 1;
    message->header.msg_iov = &message->data;
    message->header.msg_iovlen = 1;
    message->header.msg_control = message->control;
    message->header.msg_controllen = sizeof(message->control);
}

int send_descriptor(int socket, int descriptor)
{
    struct message message;

    prepare(&message);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message.header);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(descriptor));
    memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
    return sendmsg(socket, &message.header, MSG_NOSIGNAL) == 1;
}

int receive_descriptor(int socket)
{
    struct message message;
    int descriptor = -1;

    prepare(&message);
    if (recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message.header) != NULL)
        memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message.header)), sizeof(descriptor));
    return descriptor;
}
