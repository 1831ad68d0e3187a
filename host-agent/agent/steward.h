/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stewards: a worker per backend whose devices have memory apart from the host's, and one per device that admits one process. It takes no
 * guest: it says what its devices are before any session's worker does, makes and scrubs their slabs (slab.h), and says how they are. A
 * device that admits one process it *holds* where that is configured (holder = steward): it alone opens it, and each worker whose tenants
 * may use the device has a seat there, a socket of which the agent gives either its end (devices/seat/seat.h). When the steward dies its
 * seats are of no use, so their workers end, and their successors have others; who has none there lives on.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: gantry_stewards_fill() after every change of devices and workers; the rest is called by worker.c and
 * recover.c.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_STEWARD_H
#define GANTRY_HOST_AGENT_AGENT_STEWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "host-agent/agent/config.h"
#include "worker.pb-c.h"

struct gantry_agent;
struct gantry_agent_device;
struct gantry_worker;

/* Configure.mode, and a worker's in this agent. */
#define GANTRY_WORKER_STEWARD 2u

/* Starts of a steward that came to nothing, for the back-off. */
struct gantry_steward_tries {
	char what[GANTRY_CONFIG_NAME + 8]; /* it is for, as its class's group */
	uint32_t nfailed;		   /* in a row */
	uint64_t not_before_ns;
};

/* Ends of seats for which the steward is not ready yet. */
#define GANTRY_STEWARD_MAX_ARRIVALS 64u
struct gantry_steward_arrivals {
	uint32_t n;
	uint32_t device[GANTRY_STEWARD_MAX_ARRIVALS];
	uint64_t worker[GANTRY_STEWARD_MAX_ARRIVALS]; /* whose */
	int fd[GANTRY_STEWARD_MAX_ARRIVALS];	      /* owned */
};

/* Whether the configured device is held by a steward. */
bool gantry_steward_holds(const struct gantry_device_section *conf);
/*
 * A seat at held device @idx: the worker's end, which is the caller's. The steward gets the other one, as soon as it is ready; where it cannot
 * open the device the worker sees its end close. -EMFILE: too many wait; other -errno.
 */
int gantry_steward_make_seat(struct gantry_agent *a, uint32_t idx, uint64_t worker, int *ret_fd);
/* Whether the configured device is one of @steward's. */
bool gantry_steward_is_for(const struct gantry_worker *steward,
			   const struct gantry_device_section *conf);
/* Whether sessions depend on the steward's being alive: they have seats there, at a device that is still configured. */
bool gantry_steward_is_needed(const struct gantry_worker *steward);
/* Whether the configured device is one of a steward's. */
bool gantry_steward_serves(const struct gantry_device_section *conf);
/* Starts those that are missing, now or when their back-off is over. */
void gantry_stewards_fill(struct gantry_agent *a);
void gantry_stewards_stop(struct gantry_agent *a);
/* The steward that is ready for device @idx; NULL: none is. */
struct gantry_worker *gantry_steward_find(struct gantry_agent *a, uint32_t idx);
/* It answered Configure: what it has, and then that it goes to work; it is dead (and about to be freed). */
void gantry_steward_learn(struct gantry_worker *w, const Gantry__Worker__Ready *ready);
void gantry_steward_ready(struct gantry_worker *w);
void gantry_steward_died(struct gantry_worker *w);
/*
 * Have the devices' health asked: at once where what is known is older than @max_age_ns. What it is then lies in
 * the devices; the answer comes later.
 */
void gantry_health_ask(struct gantry_agent *a, uint64_t max_age_ns);

#endif
