/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What guests call that their drop-in libraries do not have, as they say themselves: names and counts, for whoever asks why a
 * program does not work. Kept in the agent's memory: another agent begins anew, and so does a session on another host.
 *
 * Trust: names and numbers are a guest's; bounded in number and length, and printable. Threads: the agent's one.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MISSING_H
#define GANTRY_HOST_AGENT_AGENT_MISSING_H

#include <stdint.h>

#include "proto/door.h"

#define GANTRY_MISSING_MAX 64u /* names of one session */

struct gantry_conn;
struct gantry_session;

struct gantry_missing {
	uint64_t calls;
	char name[GANTRY_DOOR_NAME];
};

/* MISSING came from an attached guest. */
void gantry_missing_note(struct gantry_conn *c, const struct gantry_door_missing *msg);
void gantry_missing_free(struct gantry_session *s);

#endif
