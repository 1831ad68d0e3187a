/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel tells of a process or a thread in /proc/PID/stat (proc(5)).
 *
 * Trust: the kernel's words; the process's name among them is the process's own and is skipped. Threads: any. Blocking:
 * never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_PROCSTAT_H
#define GANTRY_HOST_AGENT_AGENT_PROCSTAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct gantry_procstat {
	char state; /* 'R', 'S', 'T', 'Z', ... */
	/*
	 * It was killed, or ends by itself, and runs nothing of its own any more. Its driver may take long to let go of what
	 * it has; descriptors of the process say so only afterwards.
	 */
	bool ending;
	uint64_t started_ns; /* on CLOCK_BOOTTIME, rounded down to the kernel's tick */
};

/* Of thread @tid of @pid; 0: of the process. -ESRCH: there is none. -ENOTSUP: this kernel tells it otherwise. */
int gantry_procstat(pid_t pid, pid_t tid, struct gantry_procstat *ret);

#endif
