/* Passes descriptors of open files to other processes, over unix sockets. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

/* Returns whether it was sent. */
int send_descriptor(int socket, int descriptor);

/* The descriptor gets a new number in the receiver; -1 if none comes. */
int receive_descriptor(int socket);

#endif
