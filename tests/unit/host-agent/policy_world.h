/* SPDX-License-Identifier: Apache-2.0 */
/* Views for tests of policies, written down in a line each. */
#ifndef GANTRY_TESTS_UNIT_HOST_AGENT_POLICY_WORLD_H
#define GANTRY_TESTS_UNIT_HOST_AGENT_POLICY_WORLD_H

#include "host-agent/policy/builtin.h"

#define LONG_NS 10000000000ull /* a queue that has worked for so long goes on */
#define TASK_NS 1000000ull

struct world {
	struct gantry_policy_view view;
	struct gantry_policy_device devices[GANTRY_POLICY_MAX_DEVICES];
	struct gantry_policy_tenant tenants[GANTRY_POLICY_MAX_TENANTS];
	struct gantry_policy_queue queues[GANTRY_POLICY_MAX_QUEUES];
	struct gantry_policy_choice choices[GANTRY_POLICY_MAX_QUEUES];
	const struct gantry_policy *policy;
	void *state;
};

/* @n cpu devices of one lane each, and tenant 0 with the default weight. */
void world_init(struct world *w, const char *policy, const char *options, uint32_t n);
void world_fini(struct world *w);
uint32_t world_tenant(struct world *w, uint32_t weight, uint32_t min, uint32_t max);
/* @n queues of @tenant on @device, busy for long, of tasks of TASK_NS everywhere. Returns the first's index. */
uint32_t world_queues(struct world *w, uint32_t tenant, int32_t priority, uint32_t device,
		      uint32_t n);
/* Asks the policy, checks what it says, and makes it so; at once, and as if long ago. Returns how many queues moved. */
unsigned int world_place(struct world *w);
/* Queues of @tenant on @device. */
unsigned int world_count(const struct world *w, uint32_t tenant, uint32_t device);
/* Devices that the tenant's queues are on. */
uint64_t world_devices(const struct world *w, uint32_t tenant);

#endif
