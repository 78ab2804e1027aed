/* Passes file descriptors to other processes over Unix sockets. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

/* Sends a copy of the file descriptor, and returns whether that succeeded. */
int send_descriptor(int socket, int descriptor);

/* Waits for a message, and returns the file descriptor that it brings to this process, or -1 if it brings none. */
int receive_descriptor(int socket);

#endif
