/* SPDX-License-Identifier: Apache-2.0 */
/* What the transports over sockets share. Threads: any. Blocking: never. */
#ifndef GANTRY_GUEST_SHIM_SOCKETS_H
#define GANTRY_GUEST_SHIM_SOCKETS_H

#include <sys/socket.h>
#include <sys/un.h>

/* Keeps clear of 0, 1 and 2: a program that closed them prints into whatever takes their place. 0 or -errno. */
int gantry_fd_above_stdio(int *fd);

/* A path, or "@name" of an abstract socket. 0 or ARG, with its sentence recorded. */
int gantry_unix_address(const char *path, struct sockaddr_un *ret_addr, socklen_t *ret_len);

#endif
