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

/* Of this protocol. A build that is to take over says which it speaks before anything is handed to it. */
#define GANTRY_MONITOR_VERSION 1u

enum gantry_monitor_op {
	/* agent to monitor */
	GANTRY_MONITOR_STORE = 1,     /* keep this descriptor under name */
	GANTRY_MONITOR_DROP = 2,      /* close the one of this name */
	GANTRY_MONITOR_DROP_TREE = 3, /* close all whose names start with name */
	GANTRY_MONITOR_NOTIFY = 4,    /* tell systemd; value: enum gantry_monitor_notice */
	GANTRY_MONITOR_BYE = 5,	      /* the agent ends in order: do not start another */
	GANTRY_MONITOR_TRY = 6,	      /* start the program of this descriptor as a candidate */
	GANTRY_MONITOR_CANCEL = 7,    /* end the candidate */
	/* hand all to the candidate, with the baton that rides along; value: enum gantry_monitor_way_back */
	GANTRY_MONITOR_YIELD = 8,
	GANTRY_MONITOR_PROGRAM = 21, /* start agents from this: the monitor is of another build */
	/* candidate to monitor */
	GANTRY_MONITOR_HELLO = 9,  /* what it is: a memfd of text that only agents read */
	GANTRY_MONITOR_TAKEN = 20, /* it has the baton: the agent before is to leave */
	/* monitor to agent */
	GANTRY_MONITOR_HAND = 10,   /* a kept descriptor, after a restart */
	GANTRY_MONITOR_HANDED = 11, /* that was all; value: restarts so far */
	GANTRY_MONITOR_EXITED = 12, /* value: pid of an orphaned worker; status: as of waitpid() */
	GANTRY_MONITOR_STOP = 13,   /* SIGTERM came: end all in order, then say BYE */
	GANTRY_MONITOR_RELOAD = 14, /* SIGHUP came */
	GANTRY_MONITOR_CANDIDATE = 15, /* value 0: its HELLO; -ECHILD: it ended, status; -errno */
	GANTRY_MONITOR_RESUME = 16,    /* the candidate is gone, nothing was taken; status */
	GANTRY_MONITOR_LEAVE = 17,     /* it was: end without touching anything */
	GANTRY_MONITOR_BECOMING =
		18, /* the monitor becomes the new program; descriptor: the old one */
	GANTRY_MONITOR_BECAME = 19, /* value 0: it has; -errno: it stays what it was */
};

/* The baton: a pipe with one byte in it. Who reads the byte is the agent from there on. */
#define GANTRY_MONITOR_BATON "u/baton"

/* If the candidate fails once it is the agent. */
enum gantry_monitor_way_back {
	GANTRY_MONITOR_GO_BACK = 0, /* the build before is started again */
	GANTRY_MONITOR_TRY_AGAIN =
		1, /* that one does not read what the candidate writes: the candidate's is started again */
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
