/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL finds in a worker whose tenant has communicators (gantry.conf(5)): an environment that says what there is to use, and
 * files of its own in memory.
 *
 * NCCL makes files in /dev/shm and opens them again by their names. All workers' user is one and the same, so such a file would be
 * every tenant's; and a confined worker makes no files. In this process those names mean memory of the process: mkstemp(), open() and
 * unlink() of the program stand before the C library's for whatever is loaded, and pass on every other name. Another process finds
 * nothing there, and the environment keeps NCCL from looking: between processes it has device memory's own descriptors, and sockets.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_COMMUNICATORS_H
#define GANTRY_HOST_AGENT_WORKER_COMMUNICATORS_H

/* While the process has one thread. Until then all names are passed on. */
void worker_communicators_prepare(void);

#endif
