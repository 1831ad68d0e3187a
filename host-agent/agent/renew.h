/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers of this build in place of those of another one: each is exchanged while none of its tasks is in flight, so
 * that its sessions take the road of recovery with nothing in doubt. And the end of a service that will be started
 * again with the same descriptors.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_RENEW_H
#define GANTRY_HOST_AGENT_AGENT_RENEW_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct gantry_agent;
struct gantry_session;
struct gantry_worker;

struct gantry_renew {
	struct event *timer;
	uint64_t worker_id; /* that is being exchanged; 0: none */
	bool stopped;	    /* it was told to stand still */
	bool ending;	    /* and to end */
	uint64_t since_ns;
	uint64_t until_ns; /* when it is given up */
	uint32_t nmoved;   /* sessions */
	uint32_t nkept;	   /* whose workers stay: they do not come to rest */
};

/* Exchange all, one after the other; gantry_upgrade_moved() says when. */
void gantry_renew_start(struct gantry_agent *a);
void gantry_renew_fini(struct gantry_agent *a);

/* Is it of another build than ours? Of one that has not said what it is: no. */
bool gantry_renew_is_other(const struct gantry_worker *w);

/* Nothing more is issued from the session's queues; or again, as the administrator has it. */
void gantry_hold(struct gantry_session *s, bool on);
void gantry_hold_none(struct gantry_agent *a);
/* Nothing that was issued is unfinished. */
bool gantry_hold_at_rest(const struct gantry_session *s);

/*
 * End the service and leave every session as it is: systemd has the descriptors, and the next agent goes on. Running
 * tasks may finish first, for a while.
 */
void gantry_renew_leave(struct gantry_agent *a);

#endif
