/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doors of virtual machines without shared memory: an AF_VSOCK port for all, where the peer's CID says whose machine it is, and
 * Unix stream sockets, one per tenant, that a hypervisor connects to for its machine.
 *
 * A guest's HELLO is read here; once it is attached, a relay process (relay.h) has its stream, and the door's other end is
 * the relay's. A guest whose stream broke comes back with its session's nonce: the new stream goes to the relay.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_VSOCK_H
#define GANTRY_HOST_AGENT_AGENT_VSOCK_H

#include <stdint.h>

#include "base/err.h"

struct gantry_agent;
struct gantry_conn;
struct gantry_session;
struct gantry_tenant;

/* The port, if some tenant of the configuration has a CID; closes it otherwise. What is missing is logged once. */
void gantry_vsock_apply(struct gantry_agent *a);
void gantry_vsock_close(struct gantry_agent *a);

/* Listeners that looked away look again. */
void gantry_vsock_look_again(struct gantry_agent *a);

/* The tenant's Unix stream socket, if it is configured to have one. */
int gantry_vsock_door_open(struct gantry_tenant *t, struct gantry_err *err);
void gantry_vsock_door_close(struct gantry_tenant *t);

/* The monitor keeps the nonce of a session whose guest has no relay: an agent after us knows whom to wait for. */
void gantry_vsock_keep_nonce(struct gantry_session *s);
/* A session whose guest is not here yet, or not any more: whoever has its nonce is, if it comes soon. */
void gantry_vsock_await(struct gantry_session *s);
/* For so long. */
uint64_t gantry_vsock_awaits_ns(const struct gantry_agent *a);

/* An attached session's relay at @fd, taken over from an earlier agent. NULL: no memory, and @fd is still the caller's. */
struct gantry_conn *gantry_vsock_restore(struct gantry_session *s, int fd);

#endif
