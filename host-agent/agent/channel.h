/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels by which programs of machines are woken (proto/doormem.h): a hypervisor connects each of a machine's ports to
 * the tenant's wake.sock, beside its ivshmem.sock. What is found here is a socket for workers to send bytes into.
 *
 * Trust: bytes are the guest's. A channel is of the machine whose epoch its guest says, if the hypervisor's process is
 * the same. What is not a hello is passed over; how often one is answered is bounded, and how many channels there are.
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_CHANNEL_H
#define GANTRY_HOST_AGENT_AGENT_CHANNEL_H

#include <stdint.h>

#include "base/err.h"

struct gantry_agent;
struct gantry_doormem;
struct gantry_tenant;

#define GANTRY_CHANNELS_PER_MACHINE 16u

/* The tenant's socket. -errno with a sentence; nothing is open then. */
int gantry_channels_open(struct gantry_tenant *t, struct gantry_err *err);
/* Nobody new comes in. */
void gantry_channels_shut(struct gantry_tenant *t);
/* And those who are there end. */
void gantry_channels_close(struct gantry_tenant *t);
/* Listeners that looked away look again. */
void gantry_channels_look_again(struct gantry_agent *a);
/* Of an earlier agent; after the tenants. */
void gantry_channels_restore(struct gantry_agent *a);

/* The socket of channel @number of this machine, borrowed; negative: it has none of that number. */
int gantry_channel_socket(const struct gantry_doormem *m, uint32_t number);

#endif
