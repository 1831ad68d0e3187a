/* SPDX-License-Identifier: Apache-2.0 */
/* A domain as its policy sees it. */
#include <string.h>

#include "base/atomic.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"

/*
 * What a move between devices is taken to copy in a second, where one of them has memory of its own: a link of 16 lanes of the third
 * generation does it. On the slow side, so that a move pays on every machine.
 */
#define LINK_BYTES_PER_S 12000000000ull

static uint64_t devices_of(const struct gantry_placement *p, const struct gantry_domain *d)
{
	const struct gantry_group_section *group = gantry_config_group(p->agent->config, d->name);

	return gantry_devices_mask(p->agent, group ? group->devices : "all");
}

static bool has_own_memory(const struct gantry_agent_device *d)
{
	return d->slab_align != 0;
}

static void view_device(const struct gantry_placement *p, uint32_t idx, uint64_t mask,
			uint64_t now_ns, struct gantry_policy_device *ret_device)
{
	const struct gantry_agent_device *d = &p->agent->devices[idx];
	uint64_t used = gantry_load_relaxed(&d->page->hdr.mem_used);

	*ret_device = (struct gantry_policy_device){
		.kind = d->kind,
		.lanes = d->lanes,
		.usable = (mask & gantry_devices_serving(p->agent)) >> idx & 1,
		.idle_ns = p->idle_since_ns[idx] ? now_ns - p->idle_since_ns[idx] : 0,
		.mem_bytes = d->mem_bytes,
		.mem_free_bytes = d->mem_bytes > used ? d->mem_bytes - used : 0,
	};
	(void)gantry_str_copy(ret_device->name, sizeof(ret_device->name),
			      d->conf.name); /* it fits */
	gantry_share_count(d->page, &ret_device->nbusy, &ret_device->nwaiting);
}

static void view_links(const struct gantry_placement *p, struct gantry_policy_view *view)
{
	for (uint32_t i = 0; i < view->ndevices; i++)
		for (uint32_t j = 0; j < view->ndevices; j++)
			if (i != j && (has_own_memory(&p->agent->devices[i]) ||
				       has_own_memory(&p->agent->devices[j])))
				view->bytes_per_s[i][j] = LINK_BYTES_PER_S;
}

/* The tenant's index in the view. Tenants are few, and each is in it once. */
static uint32_t view_tenant(struct gantry_view_store *v, const struct gantry_tenant *t)
{
	struct gantry_policy_tenant *entry;

	for (uint32_t i = 0; i < v->view.ntenants; i++)
		if (strcmp(v->tenants[i].name, t->conf.name) == 0)
			return i;
	entry = &v->tenants[v->view.ntenants];
	*entry = (struct gantry_policy_tenant){ .weight = t->conf.weight,
						.min_devices = t->conf.min_devices,
						.max_devices = t->conf.max_devices };
	(void)gantry_str_copy(entry->name, sizeof(entry->name), t->conf.name); /* it fits */
	return v->view.ntenants++;
}

static uint32_t count_active(const struct gantry_session_sample *sample)
{
	uint32_t n = 0;

	for (uint32_t slot = 1; slot < sample->nqueues; slot++)
		n += sample->queues[slot].began_ns != 0;
	return n;
}

/* Which queue owns which bytes the ledger does not say: all have the same part of what the session has in windows. */
static uint64_t bytes_of_each(const struct gantry_session *s)
{
	uint64_t bytes = gantry_load_relaxed(&s->ledger.hdr->window_bytes);
	uint32_t n = count_active(s->sample);

	if (bytes > s->shape.slab_bytes)
		bytes = s->shape.slab_bytes;
	return n ? bytes / n : bytes;
}

static uint64_t usable_mask(const struct gantry_view_store *v)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < v->view.ndevices; i++)
		mask |= v->devices[i].usable ? 1ull << i : 0;
	return mask;
}

/* Devices with memory of their own that lack room for what the queue would bring. */
static uint64_t without_room(const struct gantry_placement *p, const struct gantry_view_store *v,
			     uint32_t device, uint64_t bytes)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < v->view.ndevices; i++)
		if (i != device && has_own_memory(&p->agent->devices[i]) &&
		    v->devices[i].mem_free_bytes < bytes)
			mask |= 1ull << i;
	return mask;
}

/* Devices that the tenant may use and the session's worker has for it: it knows no others than at the attach. */
static uint64_t reachable(const struct gantry_session *s)
{
	uint64_t mask = s->tenant->device_mask & ~s->worker->unusable;

	return s->device_mask ? mask & s->device_mask : mask;
}

static void view_queue(struct gantry_placement *p, struct gantry_session *s, uint32_t slot,
		       uint32_t tenant, uint64_t now_ns, struct gantry_view_store *v)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[slot];
	const struct gantry_queue_sample *q = &s->sample->queues[slot];
	uint32_t n = v->view.nqueues++;
	uint64_t taken = gantry_load_relaxed(&led->taken);
	uint64_t came_ns = q->asked ? q->asked_ns : q->came_ns;
	uint32_t device = (q->asked ? q->asked : q->device) - 1;
	uint64_t bytes = bytes_of_each(s);

	v->refs[n] = (struct gantry_view_ref){ .session = s->id, .slot = slot, .gen = q->gen };
	v->queues[n] = (struct gantry_policy_queue){
		.session = s->id,
		.slot = slot,
		.tenant = tenant,
		.priority = gantry_load_relaxed(&led->priority),
		.device = device,
		.allowed = reachable(s) & usable_mask(v) &
			   gantry_placement_capable(p, s, slot, now_ns) &
			   ~without_room(p, v, device, bytes),
		.backlog = taken > q->done ? taken - q->done : 0,
		.age_ns = now_ns - q->began_ns,
		.stayed_ns = came_ns ? now_ns - came_ns : UINT64_MAX,
		.move_bytes = bytes,
		.demand = q->demand,
	};
	memcpy(v->queues[n].run_ns, q->run_ns, sizeof(q->run_ns));
}

/* What others than the domain's do on its devices. */
static void view_foreign(const struct gantry_session *s, struct gantry_view_store *v)
{
	for (uint32_t slot = 1; slot < s->sample->nqueues; slot++) {
		const struct gantry_queue_sample *q = &s->sample->queues[slot];

		if (q->began_ns && q->device <= v->view.ndevices)
			v->devices[q->device - 1].foreign += q->demand;
	}
}

static void view_session(struct gantry_placement *p, struct gantry_session *s, uint64_t now_ns,
			 struct gantry_view_store *v)
{
	uint32_t tenant = v->view.ntenants;

	if (count_active(s->sample) == 0 || !s->worker)
		return;
	tenant = view_tenant(v, s->tenant);
	for (uint32_t slot = 1; slot < s->sample->nqueues; slot++)
		if (s->sample->queues[slot].began_ns && v->view.nqueues < GANTRY_POLICY_MAX_QUEUES)
			view_queue(p, s, slot, tenant, now_ns, v);
}

void gantry_placement_view(struct gantry_placement *p, const struct gantry_domain *d,
			   uint64_t now_ns, struct gantry_view_store *v)
{
	uint64_t mask = devices_of(p, d);

	v->view = (struct gantry_policy_view){ .abi = GANTRY_POLICY_ABI,
					       .ndevices = p->agent->ndevices,
					       .now_ns = now_ns,
					       .devices = v->devices,
					       .tenants = v->tenants,
					       .queues = v->queues };
	for (uint32_t i = 0; i < v->view.ndevices; i++)
		view_device(p, i, mask, now_ns, &v->devices[i]);
	view_links(p, &v->view);
	gantry_list_for_each(&p->agent->sessions, struct gantry_session, link, s) {
		if (s->phase != GANTRY_PHASE_ATTACHED || !s->ledger.hdr || !s->sample)
			continue;
		if (gantry_placement_domain(p, s->tenant) == d)
			view_session(p, s, now_ns, v);
		else
			view_foreign(s, v);
	}
}
