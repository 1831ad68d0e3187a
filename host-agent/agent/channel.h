/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels by which programs of machines are woken (proto/doormem.h): a hypervisor connects each of a machine's ports to
 * the tenant's wake.sock, beside its ivshmem.sock; or a program comes to the tenant's vsock door and says so. What is
 * found here is a socket for workers to send bytes into.
 *
 * Trust: bytes are the guest's. A channel is of the machine whose epoch its guest says, if the hypervisor's process is
 * the same, or it came by the tenant's vsock door. What is not a hello is passed over; how often one is answered is bounded, and how many channels there are.
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_CHANNEL_H
#define GANTRY_HOST_AGENT_AGENT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
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

/* Whether who says this at a vsock door wants a channel, and no session. */
bool gantry_channel_is_hello(const void *bytes, size_t len);
/* He gets one, or the end of the stream: @fd is taken over, of which @bytes have been read. */
void gantry_channel_take(struct gantry_tenant *t, int fd, const void *bytes, size_t len);

/* The socket of channel @number of this machine, borrowed; negative: it has none of that number. */
int gantry_channel_socket(const struct gantry_doormem *m, uint32_t number);
/* What it is, for lists: "port" (virtio-serial) or "vsock"; NULL: it has none of that number. */
const char *gantry_channel_name(const struct gantry_doormem *m, uint32_t number);

#endif
