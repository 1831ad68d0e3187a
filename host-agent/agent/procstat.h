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
	bool exiting; /* it runs nothing of its own any more, though it may take long to let go of what it has */
	uint64_t started_ns; /* on CLOCK_BOOTTIME, rounded down to the kernel's tick */
	int status; /* as of waitpid() where it ends or has ended; 0 too where we may not know */
};

/* Of thread @tid of @pid; 0: of the process. -ESRCH: there is none. -ENOTSUP: this kernel tells it otherwise. */
int gantry_procstat(pid_t pid, pid_t tid, struct gantry_procstat *ret);

/*
 * Has a signal ended @pid, which may not be over yet? A process that the driver of a device takes long to release has a
 * descriptor that says so only afterwards. False too where that cannot be known.
 */
bool gantry_procstat_killed(pid_t pid);

#endif
