/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/host-agent/policy_world.h"

#include <stdio.h>

#include "tests/unit/runner.h"

void world_init(struct world *w, const char *policy, const char *options, uint32_t n)
{
	char text[256] = "";

	*w = (struct world){ .policy = gantry_policy_find(policy) };
	ck_assert_ptr_nonnull(w->policy);
	if (w->policy->create)
		ck_assert_msg(w->policy->create(options, &w->state, text, sizeof(text)) == 0, "%s",
			      text);
	w->view = (struct gantry_policy_view){ .abi = GANTRY_POLICY_ABI,
					       .ndevices = n,
					       .devices = w->devices,
					       .tenants = w->tenants,
					       .queues = w->queues };
	for (uint32_t d = 0; d < n; d++) {
		w->devices[d] = (struct gantry_policy_device){ .kind = 1, .lanes = 1, .usable = 1 };
		(void)snprintf(w->devices[d].name, sizeof(w->devices[d].name), "cpu%u", d);
	}
	(void)world_tenant(w, 100, 0, 0);
}

void world_fini(struct world *w)
{
	if (w->policy->destroy)
		w->policy->destroy(w->state);
}

uint32_t world_tenant(struct world *w, uint32_t weight, uint32_t min, uint32_t max)
{
	uint32_t t = w->view.ntenants++;

	w->tenants[t] = (struct gantry_policy_tenant){ .weight = weight,
						       .min_devices = min,
						       .max_devices = max };
	(void)snprintf(w->tenants[t].name, sizeof(w->tenants[t].name), "t%u", t);
	return t;
}

uint32_t world_queues(struct world *w, uint32_t tenant, int32_t priority, uint32_t device,
		      uint32_t n)
{
	uint32_t first = w->view.nqueues;

	for (uint32_t i = 0; i < n; i++) {
		struct gantry_policy_queue *q = &w->queues[w->view.nqueues++];

		*q = (struct gantry_policy_queue){ .session = tenant + 1,
						   .slot = i + 1,
						   .tenant = tenant,
						   .priority = priority,
						   .device = device,
						   .allowed = (1ull << w->view.ndevices) - 1,
						   .backlog = 16,
						   .age_ns = LONG_NS,
						   .stayed_ns = UINT64_MAX,
						   .demand = GANTRY_POLICY_WHOLE };
		for (uint32_t d = 0; d < w->view.ndevices; d++)
			q->run_ns[d] = TASK_NS;
	}
	return first;
}

unsigned int world_place(struct world *w)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	unsigned int nmoved = 0;

	gantry_policy_stay(&w->view, w->choices);
	ck_assert_int_eq(gantry_policy_view_check(&w->view, &err), 0);
	ck_assert_int_eq(w->policy->place(w->state, &w->view, w->choices), 0);
	gantry_policy_enforce(&w->view, w->choices);
	ck_assert_msg(gantry_policy_check(&w->view, w->choices, &err) == 0, "%s", err.text);
	for (uint32_t i = 0; i < w->view.nqueues; i++) {
		if (w->choices[i].device == w->queues[i].device)
			continue;
		ck_assert_str_ne(w->choices[i].why, "");
		w->queues[i].device = w->choices[i].device;
		nmoved++;
	}
	return nmoved;
}

unsigned int world_count(const struct world *w, uint32_t tenant, uint32_t device)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < w->view.nqueues; i++)
		n += w->queues[i].tenant == tenant && w->queues[i].device == device;
	return n;
}

uint64_t world_devices(const struct world *w, uint32_t tenant)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < w->view.nqueues; i++)
		if (w->queues[i].tenant == tenant)
			mask |= 1ull << w->queues[i].device;
	return mask;
}
