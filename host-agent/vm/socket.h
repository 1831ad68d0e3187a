/* SPDX-License-Identifier: Apache-2.0 */
/*
 * May another user's process connect to a socket? Asked before a QEMU is told to, whose own word on it is short.
 * Threads: one, for user names are looked up. Blocking: on the file system and the name service.
 */
#ifndef GANTRY_HOST_AGENT_VM_SOCKET_H
#define GANTRY_HOST_AGENT_VM_SOCKET_H

#include <sys/types.h>

#include "base/err.h"

/* By the modes of @path and its folders. 0; -ENOENT, -EACCES, -ENOTSOCK, or another -errno, with a sentence. */
int gantry_vm_socket_check(const char *path, uid_t uid, gid_t gid, struct gantry_err *err);

#endif
