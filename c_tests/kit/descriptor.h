/* Passes file descriptors to other processes over Unix sockets. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

/* Sends a copy of the file descriptor, and returns whether that succeeded. */
int send_descriptor(int socket, int descriptor);

/* Waits for a message, and returns this process's number of the file descriptor in it, or -1 if there is none. */
int receive_descriptor(int socket);

#endif
