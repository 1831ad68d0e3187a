/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process at the other end of a door. A connection lives as long as any process holds it, a
 * child of a dead guest
 * too; a session lives as long as the process that connected.
 *
 * Trust: everything here comes from the kernel. Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_LIVENESS_H
#define GANTRY_HOST_AGENT_AGENT_LIVENESS_H

#include <stdint.h>
#include <sys/types.h>

/*
 * A descriptor that becomes readable when the process that connected @sock (@pid, as SO_PEERCRED
 * says) has ended; the
 * caller closes it. -ESRCH: it has ended already. -ENOTSUP: it is of a pid namespace that we do not
 * see (@pid is 0),
 * or this kernel cannot tell: only the hang-up counts.
 */
int gantry_liveness_open(int sock, pid_t pid, int *ret_pidfd);

/*
 * The same for kernels before 6.5, by number: the process that had number @pid at @seen_ns on the
 * clock
 * CLOCK_BOOTTIME. A process that is younger has inherited the number: -ESRCH.
 */
int gantry_liveness_open_by_pid(pid_t pid, uint64_t seen_ns, int *ret_pidfd);

#endif
