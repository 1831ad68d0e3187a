/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker gives up before it serves a guest. Each measure is tried; what the machine does not permit is said,
 * never silently missing.
 *
 * Threads: call once, before any guest's byte is read, after devices are open; applies to all threads.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_CONFINE_H
#define GANTRY_HOST_AGENT_WORKER_CONFINE_H

#include <stdbool.h>
#include <sys/types.h>

#define GANTRY_CONFINE_MAX 16

struct gantry_confine_report {
	const char *held[GANTRY_CONFINE_MAX]; /* "seccomp", ... */
	unsigned int nheld;
	char missing[GANTRY_CONFINE_MAX][120]; /* "netns: Operation not permitted" */
	unsigned int nmissing;
};

/*
 * Before devices are opened and before any other thread: an empty network namespace (with a user namespace of its own
 * where that takes one; @has_net: it was started in its tenant's), the user and group (0: stay), no capability, no dump, no new privileges.
 */
void gantry_confine_early(uid_t uid, gid_t gid, bool has_net, struct gantry_confine_report *report);
/*
 * In a process that compiles a guest's text, last: it may compute, allocate and write to what is open. No file can be
 * opened: a compiler would show any that the worker may read.
 */
void gantry_confine_compiler(void);
/*
 * In a relay, which only moves bytes between what is open: user and group (0: stay), no capability, no dump, no new
 * privileges, and a filter without a way to a file, a socket or a process. Returns what the machine does not permit, or NULL.
 */
const char *gantry_confine_relay(uid_t uid, gid_t gid);
/* The same in a mover, which also maps memory that it is given; once it is connected. */
const char *gantry_confine_mover(uid_t uid, gid_t gid);
/*
 * In a process that loads foreign code (gantry-policy): before, user and group, no capability, no new privileges; after, no dump and the
 * relay's filter. Each returns what the machine does not permit, or NULL.
 */
const char *gantry_confine_loader(uid_t uid, gid_t gid);
const char *gantry_confine_loaded(void);
/*
 * After: the system call filter. Calls it does not list fail with EPERM. @driver: a device's driver is called while it
 * works (GANTRY_CAP_DRIVER); files that exist can be opened for writing then, so that only its user, where it is not
 * root, keeps the process from those of others. The report says so. @communicators: sockets can be made, in the network of the process.
 */
void gantry_confine_late(bool driver, bool communicators, struct gantry_confine_report *report);

#endif
