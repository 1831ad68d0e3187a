/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that are built in, what they share, and the check that every placement passes.
 *
 * Threads: any; nothing here keeps state. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_POLICY_BUILTIN_H
#define GANTRY_HOST_AGENT_POLICY_BUILTIN_H

#include <stdbool.h>

#include "base/err.h"
#include "host-agent/policy/policy.h"

/* What a policy costs a queue at least: to be let go by one device thread and taken by another. */
#define GANTRY_POLICY_MOVE_NS 200000u
/* So long a queue stays after a move, unless it must go: loads are seen anew before that. */
#define GANTRY_POLICY_STAY_NS	  100000000u
#define GANTRY_POLICY_STAY_MAX_NS 3600000000000ull

/* @i from 0 on; NULL: past the last. */
const struct gantry_policy *gantry_policy_at(unsigned int i);
/* NULL: none is called so. */
const struct gantry_policy *gantry_policy_find(const char *name);

/* What is used where a group names no policy: queues stay where they were opened. */
extern const struct gantry_policy gantry_policy_static;
extern const struct gantry_policy gantry_policy_round_robin;
extern const struct gantry_policy gantry_policy_least_loaded;
extern const struct gantry_policy gantry_policy_pack;
extern const struct gantry_policy gantry_policy_spread;
extern const struct gantry_policy gantry_policy_elastic;
extern const struct gantry_policy gantry_policy_heterogeneous;

/*
 * Whether @choices is a placement that may be used: every device exists and is one that the queue may be on (or the one
 * where it is), and queues of a tenant that would be on more than max_devices move only if it is on fewer then than now.
 * -EINVAL with a sentence. Texts are made printable.
 */
int gantry_policy_check(const struct gantry_policy_view *view, struct gantry_policy_choice *choices,
			struct gantry_err *err);
/*
 * Moves that would put a tenant on more devices than it may be on are taken back, the later ones first to go: what is left passes the
 * check as far as max_devices goes. For built-in policies, which need not think of every combination.
 */
void gantry_policy_enforce(const struct gantry_policy_view *view,
			   struct gantry_policy_choice *choices);
/* Whether a view is one: numbers within bounds, indices of what there is. For the process that is sent one. */
int gantry_policy_view_check(const struct gantry_policy_view *view, struct gantry_err *err);
/* All queues stay. */
void gantry_policy_stay(const struct gantry_policy_view *view,
			struct gantry_policy_choice *ret_choices);

/* ---- what policies share ---- */

/*
 * Devices that the queue may be on, its tenant's max_devices kept: of more than that those where the tenant's queues are
 * now, the more of them the better, then the first.
 */
uint64_t gantry_policy_candidates(const struct gantry_policy_view *view, uint32_t queue);
/* The same for @most devices (0: any number) of @reach. */
uint64_t gantry_policy_narrow(const struct gantry_policy_view *view, uint32_t tenant,
			      uint64_t reach, uint32_t most);
bool gantry_policy_may(uint64_t mask, uint32_t device);
/* The most urgent priority below @below; false: there is none. */
bool gantry_policy_next_class(const struct gantry_policy_view *view, int64_t below,
			      int32_t *ret_priority);
/* What a move of the queue to @to costs. */
uint64_t gantry_policy_cost_ns(const struct gantry_policy_view *view,
			       const struct gantry_policy_queue *q, uint32_t to);
/* Device time of one of its tasks on @device: measured, else the best that was measured anywhere; 0: nothing is known. */
uint64_t gantry_policy_run_ns(const struct gantry_policy_view *view,
			      const struct gantry_policy_queue *q, uint32_t device);
void gantry_policy_choose(struct gantry_policy_choice *ret_choice, uint32_t device, const char *fmt,
			  ...) __attribute__((format(printf, 3, 4)));

/* Options of policies: a table of these, ended by a key of NULL. */
struct gantry_policy_option {
	const char *key;
	bool is_time; /* a duration, in nanoseconds; else a number */
	size_t off;   /* of the uint64_t in the state */
	uint64_t max;
};
/* "key=value key=value" into the state. -EINVAL with a sentence. */
int gantry_policy_options(const struct gantry_policy_option *table, const char *options,
			  void *state, char *text, size_t cap);

/* What a policy whose state is its options does in create(): @defaults, @bytes long, copied, and the options into it. -ENOMEM. */
int gantry_policy_create(const void *defaults, size_t bytes,
			 const struct gantry_policy_option *table, const char *options,
			 void **ret_state, char *text, size_t cap);

#endif
