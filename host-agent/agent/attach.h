/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The road to a session: bounded ask, memory, a worker, WELCOME; and the road back.
 *
 * Threads: the agent's one. Blocking: never: what a worker has to answer has a time-out.
 * Order: gantry_attach_begin() for a guest that said HELLO, gantry_attach_want() for a session that
 * is there, gantry_detach() once for its end, in any phase.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_ATTACH_H
#define GANTRY_HOST_AGENT_AGENT_ATTACH_H

#include <stdint.h>

struct gantry_agent;
struct gantry_conn;
struct gantry_door_welcome;
struct gantry_session;
struct gantry_worker;

/* @c said HELLO and there is room. */
void gantry_attach_begin(struct gantry_conn *c);
/* Sessions that want a worker, as far as workers are ready. */
void gantry_attach_serve(struct gantry_agent *a);
void gantry_attach_send(struct gantry_session *s, struct gantry_worker *w);
/* A new worker found no memory on devices of @mask: who would rather be refused than wait is. */
void gantry_attach_no_room(struct gantry_agent *a, uint64_t mask);
/* @s is complete but for a worker; it may be gone afterwards. */
void gantry_attach_want(struct gantry_session *s);
/* What its guest is told of it. */
void gantry_attach_describe(const struct gantry_session *s, struct gantry_door_welcome *ret_msg);
/* Ends a session in any phase, in order. @status and @text go to the guest if it is still there. */
void gantry_detach(struct gantry_session *s, int status, const char *text);

#endif
