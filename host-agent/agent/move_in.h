/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segment of a session that arrived in memory of its own is copied into the door memory of the machine whose program
 * takes it over: in pieces, between which the agent does what else there is.
 *
 * Threads: the agent's one. Blocking: never for longer than a piece takes to copy.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MOVE_IN_H
#define GANTRY_HOST_AGENT_AGENT_MOVE_IN_H

#include "base/err.h"

struct gantry_session;
struct gantry_session_place;

/* 0, or -errno with a sentence: it has no memory any more, and must end. */
typedef void gantry_moved_in_fn(struct gantry_session *s, int r, const struct gantry_err *err);

/*
 * No worker has @s. The part of the door memory at @place is the session's, or given back. @done is called once, perhaps from
 * in here; not at all where the session ends before.
 */
void gantry_move_in(struct gantry_session *s, const struct gantry_session_place *place,
		    gantry_moved_in_fn *done);
/* The session ends. */
void gantry_move_in_forget(struct gantry_session *s);

#endif
