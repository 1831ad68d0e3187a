/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What monitor and agent say to each other: one fixed struct a packet, at most one descriptor with
 * it.
 *
 * Descriptors have names of up to 63 characters, slash-separated ("s/2a/ledger"); what they mean is
 * the
 * agent's business alone. Storing under a name that exists replaces its descriptor.
 *
 * Trust: both are ours, but the agent takes guests' input and the monitor does not: the monitor
 * believes
 * nothing but the struct's size, bounds what it keeps, and never acts on contents.
 */
#ifndef GANTRY_HOST_AGENT_MONITOR_PROTOCOL_H
#define GANTRY_HOST_AGENT_MONITOR_PROTOCOL_H

#include <assert.h>
#include <stdint.h>

#define GANTRY_MONITOR_NAME_MAX 64u

enum gantry_monitor_op {
	/* agent to monitor */
	GANTRY_MONITOR_STORE = 1,     /* keep this descriptor under name */
	GANTRY_MONITOR_DROP = 2,      /* close the one of this name */
	GANTRY_MONITOR_DROP_TREE = 3, /* close all whose names start with name */
	GANTRY_MONITOR_NOTIFY = 4,    /* tell systemd; value: enum gantry_monitor_notice */
	GANTRY_MONITOR_BYE = 5,	      /* the agent ends in order: do not start another */
	/* monitor to agent */
	GANTRY_MONITOR_HAND = 10,   /* a kept descriptor, after a restart */
	GANTRY_MONITOR_HANDED = 11, /* that was all; value: restarts so far */
	GANTRY_MONITOR_EXITED = 12, /* value: pid of an orphaned worker; status: as of waitpid() */
	GANTRY_MONITOR_STOP = 13,   /* SIGTERM came: end all in order, then say BYE */
	GANTRY_MONITOR_RELOAD = 14, /* SIGHUP came */
};

enum gantry_monitor_notice {
	GANTRY_MONITOR_READY = 1,
	GANTRY_MONITOR_RELOADING = 2,
	GANTRY_MONITOR_STOPPING = 3,
	GANTRY_MONITOR_WATCHDOG = 4,
};

struct gantry_monitor_msg {
	uint32_t op;
	int32_t value;
	int32_t status;
	uint32_t reserved;
	char name[GANTRY_MONITOR_NAME_MAX]; /* NUL-terminated */
};
static_assert(sizeof(struct gantry_monitor_msg) == 80, "agent and monitor may be of two builds");

#endif
