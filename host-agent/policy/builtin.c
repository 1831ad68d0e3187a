/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/policy/builtin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/str.h"

static const struct gantry_policy *const policies[] = {
	&gantry_policy_static,	     &gantry_policy_elastic, &gantry_policy_heterogeneous,
	&gantry_policy_least_loaded, &gantry_policy_pack,    &gantry_policy_round_robin,
	&gantry_policy_spread,
};

const struct gantry_policy *gantry_policy_at(unsigned int i)
{
	return i < GANTRY_ARRAY_SIZE(policies) ? policies[i] : NULL;
}

const struct gantry_policy *gantry_policy_find(const char *name)
{
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(policies); i++)
		if (strcmp(policies[i]->name, name) == 0)
			return policies[i];
	return NULL;
}

void gantry_policy_stay(const struct gantry_policy_view *view,
			struct gantry_policy_choice *ret_choices)
{
	for (uint32_t i = 0; i < view->nqueues; i++)
		ret_choices[i] = (struct gantry_policy_choice){ .device = view->queues[i].device };
}

/* ---- checks ---- */

bool gantry_policy_may(uint64_t mask, uint32_t device)
{
	return device < GANTRY_POLICY_MAX_DEVICES && (mask >> device & 1);
}

/* Devices that the tenant's queues are on, as @choices says; NULL: as they are. */
static uint64_t devices_of(const struct gantry_policy_view *view, uint32_t tenant,
			   const struct gantry_policy_choice *choices)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < view->nqueues; i++)
		if (view->queues[i].tenant == tenant)
			mask |= 1ull << (choices ? choices[i].device : view->queues[i].device);
	return mask;
}

static int check_tenant(const struct gantry_policy_view *view, uint32_t tenant,
			const struct gantry_policy_choice *choices, struct gantry_err *err)
{
	const struct gantry_policy_tenant *t = &view->tenants[tenant];
	bool moves = false;
	uint32_t now, then;

	if (!t->max_devices)
		return 0;
	now = (uint32_t)__builtin_popcountll(devices_of(view, tenant, NULL));
	then = (uint32_t)__builtin_popcountll(devices_of(view, tenant, choices));
	for (uint32_t i = 0; i < view->nqueues; i++)
		moves = moves || (view->queues[i].tenant == tenant &&
				  choices[i].device != view->queues[i].device);
	/* It may have got fewer since it was placed: what leads there is good, and what leaves it as it is. */
	if (then > t->max_devices && moves && then >= now)
		return gantry_err_set(err, -EINVAL,
				      "it puts tenant %.31s on %u devices, which may be on %u",
				      t->name, then, t->max_devices);
	return 0;
}

static void take_back(const struct gantry_policy_view *view, uint32_t queue,
		      struct gantry_policy_choice *choices)
{
	choices[queue] = (struct gantry_policy_choice){ .device = view->queues[queue].device };
}

static void enforce_tenant(const struct gantry_policy_view *view, uint32_t tenant,
			   struct gantry_policy_choice *choices)
{
	uint32_t most = view->tenants[tenant].max_devices;
	uint64_t mask = 0;

	for (uint32_t i = 0; i < view->nqueues; i++)
		if (view->queues[i].tenant == tenant && choices[i].device == view->queues[i].device)
			mask |= 1ull << choices[i].device;
	for (uint32_t i = 0; i < view->nqueues; i++) {
		uint64_t with = mask | 1ull << choices[i].device;

		if (view->queues[i].tenant != tenant || choices[i].device == view->queues[i].device)
			continue;
		if (with != mask && (uint32_t)__builtin_popcountll(with) > most)
			take_back(view, i, choices);
		mask |= 1ull << choices[i].device;
	}
	if (check_tenant(view, tenant, choices, NULL) == 0)
		return;
	for (uint32_t i = 0; i < view->nqueues; i++)
		if (view->queues[i].tenant == tenant)
			take_back(view, i, choices);
}

void gantry_policy_enforce(const struct gantry_policy_view *view,
			   struct gantry_policy_choice *choices)
{
	for (uint32_t t = 0; t < view->ntenants; t++)
		if (view->tenants[t].max_devices)
			enforce_tenant(view, t, choices);
}

int gantry_policy_check(const struct gantry_policy_view *view, struct gantry_policy_choice *choices,
			struct gantry_err *err)
{
	for (uint32_t i = 0; i < view->nqueues; i++) {
		const struct gantry_policy_queue *q = &view->queues[i];
		uint32_t to = choices[i].device;

		choices[i].why[GANTRY_POLICY_WHY - 1] = '\0';
		gantry_str_make_printable(choices[i].why);
		if (to >= view->ndevices)
			return gantry_err_set(err, -EINVAL,
					      "it puts queue %" PRIu64 ":%u on device %u of %u",
					      q->session, q->slot, to, view->ndevices);
		if (to != q->device && !gantry_policy_may(q->allowed, to))
			return gantry_err_set(err, -EINVAL,
					      "it puts queue %" PRIu64
					      ":%u on %.31s, where it may not be",
					      q->session, q->slot, view->devices[to].name);
	}
	for (uint32_t t = 0; t < view->ntenants; t++) {
		int r = check_tenant(view, t, choices, err);

		if (r < 0)
			return r;
	}
	return 0;
}

int gantry_policy_view_check(const struct gantry_policy_view *view, struct gantry_err *err)
{
	if (view->abi != GANTRY_POLICY_ABI)
		return gantry_err_set(err, -EINVAL, "a view of ABI %u, not %u", view->abi,
				      GANTRY_POLICY_ABI);
	if (view->ndevices > GANTRY_POLICY_MAX_DEVICES ||
	    view->ntenants > GANTRY_POLICY_MAX_TENANTS || view->nqueues > GANTRY_POLICY_MAX_QUEUES)
		return gantry_err_set(err, -EINVAL, "a view of more than there can be");
	for (uint32_t i = 0; i < view->nqueues; i++)
		if (view->queues[i].tenant >= view->ntenants ||
		    view->queues[i].device >= view->ndevices ||
		    view->queues[i].demand > GANTRY_POLICY_WHOLE ||
		    view->queues[i].allowed >> view->ndevices)
			return gantry_err_set(err, -EINVAL,
					      "a view whose queue %u names what is not there", i);
	return 0;
}

/* ---- candidates ---- */

uint64_t gantry_policy_narrow(const struct gantry_policy_view *view, uint32_t tenant,
			      uint64_t reach, uint32_t most)
{
	uint32_t nhere[GANTRY_POLICY_MAX_DEVICES] = { 0 };
	uint64_t kept = 0;

	if (!most || (uint32_t)__builtin_popcountll(reach) <= most)
		return reach;
	for (uint32_t i = 0; i < view->nqueues; i++)
		nhere[view->queues[i].device] += view->queues[i].tenant == tenant;
	for (uint32_t n = 0; n < most; n++) {
		uint32_t best = GANTRY_POLICY_MAX_DEVICES;

		for (uint32_t d = 0; d < view->ndevices; d++)
			if (gantry_policy_may(reach & ~kept, d) &&
			    (best == GANTRY_POLICY_MAX_DEVICES || nhere[d] > nhere[best]))
				best = d;
		kept |= 1ull << best; /* there is one: reach has more than most */
	}
	return kept;
}

/* All devices that any of the tenant's queues may be on. */
static uint64_t reach_of(const struct gantry_policy_view *view, uint32_t tenant)
{
	uint64_t reach = 0;

	for (uint32_t i = 0; i < view->nqueues; i++)
		if (view->queues[i].tenant == tenant)
			reach |= view->queues[i].allowed;
	return reach;
}

uint64_t gantry_policy_candidates(const struct gantry_policy_view *view, uint32_t queue)
{
	const struct gantry_policy_queue *q = &view->queues[queue];
	uint32_t most = view->tenants[q->tenant].max_devices;
	uint64_t reach = q->allowed;

	if (most)
		reach &= gantry_policy_narrow(view, q->tenant, reach_of(view, q->tenant), most);
	return reach;
}

bool gantry_policy_next_class(const struct gantry_policy_view *view, int64_t below,
			      int32_t *ret_priority)
{
	bool found = false;

	for (uint32_t i = 0; i < view->nqueues; i++) {
		int32_t priority = view->queues[i].priority;

		if (priority < below && (!found || priority > *ret_priority)) {
			*ret_priority = priority;
			found = true;
		}
	}
	return found;
}

/* ---- times ---- */

uint64_t gantry_policy_cost_ns(const struct gantry_policy_view *view,
			       const struct gantry_policy_queue *q, uint32_t to)
{
	uint64_t per_s = view->bytes_per_s[q->device][to];
	double copy_ns = per_s ? (double)q->move_bytes * 1e9 / (double)per_s : 0;

	return GANTRY_POLICY_MOVE_NS + (uint64_t)(copy_ns < 1e18 ? copy_ns : 1e18);
}

uint64_t gantry_policy_run_ns(const struct gantry_policy_view *view,
			      const struct gantry_policy_queue *q, uint32_t device)
{
	uint64_t best = 0;

	if (q->run_ns[device])
		return q->run_ns[device];
	/* Devices of one kind are taken for equal; of another kind the best is hoped for, and found out. */
	for (uint32_t d = 0; d < view->ndevices; d++)
		if (q->run_ns[d] && view->devices[d].kind == view->devices[device].kind)
			return q->run_ns[d];
	for (uint32_t d = 0; d < view->ndevices; d++)
		if (q->run_ns[d] && (!best || q->run_ns[d] < best))
			best = q->run_ns[d];
	return best;
}

void gantry_policy_choose(struct gantry_policy_choice *ret_choice, uint32_t device, const char *fmt,
			  ...)
{
	va_list ap;

	ret_choice->device = device;
	va_start(ap, fmt);
	(void)vsnprintf(ret_choice->why, sizeof(ret_choice->why), fmt,
			ap); /* cut is better than unsaid */
	va_end(ap);
}

/* ---- options ---- */

static int set_option(const struct gantry_policy_option *table, const char *key, const char *value,
		      void *state, struct gantry_err *err)
{
	for (; table->key; table++) {
		uint64_t number = 0;
		int r;

		if (strcmp(table->key, key) != 0)
			continue;
		r = table->is_time ? gantry_duration_parse(value, &number, err)
				   : gantry_u64_parse(value, 0, table->max, &number, err);
		if (r == 0 && number > table->max)
			r = gantry_err_set(err, -EINVAL, "it is too long");
		if (r < 0)
			return gantry_err_wrap(err, -EINVAL, "%s", key);
		memcpy((char *)state + table->off, &number, sizeof(number));
		return 0;
	}
	return gantry_err_set(err, -EINVAL, "the policy has no option \"%.40s\"", key);
}

int gantry_policy_options(const struct gantry_policy_option *table, const char *options,
			  void *state, char *text, size_t cap)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	char copy[256];
	char *save = NULL;
	int r = gantry_str_copy(copy, sizeof(copy), options);

	if (r < 0)
		(void)gantry_err_set(&err, r, "options are longer than %zu characters",
				     sizeof(copy) - 1);
	for (char *word = r < 0 ? NULL : strtok_r(copy, " ", &save); word && r == 0;
	     word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');

		if (value)
			*value++ = '\0';
		r = value ? set_option(table, word, value, state, &err)
			  : gantry_err_set(&err, -EINVAL, "\"%.40s\" is not key=value", word);
	}
	if (r < 0)
		(void)gantry_str_copy(text, cap, err.text); /* cut is better than unsaid */
	return r < 0 ? -EINVAL : 0;
}

int gantry_policy_create(const void *defaults, size_t bytes,
			 const struct gantry_policy_option *table, const char *options,
			 void **ret_state, char *text, size_t cap)
{
	void *state = malloc(bytes);
	int r;

	if (!state)
		return -ENOMEM;
	memcpy(state, defaults, bytes);
	r = gantry_policy_options(table, options, state, text, cap);
	if (r < 0) {
		free(state);
		return r;
	}
	*ret_state = state;
	return 0;
}
