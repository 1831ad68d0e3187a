/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every number that the agent publishes, computed when somebody asks; and /metrics, where they are
 * asked for.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: start once, stop once; gantry_metrics_each() any time.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_METRICS_H
#define GANTRY_HOST_AGENT_AGENT_METRICS_H

#include <stdbool.h>

#include "base/err.h"

struct gantry_agent;

struct gantry_metric {
	const char *name;
	const char *help;
	bool counter;	    /* else a gauge */
	const char *labels; /* "tenant=\"red\""; "": none */
	double value;
};

/* Calls @fn for each value; those of one name come one after the other. */
void gantry_metrics_each(struct gantry_agent *a,
			 void (*fn)(void *arg, const struct gantry_metric *m), void *arg);

int gantry_metrics_start(struct gantry_agent *a, struct gantry_err *err);
void gantry_metrics_stop(struct gantry_agent *a);

#endif
