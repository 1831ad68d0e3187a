/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors and addresses, as all transports want them. Threads: any. Blocking: never. */
#ifndef GANTRY_GUEST_SHIM_SOCKETS_H
#define GANTRY_GUEST_SHIM_SOCKETS_H

#include <sys/socket.h>
#include <sys/un.h>

/* Keeps clear of 0, 1 and 2: a program that closed them prints into whatever takes their place. 0 or -errno. */
int gantry_fd_above_stdio(int *fd);

/* open() for reading and writing, with such a descriptor, which a new program does not get. -errno. */
int gantry_open_above_stdio(const char *path);

/* A path, or "@name" of an abstract socket. 0 or ARG, with its sentence recorded. */
int gantry_unix_address(const char *path, struct sockaddr_un *ret_addr, socklen_t *ret_len);

#endif
