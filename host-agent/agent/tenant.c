/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: made, changed and ended as the configuration says. */
#include "host-agent/agent/tenant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/drain.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/relay.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/vsock.h"
#include "host-agent/agent/worker.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "migration/ledger.h"

#define FAULT_WINDOW_NS (3600 * GANTRY_NS_PER_S)

struct gantry_tenant *gantry_tenant_find(struct gantry_agent *a, const char *name)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (!t->removed && strcmp(t->conf.name, name) == 0)
			return t;
	return NULL;
}

struct gantry_tenant *gantry_tenant_by_slot(struct gantry_agent *a, uint32_t slot)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (t->slot == slot)
			return t;
	return NULL;
}

static unsigned int count_devices(const struct gantry_tenant *t, const char *backend)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < t->agent->ndevices; i++)
		n += (t->device_mask >> i & 1) && t->agent->devices[i].used &&
		     strcmp(t->agent->devices[i].conf.backend, backend) == 0;
	return n;
}

uint32_t gantry_tenant_mode(const struct gantry_tenant *t)
{
	/* What spans GPUs runs outside MPS. */
	if (t->forced_isolated ||
	    (t->conf.isolation == GANTRY_PACKED && count_devices(t, "cuda") > 1))
		return GANTRY_ISOLATED;
	/* AMD's runtime ends the process at a bad access, so no session shares one with another. */
	if (count_devices(t, "hip") > 0)
		return GANTRY_ISOLATED;
	return t->conf.isolation;
}

uint64_t gantry_tenant_seats(const struct gantry_tenant *t)
{
	const struct gantry_agent *a = t->agent;
	uint64_t mask = 0;

	for (uint32_t i = 0; i < a->ndevices; i++)
		if ((t->device_mask >> i & 1) && a->devices[i].used &&
		    gantry_steward_holds(&a->devices[i].conf))
			mask |= 1ull << i;
	return mask;
}

static const char *trust_of(const struct gantry_tenant *t)
{
	return t->conf.trust_group[0] ? t->conf.trust_group : t->conf.name;
}

/* "@" keeps a tenant that names no group apart from every group's name. */
void gantry_tenant_class(const struct gantry_tenant *t, struct gantry_worker_class *ret_class)
{
	uint32_t mode = gantry_tenant_mode(t);

	*ret_class = (struct gantry_worker_class){ .mode = mode, .seats = gantry_tenant_seats(t) };
	if (mode == GANTRY_ISOLATED) {
		if (gantry_net_serves(t))
			(void)gantry_str_format(ret_class->group, sizeof(ret_class->group),
						GANTRY_NET_MARK "%s", t->conf.name); /* it fits */
		return;
	}
	gantry_list_for_each(&t->agent->tenants, struct gantry_tenant, link, other)
		if (!other->removed && gantry_tenant_mode(other) == mode &&
		    strcmp(trust_of(other), trust_of(t)) == 0)
			ret_class->seats |= gantry_tenant_seats(other);
	if (mode == GANTRY_PACKED) {
		ret_class->percent = t->conf.compute_percent;
		/* Streams know nothing below their usual priority: their process has to be it as a whole. */
		ret_class->mps_priority = t->conf.priority < 0;
	}
	(void)gantry_str_format(ret_class->group, sizeof(ret_class->group), "%s%s",
				t->conf.trust_group[0] ? "" : "@", trust_of(t)); /* it fits */
}

bool gantry_tenant_faulted(struct gantry_tenant *t)
{
	uint64_t now_ns = gantry_now_ns();

	memmove(t->faults_ns, t->faults_ns + 1, sizeof(t->faults_ns) - sizeof(t->faults_ns[0]));
	t->faults_ns[GANTRY_FAULTS_KEPT - 1] = now_ns;
	if (t->faults_ns[0] == 0 || now_ns - t->faults_ns[0] > FAULT_WINDOW_NS ||
	    gantry_tenant_mode(t) == GANTRY_ISOLATED)
		return false;
	t->forced_isolated = true;
	gantry_event(
		t->agent, "tenant-isolated", t, NULL, NULL,
		"its workers faulted %u times within an hour: sessions are isolated from now on",
		GANTRY_FAULTS_KEPT);
	return true;
}

/* Of a group's tenant only the group's. */
static uint64_t devices_of(const struct gantry_tenant *t)
{
	const struct gantry_group_section *group = gantry_config_group(t->agent->config,
								       t->conf.group);
	uint64_t mask = gantry_devices_mask(t->agent, t->conf.devices);

	return group ? mask & gantry_devices_mask(t->agent, group->devices) : mask;
}

static uint32_t wishes_of(const struct gantry_tenant_conf *conf)
{
	static const uint32_t recipes[] = {
		[GANTRY_RECIPES_MOVES] = 0,
		[GANTRY_RECIPES_ALWAYS] = GANTRY_QUOTA_RECIPES_ALWAYS,
		[GANTRY_RECIPES_NO] = GANTRY_QUOTA_RECIPES_NEVER,
	};

	return recipes[conf->recipes] | (conf->replicas ? 0 : GANTRY_QUOTA_NO_REPLICAS);
}

static void publish_limits(struct gantry_tenant *t)
{
	struct gantry_quota_page *q = t->quota;

	gantry_store_relaxed(&q->mem_bytes, t->conf.mem_bytes);
	gantry_store_relaxed(&q->virtual_bytes, t->conf.virtual_bytes);
	gantry_store_relaxed(&q->deadline_ns, t->conf.deadline_ns);
	gantry_store_relaxed(&q->spin_ns, t->conf.spin_ns);
	gantry_store_relaxed(&q->inflight, t->conf.inflight);
	gantry_store_relaxed(&q->wishes, wishes_of(&t->conf));
	gantry_store_relaxed(&q->priority_max, t->conf.priority);
	gantry_store_relaxed(&q->nobjects, GANTRY_LEDGER_NOBJECTS);
	for (uint32_t i = 0; i < t->agent->ndevices; i++)
		gantry_share_set_tenant(t->agent->devices[i].page, t->slot, t->conf.weight);
	t->device_mask = devices_of(t);
}

/* Queues that are open keep their priority, as far as the tenant's new limit allows. */
static void cap_priorities(struct gantry_session *s, int32_t limit)
{
	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		if (gantry_load_relaxed(&s->ledger.queues[i].priority) > limit)
			gantry_store_relaxed(&s->ledger.queues[i].priority, limit);
}

/*
 * Sessions keep limits they were told at attach only as far as the tenant's new ones allow. One that has no narrower limit of
 * its own than the tenant had may use what the tenant gets more.
 */
static void publish_to_sessions(struct gantry_tenant *t, uint64_t old_mem_bytes,
				uint64_t old_virtual_bytes)
{
	gantry_list_for_each(&t->agent->sessions, struct gantry_session, link, s) {
		if (s->tenant != t || !s->ledger.hdr)
			continue;
		gantry_store_relaxed(&s->ledger.hdr->inflight, t->conf.inflight);
		cap_priorities(s, t->conf.priority);
		if (s->shape.mem_bytes >= old_mem_bytes && t->conf.mem_bytes > s->shape.mem_bytes) {
			s->shape.mem_bytes = t->conf.mem_bytes;
			gantry_store_relaxed(&s->ledger.hdr->mem_bytes, t->conf.mem_bytes);
		}
		if (s->shape.virtual_bytes >= old_virtual_bytes &&
		    t->conf.virtual_bytes > s->shape.virtual_bytes) {
			s->shape.virtual_bytes = t->conf.virtual_bytes;
			gantry_store_relaxed(&s->ledger.hdr->virtual_bytes, t->conf.virtual_bytes);
		}
		gantry_session_allow(s);
	}
}

void gantry_tenant_init(struct gantry_tenant *t, struct gantry_agent *a)
{
	t->agent = a;
	t->door_fd = -EBADF;
	t->quota_fd = -EBADF;
	t->ivshmem_fd = -EBADF;
	t->wake_fd = -EBADF;
	t->vsock_fd = -EBADF;
	t->net.fd = t->net.user_fd = -EBADF;
	gantry_list_init(&t->waiting);
	gantry_list_init(&t->standbys);
	gantry_list_init(&t->machines);
	gantry_list_init(&t->channels);
}

static int new_tenant(struct gantry_agent *a, const struct gantry_tenant_conf *conf,
		      struct gantry_tenant **ret_tenant, struct gantry_err *err)
{
	struct gantry_tenant *t = calloc(1, sizeof(*t));
	int slot, r;

	if (!t)
		return gantry_err_set(err, -ENOMEM, "no memory for tenant %s", conf->name);
	gantry_tenant_init(t, a);
	t->conf = *conf;
	slot = gantry_slot_take(a->tenant_slots, GANTRY_SHARE_NTENANTS);
	if (slot < 0) {
		free(t);
		return gantry_err_set(err, slot, "tenant %s: more than %u tenants", conf->name,
				      GANTRY_SHARE_NTENANTS);
	}
	t->slot = (uint32_t)slot;
	r = gantry_quota_create(conf->name, &t->quota, &t->quota_fd, err);
	if (r < 0) {
		gantry_slot_put(a->tenant_slots, t->slot);
		free(t);
		return r;
	}
	gantry_list_push_back(&a->tenants, &t->link);
	gantry_keep(a, t->quota_fd, "q/%u/%s", t->slot, conf->name);
	*ret_tenant = t;
	return 0;
}

static void open_door(struct gantry_tenant *t)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = gantry_door_open(t, &err);

	/* for people */
	(void)gantry_str_copy(t->state, sizeof(t->state), r < 0 ? err.text : "open");
	if (r < 0)
		gantry_event(t->agent, "door-failed", t, NULL, NULL, "%s", err.text);
}

static void open_vsock_door(struct gantry_tenant *t)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	if (gantry_vsock_door_open(t, &err) < 0)
		gantry_event(t->agent, "door-failed", t, NULL, NULL, "%s", err.text);
}

static bool same_door(const struct gantry_tenant_conf *a, const struct gantry_tenant_conf *b)
{
	return strcmp(a->door, b->door) == 0 && a->door_mode == b->door_mode &&
	       strcmp(a->door_owner, b->door_owner) == 0;
}

static bool same_ivshmem(const struct gantry_tenant_conf *a, const struct gantry_tenant_conf *b)
{
	return a->ivshmem == b->ivshmem && a->ivshmem_mode == b->ivshmem_mode &&
	       strcmp(a->ivshmem_owner, b->ivshmem_owner) == 0;
}

/* After the tenant has its configuration; machines that are there keep what they have. */
static void apply_ivshmem(struct gantry_tenant *t, bool reopen)
{
	if (!t->conf.ivshmem)
		gantry_ivshmem_close(t, GANTRY_E_DETACHED, "the door was closed");
	if (reopen)
		gantry_ivshmem_shut(t);
	gantry_ivshmem_open(t);
}

static void apply_one(struct gantry_agent *a, const struct gantry_tenant_conf *conf)
{
	struct gantry_tenant *t = gantry_tenant_find(a, conf->name);
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t old_mem_bytes, old_virtual_bytes;
	bool reopen, reopen_ivshmem;

	if (!t && new_tenant(a, conf, &t, &err) < 0) {
		gantry_log(GANTRY_LOG_ERR, "%s", err.text);
		return;
	}
	reopen = t->door_fd >= 0 && !same_door(&t->conf, conf);
	reopen_ivshmem = !same_ivshmem(&t->conf, conf);
	if (memcmp(&t->conf, conf, sizeof(*conf)) != 0) {
		if (t->conf.isolation != conf->isolation)
			t->forced_isolated = false; /* the administrator has decided anew */
		if (t->conf.source
			    [0]) /* else it is of an earlier agent, and only its name was known */
			gantry_event(a, "tenant-changed", t, NULL, NULL, "limits or door changed");
	}
	old_mem_bytes = t->conf.mem_bytes;
	old_virtual_bytes = t->conf.virtual_bytes;
	t->conf = *conf;
	gantry_net_apply(t);
	publish_limits(t);
	publish_to_sessions(t, old_mem_bytes, old_virtual_bytes);
	if (reopen)
		gantry_door_close(t);
	if (t->door_fd < 0)
		open_door(t);
	apply_ivshmem(t, reopen_ivshmem);
	open_vsock_door(t);
	gantry_conn_next(t); /* a raised limit makes room */
}

static void remove_tenant(struct gantry_tenant *t)
{
	gantry_door_close(t);
	gantry_ivshmem_close(t, GANTRY_E_DETACHED, "the tenant was removed");
	gantry_vsock_door_close(t);
	gantry_event(t->agent, "tenant-removed", t, NULL, NULL, "no longer configured");
	t->removed = true;
	gantry_net_retire(t);
	t->nsessions++; /* keeps it alive while its sessions end under us */
	gantry_list_for_each_safe(&t->agent->sessions, struct gantry_session, link, s)
		if (s->tenant == t)
			gantry_detach(s, GANTRY_E_DETACHED, "the tenant was removed");
	t->nsessions--;
	gantry_tenant_reap(t);
}

void gantry_tenants_apply(struct gantry_agent *a, const struct gantry_config *config)
{
	gantry_list_for_each_safe(&a->tenants, struct gantry_tenant, link, t)
		if (!t->removed && !gantry_config_tenant(config, t->conf.name))
			remove_tenant(t);
	for (uint32_t i = 0; i < config->ntenants; i++)
		apply_one(a, &config->tenants[i]);
	gantry_workers_nudge(a);
}

void gantry_tenant_free(struct gantry_tenant *t)
{
	gantry_door_close(t);
	gantry_ivshmem_close(t, GANTRY_E_DETACHED, "the door was closed");
	gantry_doormems_end(t);
	gantry_drain_forget(t);
	gantry_relays_disown(t);
	gantry_vsock_door_close(t);
	gantry_net_free(t);
	gantry_keep_drop(t->agent, "q/%u/%s", t->slot, t->conf.name);
	gantry_slot_put(t->agent->tenant_slots, t->slot);
	gantry_quota_close(t->quota);
	gantry_fd_close(t->quota_fd);
	gantry_list_remove(&t->link);
	free(t);
}

void gantry_tenant_reap(struct gantry_tenant *t)
{
	if (t->removed && t->nsessions == 0 && t->nhalf_open == 0 && t->ndoormems == 0 &&
	    gantry_list_is_empty(&t->waiting) && gantry_list_is_empty(&t->standbys))
		gantry_tenant_free(t);
}
