/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened: the last entries, told to followers, to the log and to who asks.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: any, once agent->events is there.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_EVENTS_H
#define GANTRY_HOST_AGENT_AGENT_EVENTS_H

#include <stdint.h>

#include "host-agent/agent/config.h"

struct gantry_agent;
struct gantry_session;
struct gantry_tenant;
struct gantry_worker;

#define GANTRY_EVENTS_KEPT 1000u

struct gantry_event_entry {
	uint64_t unix_ns;
	uint64_t session_id;
	uint64_t worker_id;
	char kind[24];
	char tenant[GANTRY_CONFIG_NAME];
	char device[GANTRY_CONFIG_NAME];
	char text[160];
};

/* Any of the objects may be NULL. */
void gantry_event(struct gantry_agent *a, const char *kind, const struct gantry_tenant *t,
		  const struct gantry_session *s, const struct gantry_worker *w, const char *fmt,
		  ...) __attribute__((format(printf, 6, 7)));
/* The same of device @device, by its name. */
void gantry_event_device(struct gantry_agent *a, const char *kind, const char *device,
			 const struct gantry_session *s, const struct gantry_worker *w,
			 const char *fmt, ...) __attribute__((format(printf, 6, 7)));

#endif
