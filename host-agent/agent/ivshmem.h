/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ivshmem server of a tenant: QEMU connects to a Unix stream socket and gets, by version 0 of QEMU's protocol, a
 * door memory (doormem.h), the host's doorbells and its own interrupts. One connection, one machine, one memory.
 *
 * What QEMU does with a server (hw/misc/ivshmem.c) decides how this is done:
 *  - It connects (chardev-add), and some time later (device_add) reads the first three messages in its main loop: a
 *    server that says nothing stops the machine until it does. So all is made before the connection is accepted, and
 *    then said at once, in one system call.
 *  - It takes the end of the stream within those messages for "try again", for ever, and that there is an end is known
 *    to it before it has read them. So we never hang up first: who is not to come in is told a version that is none, a
 *    negative status (vocab.h), which QEMU tells its user, and his connection is held until he ends it.
 *  - For the same reason the monitor keeps all of them, and the listener: who connects while an agent is replaced waits
 *    for the next one, less than a second. Without agent and monitor, connecting fails at once.
 *  - It needs no server once it has all: the machine and its sessions go on while an agent is replaced.
 *  - Without irqfds (emulation, or no MSI-X) it watches the machine's own interrupts, and goes on doing so when the device
 *    is unplugged and they are closed: whatever has such a number next may crash it (seen with QEMU 7.2). So they are
 *    given to it only when a program of the machine has asked to be interrupted, which few machines can be.
 *  - It clears O_NONBLOCK of what it is given, in the descriptions that we share.
 *
 * Trust: QEMU sends nothing; if something comes, the connection ends. Identity is the socket.
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_IVSHMEM_H
#define GANTRY_HOST_AGENT_AGENT_IVSHMEM_H

#include <event2/event.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/drain.h"

struct gantry_agent;
struct gantry_tenant;

#define GANTRY_IVSHMEM_VERSION	    0
#define GANTRY_IVSHMEM_MAX_MESSAGES (3u + 2u * GANTRY_DOORMEM_MAX_VECTORS)

/* A message: a number of 8 bytes, little-endian, and a descriptor or none (negative). */
struct gantry_ivshmem_message {
	int64_t value;
	int fd;
};

/* A connected QEMU. */
struct gantry_machine {
	struct gantry_list link; /* tenant->machines */
	struct gantry_agent *agent;
	struct gantry_tenant *tenant;
	struct gantry_doormem *mem;
	int fd;
	pid_t pid;
	uid_t uid;
	uint32_t nsent; /* messages of the handshake */
	struct event *conn_event;
	struct event *room_event; /* waits to send the rest of them */
	struct event *bell_event;
	struct event *pause_timer;
	struct event *beat_timer;
	uint64_t pause_ns;	   /* after a look, before a doorbell counts again */
	struct gantry_drain drain; /* of this machine alone */
};

/* What QEMU is told, in order. Returns how many messages. */
unsigned gantry_ivshmem_handshake(const struct gantry_doormem *m,
				  struct gantry_ivshmem_message msgs[GANTRY_IVSHMEM_MAX_MESSAGES]);

/* Opens the tenant's socket, where it may have one; the state text says what is wrong. */
void gantry_ivshmem_open(struct gantry_tenant *t);
/* Nobody new comes in. */
void gantry_ivshmem_shut(struct gantry_tenant *t);
/* And those who are there go. */
void gantry_ivshmem_close(struct gantry_tenant *t, int status, const char *text);

/* Listeners that looked away look again. */
void gantry_ivshmem_look_again(struct gantry_agent *a);

/* Of the next machine's memory. */
uint64_t gantry_ivshmem_bytes(const struct gantry_tenant *t);

/* What is said to the machine of @mem now, rather than at its next look: its own interrupts, once a program of it has them. */
void gantry_ivshmem_tell(struct gantry_doormem *mem);

/* Connections that are held until the other side ends them; at the agent's end. */
void gantry_ivshmem_fini(struct gantry_agent *a);

/* Machines of an earlier agent; before the sessions. And after those: claims that are nobody's. */
void gantry_ivshmem_restore(struct gantry_agent *a);
void gantry_ivshmem_resume(struct gantry_agent *a);
/* The door memory of machine @id. NULL: there is none. */
struct gantry_doormem *gantry_ivshmem_find(struct gantry_agent *a, uint64_t id);

#endif
