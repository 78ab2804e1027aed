/* Passes descriptors of open files to other processes, over unix sockets. */
#ifndef DESCRIPTOR_H
#define DESCRIPTOR_H

/* Sends a copy of the descriptor, and returns whether that worked. */
int send_descriptor(int socket, int descriptor);

/* Returns the descriptor that comes, with a new number in this process, or -1 if none comes. */
int receive_descriptor(int socket);

#endif
