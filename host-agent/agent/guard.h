/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent gives up itself: it takes input from guests, and it is root on most hosts.
 *
 * Its children inherit all of it, so workers with their vendor drivers and another monitor must be
 * able to live with it: calls and capabilities that none of them has a use for are refused, rather
 * than a list of those that the agent needs allowed.
 *
 * Threads: called once, before there is a second one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_GUARD_H
#define GANTRY_HOST_AGENT_AGENT_GUARD_H

#include <stdbool.h>

struct gantry_guard {
	bool asked;	   /* confine = yes */
	char missing[256]; /* what could not be had, with reasons; "": all holds */
};

void gantry_guard_self(struct gantry_guard *g);

#endif
