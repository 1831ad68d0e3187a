/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sees the kill of an MPS client before its server does.
 *
 * Under MPS the end of a client with a kernel in flight ends its neighbours' contexts too, unless the server is told to
 * end its work first (mps.h). The descriptors of a killed process say so only when the driver has let go of all that the
 * process had: after 25 ms as a rule, and on an H200 after up to 0.6 s, while the neighbours fail after 0.16 s. What
 * /proc says is true at once, but nothing wakes a reader. So while clients that share a server are at work, it is looked
 * at every 10 ms; otherwise hardly ever.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MPS_WATCH_H
#define GANTRY_HOST_AGENT_AGENT_MPS_WATCH_H

struct gantry_agent;

/* A server has got another client. The watch ends by itself with the last but one. */
void gantry_mps_watch(struct gantry_agent *a);
void gantry_mps_watch_fini(struct gantry_agent *a);

#endif
