/* SPDX-License-Identifier: Apache-2.0 */
/* Admin verbs that only read. */
#include <errno.h>
#include <grp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/build.h"
#include "host-agent/agent/cgroup.h"
#include "host-agent/agent/channel.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/guard.h"
#include "host-agent/agent/kernels.h"
#include "host-agent/agent/metrics.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/missing.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/renew.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/agent/worker_limits.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "host-agent/shared/wake.h"
#include "proto/wire.h"

#define FDS_PER_SESSION 8u
#define HEALTH_FRESH_NS GANTRY_NS_PER_S

/* ---- version, stats ---- */

void gantry_verb_version(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			 struct gantry_answer *r)
{
	Gantry__Admin__Version *v = gantry_answer_take(r, sizeof(*v));

	(void)q;
	gantry__admin__version__init(v);
	v->agent = gantry_answer_text(r, gantry_build_version);
	v->wire_min = GANTRY_WIRE_VERSION_MIN;
	v->wire_max = GANTRY_WIRE_VERSION_MAX;
	v->started_unix_ns = a->started_unix_ns;
	v->agent_pid = (uint32_t)getpid();
	v->monitor_pid = a->monitor_fd >= 0 ? (uint32_t)a->monitor_pid : 0;
	v->agent_restarts = a->restarts;
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_VERSION;
	r->msg.version = v;
}

struct stats_list {
	struct gantry_answer *r;
	Gantry__Admin__Metric **metrics;
	size_t n;
	size_t cap;
};

static void add_metric(void *arg, const struct gantry_metric *m)
{
	struct stats_list *list = arg;
	Gantry__Admin__Metric *msg;

	if (list->n == list->cap)
		return; /* the count came first: only a change in between could do that */
	msg = gantry_answer_take(list->r, sizeof(*msg));
	gantry__admin__metric__init(msg);
	msg->name = gantry_answer_text(list->r, m->name);
	msg->labels = gantry_answer_text(list->r, m->labels);
	msg->value = m->value;
	list->metrics[list->n++] = msg;
}

static void count_metric(void *arg, const struct gantry_metric *m)
{
	(void)m;
	++*(size_t *)arg;
}

void gantry_verb_stats(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
		       struct gantry_answer *r)
{
	Gantry__Admin__Stats *stats = gantry_answer_take(r, sizeof(*stats));
	struct stats_list list = { .r = r };

	(void)q;
	gantry__admin__stats__init(stats);
	gantry_metrics_each(a, count_metric, &list.cap);
	list.metrics = gantry_answer_take(r, list.cap * sizeof(*list.metrics));
	gantry_metrics_each(a, add_metric, &list);
	stats->n_metrics = list.n;
	stats->metrics = list.metrics;
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_STATS;
	r->msg.stats = stats;
}

/* ---- devices ---- */

static void count_share(const struct gantry_agent_device *d, Gantry__Admin__Device *msg)
{
	const struct gantry_share_page *page = d->page;

	for (uint32_t i = 0; i < GANTRY_SHARE_NLANES; i++)
		msg->running += gantry_load_relaxed(&page->lanes[i]) != 0;
	for (uint32_t i = 0; i < GANTRY_SHARE_NSESSIONS; i++) {
		uint32_t state = gantry_load_relaxed(&page->sessions[i].state);

		msg->sessions += state != GANTRY_SHARE_FREE;
		msg->waiting += state == GANTRY_SHARE_WAITING;
	}
	for (uint32_t i = 0; i < GANTRY_SHARE_NTENANTS; i++)
		msg->device_ns += gantry_load_relaxed(&page->tenants[i].device_ns);
}

static Gantry__Admin__UInt *number(struct gantry_answer *r, uint64_t value)
{
	Gantry__Admin__UInt *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__uint__init(msg);
	msg->value = value;
	return msg;
}

static Gantry__Admin__SInt *signed_number(struct gantry_answer *r, int64_t value)
{
	Gantry__Admin__SInt *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__sint__init(msg);
	msg->value = value;
	return msg;
}

static void list_health(const struct gantry_agent_device *d, Gantry__Admin__Device *msg,
			struct gantry_answer *r)
{
	const struct gantry_device_health *h = &d->health;

	if (!d->health_ns)
		return;
	msg->health_age_ns = number(r, gantry_now_ns() - d->health_ns);
	if (h->known & GANTRY_HEALTH_TEMPERATURE)
		msg->temperature_c = signed_number(r, h->temperature_c);
	if (h->known & GANTRY_HEALTH_CLOCKS) {
		msg->clock_mhz = number(r, h->clock_mhz);
		msg->mem_clock_mhz = number(r, h->mem_clock_mhz);
	}
	if (h->known & GANTRY_HEALTH_MEM) {
		msg->board_mem_used = number(r, h->mem_used);
		msg->board_mem_bytes = number(r, h->mem_total);
	}
	if (h->known & GANTRY_HEALTH_ECC)
		msg->ecc_uncorrected = number(r, h->ecc_uncorrected);
	if (h->known & GANTRY_HEALTH_FAULTS) {
		msg->faults = number(r, h->nfaults);
		if (h->nfaults)
			msg->last_fault = number(r, h->last_fault);
	}
}

static void list_slabs(const struct gantry_slab_pool *pool, Gantry__Admin__Device *msg)
{
	msg->slab_bytes = pool->session_bytes;
	msg->slab_pool_bytes = pool->clean_bytes;
	msg->slab_dirty_bytes = pool->dirty_bytes;
}

static Gantry__Admin__Device *list_device(struct gantry_agent_device *d, struct gantry_answer *r)
{
	Gantry__Admin__Device *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__device__init(msg);
	msg->name = gantry_answer_text(r, d->conf.name);
	msg->backend = gantry_answer_text(r, d->conf.backend);
	msg->kind = gantry_answer_text(r,
				       d->kind ? gantry_kind_name((int)d->kind) : d->conf.backend);
	msg->state = (Gantry__Admin__DeviceState)d->state;
	msg->lanes = d->lanes;
	msg->units = d->units;
	msg->mem_bytes = d->mem_bytes;
	msg->mem_used = gantry_load_relaxed(&d->page->hdr.mem_used);
	msg->mem_peak = gantry_load_relaxed(&d->page->hdr.mem_peak);
	msg->model = gantry_answer_text(r, d->model);
	msg->id = gantry_answer_text(r, d->id);
	msg->reason = gantry_answer_text(r, d->reason);
	msg->n_opts = d->conf.nopts;
	msg->opts = gantry_answer_take(r, d->conf.nopts * sizeof(*msg->opts));
	for (uint32_t i = 0; i < d->conf.nopts; i++)
		msg->opts[i] = gantry_answer_text(r, d->conf.opts[i]);
	msg->arch = gantry_answer_text(r, d->arch);
	if (d->kind && d->numa_node >= 0)
		msg->numa_node = signed_number(r, d->numa_node);
	list_health(d, msg, r);
	count_share(d, msg);
	return msg;
}

void gantry_verb_device_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			     struct gantry_answer *r)
{
	Gantry__Admin__DeviceList *list = gantry_answer_take(r, sizeof(*list));

	(void)q;
	gantry__admin__device_list__init(list);
	list->devices = gantry_answer_take(r, a->ndevices * sizeof(*list->devices));
	for (uint32_t i = 0; i < a->ndevices; i++) {
		if (!a->devices[i].used)
			continue;
		list->devices[list->n_devices] = list_device(&a->devices[i], r);
		list_slabs(&a->pools[i], list->devices[list->n_devices++]);
	}
	gantry_health_ask(a, HEALTH_FRESH_NS); /* who looks again sees it */
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_DEVICES;
	r->msg.devices = list;
}

/* ---- tenants ---- */

static char *key_text(struct gantry_answer *r, const struct gantry_tenant_conf *conf,
		      const char *key)
{
	char value[GANTRY_CONFIG_TEXT * 4] = "";

	(void)gantry_tenant_conf_get(conf, key, value, sizeof(value)); /* our own keys; it fits */
	return gantry_answer_text(r, value);
}

static Gantry__Admin__TenantSet *list_config(const struct gantry_tenant *t, struct gantry_answer *r)
{
	const struct gantry_tenant_conf *conf = &t->conf;
	Gantry__Admin__TenantSet *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__tenant_set__init(msg);
	msg->name = gantry_answer_text(r, conf->name);
	msg->mem_bytes = number(r, conf->mem_bytes);
	msg->virtual_bytes = number(r, conf->virtual_bytes);
	msg->heap_bytes = number(r, conf->heap_bytes);
	msg->host_mem_bytes = number(r, conf->host_mem_bytes);
	msg->weight = number(r, conf->weight);
	msg->priority = signed_number(r, conf->priority);
	msg->sessions = number(r, conf->sessions);
	msg->queues = number(r, conf->queues);
	msg->inflight = number(r, conf->inflight);
	msg->deadline_ns = number(r, conf->deadline_ns);
	msg->isolation = key_text(r, conf, "isolation");
	msg->trust_group = key_text(r, conf, "trust_group");
	msg->devices = key_text(r, conf, "devices");
	msg->group = key_text(r, conf, "group");
	msg->min_devices = number(r, conf->min_devices);
	msg->max_devices = number(r, conf->max_devices);
	msg->door = gantry_answer_text(r, t->door_path);
	msg->door_mode = key_text(r, conf, "door_mode");
	msg->door_owner = key_text(r, conf, "door_owner");
	msg->on_full = key_text(r, conf, "on_full");
	msg->recipes = key_text(r, conf, "recipes");
	msg->communicators = number(r, conf->communicators);
	msg->compute_percent = number(r, conf->compute_percent);
	msg->spin_ns = number(r, conf->spin_ns);
	msg->ivshmem = number(r, conf->ivshmem);
	msg->ivshmem_bytes = number(r, conf->ivshmem_bytes);
	msg->ivshmem_vectors = number(r, conf->ivshmem_vectors);
	msg->ivshmem_machines = number(r, conf->ivshmem_machines);
	msg->ivshmem_mode = key_text(r, conf, "ivshmem_mode");
	msg->ivshmem_owner = key_text(r, conf, "ivshmem_owner");
	msg->vsock_cid = number(r, conf->vsock_cid);
	return msg;
}

static void add_living(const struct gantry_tenant *t, Gantry__Admin__Tenant *msg)
{
	gantry_list_for_each(&t->agent->sessions, struct gantry_session, link, s) {
		const struct gantry_ledger_header *hdr = s->ledger.hdr;

		if (s->tenant != t || !hdr)
			continue;
		msg->device_ns += gantry_load_relaxed(&hdr->device_ns);
		msg->tasks_finished += gantry_load_relaxed(&hdr->tasks_finished);
		msg->tasks_failed += gantry_load_relaxed(&hdr->tasks_failed);
	}
}

static Gantry__Admin__Tenant *list_tenant(const struct gantry_tenant *t, struct gantry_answer *r)
{
	Gantry__Admin__Tenant *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__tenant__init(msg);
	msg->config = list_config(t, r);
	msg->source = gantry_answer_text(r, t->conf.source);
	msg->sessions = t->nsessions;
	msg->mem_used = gantry_load_relaxed(&t->quota->mem_used);
	msg->mem_peak = gantry_load_relaxed(&t->quota->mem_peak);
	msg->virtual_used = gantry_load_relaxed(&t->quota->virtual_used);
	msg->host_mem_used = t->host_mem_used;
	msg->device_ns = t->device_ns;
	msg->tasks_finished = t->tasks_finished;
	msg->tasks_failed = t->tasks_failed;
	msg->denied = t->denied + gantry_load_relaxed(&t->quota->denied);
	msg->protocol_errors = t->protocol_errors;
	msg->worker_restarts = t->worker_restarts;
	msg->state = gantry_answer_text(r, t->state);
	add_living(t, msg);
	return msg;
}

void gantry_verb_tenant_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			     struct gantry_answer *r)
{
	Gantry__Admin__TenantList *list = gantry_answer_take(r, sizeof(*list));

	(void)q;
	gantry__admin__tenant_list__init(list);
	list->tenants = gantry_answer_take(r,
					   gantry_list_count(&a->tenants) * sizeof(*list->tenants));
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (!t->removed)
			list->tenants[list->n_tenants++] = list_tenant(t, r);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_TENANTS;
	r->msg.tenants = list;
}

/* ---- sessions and queues ---- */

static const char *phase_name(enum gantry_session_phase phase)
{
	static const char *const names[] = {
		[GANTRY_PHASE_WAITING] = "waiting",	[GANTRY_PHASE_ATTACHING] = "attaching",
		[GANTRY_PHASE_ATTACHED] = "attached",	[GANTRY_PHASE_RECOVERING] = "recovering",
		[GANTRY_PHASE_DETACHING] = "detaching", [GANTRY_PHASE_RESTORED] = "restored",
		[GANTRY_PHASE_HELD] = "held",
	};

	return names[phase];
}

/* One that nobody has adopted is held for that. */
static const char *state_of(const struct gantry_session *s)
{
	return s->unadopted && !s->conn ? "unadopted" : phase_name(s->phase);
}

static bool matches(const struct gantry_session *s, const Gantry__Admin__SessionFilter *filter)
{
	return s->ledger.hdr && (filter->session_id == 0 || filter->session_id == s->id) &&
	       (filter->tenant[0] == '\0' || strcmp(filter->tenant, s->tenant->conf.name) == 0);
}

static uint32_t open_queues(const struct gantry_session *s)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		n += s->ledger.queues[i].state != GANTRY_QUEUE_CLOSED;
	return n;
}

/* A channel that has ended wakes nobody: its guest polls. */
static const char *channel_name(const struct gantry_session *s)
{
	struct gantry_doormem_desk line;
	const char *name = NULL;

	if (gantry_doormem_claim_of(s, &line))
		name = gantry_channel_name(s->doormem, line.wake_vector);
	return name ? name : "poll";
}

static const char *wake_name(const struct gantry_session *s)
{
	static const char *const names[] = {
		[GANTRY_SESSION_WAKE_FUTEX] = "futex",
		[GANTRY_SESSION_WAKE_NONE] = "poll",
		[GANTRY_SESSION_WAKE_EVENTFD] = "eventfd",
	};

	if (s->wake == GANTRY_SESSION_WAKE_SOCKET)
		return channel_name(s);
	return s->doormem && s->wake == GANTRY_SESSION_WAKE_EVENTFD ? "msix" : names[s->wake];
}

static const char *mapping_name(uint32_t mapping)
{
	static const char *const names[] = {
		[GANTRY_MAPPING_UNKNOWN] = "unknown",
		[GANTRY_MAPPING_RESOURCE] = "resource",
		[GANTRY_MAPPING_RESOURCE_WC] = "resource_wc",
		[GANTRY_MAPPING_DEVMEM] = "devmem",
		[GANTRY_MAPPING_VFIO] = "vfio",
	};

	return mapping < GANTRY_ARRAY_SIZE(names) ? names[mapping] : "unknown";
}

static void list_desk(const struct gantry_session *s, Gantry__Admin__Session *msg,
		      struct gantry_answer *r)
{
	struct gantry_doormem_desk line;

	msg->mapping = gantry_answer_text(r, "");
	if (!gantry_doormem_claim_of(s, &line))
		return;
	msg->mapping = gantry_answer_text(r, mapping_name(line.mapping));
	msg->read_mib_per_s = line.read_mib_per_s;
	msg->write_mib_per_s = line.write_mib_per_s;
	msg->machine = s->doormem->id;
	msg->desk = s->desk;
}

static void list_missing(const struct gantry_session *s, Gantry__Admin__Session *msg,
			 struct gantry_answer *r)
{
	msg->missing = gantry_answer_take(r, s->nmissing * sizeof(*msg->missing));
	for (uint32_t i = 0; i < s->nmissing; i++) {
		Gantry__Admin__Missing *line = gantry_answer_take(r, sizeof(*line));

		gantry__admin__missing__init(line);
		line->name = gantry_answer_text(r, s->missing[i].name);
		line->calls = s->missing[i].calls;
		msg->missing[msg->n_missing++] = line;
	}
}

static Gantry__Admin__Session *list_session(const struct gantry_session *s, struct gantry_answer *r)
{
	const struct gantry_ledger_header *hdr = s->ledger.hdr;
	Gantry__Admin__Session *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__session__init(msg);
	msg->session_id = s->id;
	msg->tenant = gantry_answer_text(r, s->tenant->conf.name);
	msg->program = gantry_answer_text(r, s->program);
	msg->pid = (uint32_t)s->pid;
	msg->uid = s->uid;
	msg->worker_id = s->worker ? s->worker->id : 0;
	msg->worker_pid = s->worker ? (uint32_t)s->worker->pid : 0;
	msg->mode = gantry_answer_text(
		r, gantry_isolation_name(s->worker ? s->worker->class.mode
						   : gantry_tenant_mode(s->tenant)));
	msg->state = gantry_answer_text(r, state_of(s));
	msg->version = s->version;
	msg->epoch = hdr->epoch;
	msg->segment_bytes = s->shape.segment.segment_bytes;
	msg->virtual_used = gantry_load_relaxed(&hdr->virtual_used);
	msg->resident_used = gantry_load_relaxed(&hdr->resident_used);
	msg->resident_peak = gantry_load_relaxed(&hdr->resident_peak);
	msg->tasks_finished = gantry_load_relaxed(&hdr->tasks_finished);
	msg->tasks_failed = gantry_load_relaxed(&hdr->tasks_failed);
	msg->device_ns = gantry_load_relaxed(&hdr->device_ns);
	msg->queues = open_queues(s);
	msg->buffers = gantry_session_buffers(s);
	msg->replicas = gantry_session_replicas(s, &msg->replica_bytes);
	msg->moved_bytes = gantry_load_relaxed(&hdr->moved_bytes);
	msg->attached_unix_ns = s->attached_unix_ns;
	msg->worker_restarts = gantry_load_relaxed(&hdr->worker_restarts);
	msg->door = gantry_answer_text(r, s->conn ? s->conn->transport : "");
	msg->address = s->shape.address;
	msg->wakeup = gantry_answer_text(r, wake_name(s));
	list_desk(s, msg, r);
	list_missing(s, msg, r);
	msg->translated = gantry_session_translated(s) || gantry_session_guest_translated(s);
	return msg;
}

void gantry_verb_session_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			      struct gantry_answer *r)
{
	Gantry__Admin__SessionList *list = gantry_answer_take(r, sizeof(*list));

	gantry__admin__session_list__init(list);
	list->sessions =
		gantry_answer_take(r, gantry_list_count(&a->sessions) * sizeof(*list->sessions));
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (matches(s, q->session_list))
			list->sessions[list->n_sessions++] = list_session(s, r);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_SESSIONS;
	r->msg.sessions = list;
}

/* The guest's own number, for show: read once, and not mapped. */
static uint64_t guest_tail(const struct gantry_session *s, uint32_t slot)
{
	uint64_t off = s->segment_off + s->shape.segment.queues_off +
		       (uint64_t)slot * s->shape.segment.queue_stride_bytes +
		       offsetof(struct gantry_queue_area, tail);
	uint64_t tail = 0;

	return pread(s->segment_fd, &tail, sizeof(tail), (off_t)off) == sizeof(tail) ? tail : 0;
}

static Gantry__Admin__Queue *list_queue(const struct gantry_session *s, uint32_t slot,
					struct gantry_answer *r)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[slot];
	uint32_t device = gantry_load_relaxed(&led->device);
	Gantry__Admin__Queue *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__queue__init(msg);
	msg->session_id = s->id;
	msg->tenant = gantry_answer_text(r, s->tenant->conf.name);
	msg->slot = slot;
	msg->device = gantry_answer_text(
		r, device < s->agent->ndevices ? s->agent->devices[device].conf.name : "");
	msg->priority = gantry_load_relaxed(&led->priority);
	msg->paused = (gantry_load_relaxed(&led->paused) & 1u) != 0;
	msg->submitted = guest_tail(s, slot);
	msg->taken = gantry_load_relaxed(&led->taken);
	msg->issued = gantry_load_relaxed(&led->issued);
	msg->done = gantry_load_relaxed(&led->done);
	msg->failed = gantry_load_relaxed(&led->nfailed);
	msg->device_ns = gantry_load_relaxed(&led->device_ns);
	if (gantry_queue_lane(led))
		msg->lane = number(r, gantry_queue_lane(led) - 1);
	return msg;
}

void gantry_verb_queue_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	Gantry__Admin__QueueList *list = gantry_answer_take(r, sizeof(*list));
	size_t n = 0;

	gantry__admin__queue_list__init(list);
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		n += matches(s, q->queue_list) ? open_queues(s) : 0;
	list->queues = gantry_answer_take(r, n * sizeof(*list->queues));
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s) {
		if (!matches(s, q->queue_list))
			continue;
		/* A worker may open another in between: the count bounds the list. */
		for (uint32_t i = 1; i < s->ledger.nqueues && list->n_queues < n; i++)
			if (s->ledger.queues[i].state != GANTRY_QUEUE_CLOSED)
				list->queues[list->n_queues++] = list_queue(s, i, r);
	}
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_QUEUES;
	r->msg.queues = list;
}

/* ---- kernels ---- */

void gantry_verb_kernel_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			     struct gantry_answer *r)
{
	Gantry__Admin__KernelList *list = gantry_answer_take(r, sizeof(*list));

	(void)q;
	gantry__admin__kernel_list__init(list);
	gantry_kernels_list(a, r, list);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_KERNELS;
	r->msg.kernels = list;
}

/* ---- workers ---- */

/* Lines of @text as a list. */
static char **split(struct gantry_answer *r, const char *text, size_t *ret_n)
{
	char *copy = gantry_answer_text(r, text), *save = NULL;
	char **words;
	size_t n = 1;

	for (const char *p = text; *p; p++)
		n += *p == '\n';
	words = gantry_answer_take(r, n * sizeof(*words));
	n = 0;
	for (char *word = strtok_r(copy, "\n", &save); word; word = strtok_r(NULL, "\n", &save))
		words[n++] = word;
	*ret_n = n;
	return words;
}

static Gantry__Admin__Worker *list_worker(const struct gantry_worker *w, struct gantry_answer *r)
{
	static const char *const states[] = {
		[GANTRY_WORKER_STARTING] = "starting",
		[GANTRY_WORKER_WARM] = "warm",
		[GANTRY_WORKER_BUSY] = "busy",
		[GANTRY_WORKER_ENDING] = "ending",
	};
	Gantry__Admin__Worker *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__worker__init(msg);
	msg->worker_id = w->id;
	msg->pid = (uint32_t)w->pid;
	msg->mode = gantry_answer_text(r, w->class.mode == GANTRY_WORKER_STEWARD
						  ? "steward"
						  : gantry_isolation_name(w->class.mode));
	msg->trust_group = gantry_answer_text(r, gantry_net_is_wanted(w) ? "" : w->class.group);
	msg->compute_percent = w->class.percent;
	msg->mps_server = (uint32_t)gantry_mps_server(w);
	msg->mps_priority = w->class.mps_priority;
	msg->state = gantry_answer_text(r, states[w->state]);
	msg->sessions = w->nsessions;
	msg->version = gantry_answer_text(r, w->version);
	msg->other_build = gantry_renew_is_other(w);
	msg->looking = w->nrescans > 0;
	msg->confined = split(r, w->confined, &msg->n_confined);
	msg->unconfined = split(r, w->unconfined, &msg->n_unconfined);
	return msg;
}

void gantry_verb_worker_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			     struct gantry_answer *r)
{
	Gantry__Admin__WorkerList *list = gantry_answer_take(r, sizeof(*list));

	(void)q;
	gantry__admin__worker_list__init(list);
	list->workers = gantry_answer_take(r,
					   gantry_list_count(&a->workers) * sizeof(*list->workers));
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		list->workers[list->n_workers++] = list_worker(w, r);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_WORKERS;
	r->msg.workers = list;
}

/* ---- events ---- */

void gantry_event_message(const struct gantry_event_entry *e, Gantry__Admin__Event *msg)
{
	gantry__admin__event__init(msg);
	msg->unix_ns = e->unix_ns;
	msg->kind = (char *)(uintptr_t)e->kind;
	msg->tenant = (char *)(uintptr_t)e->tenant;
	msg->session_id = e->session_id;
	msg->worker_id = e->worker_id;
	msg->device = (char *)(uintptr_t)e->device;
	msg->text = (char *)(uintptr_t)e->text;
}

/* ---- doctor ---- */

#define DOCTOR_MAX 640u

static void check(struct gantry_answer *r, Gantry__Admin__Doctor *d, const char *name,
		  const char *state, const char *text, const char *advice)
{
	Gantry__Admin__Check *msg;

	if (d->n_checks == DOCTOR_MAX)
		return;
	msg = gantry_answer_take(r, sizeof(*msg));
	gantry__admin__check__init(msg);
	msg->name = gantry_answer_text(r, name);
	msg->state = gantry_answer_text(r, state);
	msg->text = gantry_answer_text(r, text);
	msg->advice = gantry_answer_text(r, advice);
	d->checks[d->n_checks++] = msg;
}

static void check_cgroups(struct gantry_agent *a, struct gantry_answer *r, Gantry__Admin__Doctor *d)
{
	char text[GANTRY_CGROUP_REASON * 4];
	bool all = gantry_limits_describe(a, text, sizeof(text));
	bool off = strcmp(a->config->agent.cgroup, "off") == 0;

	check(r, d, "worker cgroups", all || off ? "ok" : "warn", text,
	      all || off
		      ? ""
		      : "run gantryd as a service with Delegate=yes, on a host with cgroup v2 only; "
			"until then worker_cpu, worker_mem and worker_pids do not bind");
}

static void check_guard(struct gantry_agent *a, struct gantry_answer *r, Gantry__Admin__Doctor *d)
{
	const struct gantry_guard *g = &a->guard;

	check(r, d, "agent confinement", g->asked && !g->missing[0] ? "ok" : "warn",
	      !g->asked	      ? "switched off"
	      : g->missing[0] ? g->missing
			      : "no new privileges, few capabilities, a filter of system calls",
	      g->asked ? "" : "set confine = yes");
}

static void check_host(struct gantry_agent *a, struct gantry_answer *r, Gantry__Admin__Doctor *d)
{
	bool worker = access(a->args.worker_path, X_OK) == 0;
	bool groups = getgrnam("gantry") && getgrnam("gantry-admin");
	struct rlimit limit = { 0 };

	check(r, d, "monitor", a->monitor_fd >= 0 ? "ok" : "warn",
	      a->monitor_fd >= 0 ? "keeps the sessions' memory while the agent restarts"
				 : "there is none",
	      a->monitor_fd >= 0 ? "" : "start gantryd without --no-monitor");
	check(r, d, "worker program", worker ? "ok" : "fail", a->args.worker_path,
	      worker ? "" : "install gantry-worker, or start gantryd with --worker");
	check(r, d, "groups", groups ? "ok" : "warn",
	      groups ? "gantry and gantry-admin exist"
		     : "gantry or gantry-admin is missing: only root administers",
	      groups ? "" : "groupadd --system gantry; groupadd --system gantry-admin");
	check(r, d, "state directory",
	      access(a->args.state_dir, W_OK) == 0 || errno == ENOENT ? "ok" : "warn",
	      a->args.state_dir, "changes made with gantryctl are kept there");
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		check(r, d, "descriptors", limit.rlim_cur >= FDS_PER_SESSION * 1024 ? "ok" : "warn",
		      limit.rlim_cur >= FDS_PER_SESSION * 1024 ? "enough for 1024 sessions"
							       : "too few for 1024 sessions",
		      limit.rlim_cur >= FDS_PER_SESSION * 1024 ? "" : "raise LimitNOFILE");
	check_guard(a, r, d);
	check_cgroups(a, r, d);
	if (a->counters.journal_errors || a->counters.keep_errors)
		check(r, d, "journal", "warn", "what is alive could not always be written down",
		      "look for a full disk under the run directory");
}

static void check_devices(struct gantry_agent *a, struct gantry_answer *r, Gantry__Admin__Doctor *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->ndevices; i++) {
		const struct gantry_agent_device *dev = &a->devices[i];
		char name[64];

		if (!dev->used)
			continue;
		n++;
		/* it fits */
		(void)gantry_str_format(name, sizeof(name), "device %s", dev->conf.name);
		if (dev->state == GANTRY_DEVICE_FAILED)
			check(r, d, name, "fail", dev->reason,
			      "mend the device or its section, then gantryctl reload");
		else
			check(r, d, name, dev->state == GANTRY_DEVICE_ENABLED ? "ok" : "warn",
			      dev->state == GANTRY_DEVICE_ENABLED ? "serves"
								  : "taken out of service",
			      "");
	}
	if (n == 0)
		check(r, d, "devices", "fail", "none is configured",
		      "add a [device cpu0] with backend = cpu");
}

static void check_communicators(const struct gantry_tenant *t, struct gantry_answer *r,
				Gantry__Admin__Doctor *d)
{
	char name[GANTRY_CONFIG_NAME + 32];

	if (!t->conf.communicators)
		return;
	/* it fits */
	(void)gantry_str_format(name, sizeof(name), "communicators of %s", t->conf.name);
	if (gantry_net_serves(t))
		check(r, d, name, "ok", "its workers have a network of their own", "");
	else
		check(r, d, name, "fail", t->net.missing,
		      "run gantryd as root, or allow user namespaces; then gantryctl reload");
}

static void check_tenants(struct gantry_agent *a, struct gantry_answer *r, Gantry__Admin__Doctor *d)
{
	uint32_t n = 0;

	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
		char name[64];
		bool open = strcmp(t->state, "open") == 0;

		if (t->removed)
			continue;
		n++;
		/* it fits */
		(void)gantry_str_format(name, sizeof(name), "door of %s", t->conf.name);
		check(r, d, name, open ? "ok" : "fail", open ? t->door_path : t->state, "");
		check_communicators(t, r, d);
	}
	if (n == 0)
		check(r, d, "tenants", "warn", "none is configured",
		      "gantryctl tenant create NAME");
}

/* Reasons come a line each. */
static const char *one_line(struct gantry_answer *r, const char *lines)
{
	char *text = gantry_answer_text(r, lines);

	for (char *p = text; *p; p++)
		if (*p == '\n')
			*p = ';';
	return text;
}

static void check_workers(struct gantry_agent *a, struct gantry_answer *r, Gantry__Admin__Doctor *d)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w) {
		if (w->state == GANTRY_WORKER_STARTING || w->state == GANTRY_WORKER_ENDING)
			continue;
		check(r, d, "confinement", w->unconfined[0] ? "warn" : "ok",
		      w->unconfined[0] ? one_line(r, w->unconfined) : "workers are confined", "");
		return; /* all are alike */
	}
	check(r, d, "workers", a->spawn_failures ? "fail" : "ok",
	      a->spawn_failures ? "none could be started" : "none is running now",
	      a->spawn_failures ? "gantryctl events says why" : "");
}

void gantry_verb_doctor(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			struct gantry_answer *r)
{
	Gantry__Admin__Doctor *d = gantry_answer_take(r, sizeof(*d));

	(void)q;
	gantry__admin__doctor__init(d);
	d->checks = gantry_answer_take(r, DOCTOR_MAX * sizeof(*d->checks));
	check_host(a, r, d);
	check_devices(a, r, d);
	check_tenants(a, r, d);
	check_workers(a, r, d);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_DOCTOR;
	r->msg.doctor = d;
}
