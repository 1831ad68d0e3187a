/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs: who has which, the pools of those that nobody has, and the stewards' work on them. */
#include "host-agent/agent/slab.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/loan.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab_plan.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/control/packet.h"
#include "host-agent/monitor/store.h"
#include "proto/vocab.h"

#define STEWARD_NS	(30 * GANTRY_NS_PER_S) /* a slab of some GiB takes milliseconds */
#define ASKED_MAX	4u		       /* requests of one device at once */
#define PER_PACKET	64u
#define PER_SESSION	2048u
#define NEEDS_MAX	64u
#define TRIES_MAX	3u  /* a slab at which so many stewards died is given up */
#define UNITS_FOR_ONE	16u /* so many small slabs of the pool stand in for a large one */
#define SLACK_UNITS	16u
#define KEPT_POOL	"m/%u/%llx/%llx"
#define KEPT_DIRTY	"z/%u/%llx/%llx"
#define KEPT_OF_SESSION "s/%llx/m/"
#define LENT_MAX	1024u /* of the host: the monitor has each twice */
#define LENT_PER_TENANT (LENT_MAX / 4)

enum slab_state {
	SLAB_WANTED, /* a session's: to be made */
	SLAB_MAKING,
	SLAB_HELD, /* a session's */
	SLAB_CLEAN,
	SLAB_DIRTY,
	SLAB_SCRUBBING,
};

struct gantry_slab {
	struct gantry_list link;      /* of its session, or of the pool as its state says */
	struct gantry_list todo_link; /* pool->wanted */
	struct gantry_agent *agent;
	struct gantry_session *session;
	uint32_t device;
	enum slab_state state;
	uint32_t ntries;
	uint64_t off;
	uint64_t bytes;
	uint64_t serial;
	int fd;
	bool fresh; /* the session's, and no worker has had it */
	bool lent;  /* other sessions may have it mapped: it is never anybody else's */
};

/* A worker's NeedSlabs that waits for some slab to be made. */
struct need {
	struct gantry_list link; /* session->needs */
	uint32_t device;
	int status;
	uint64_t off;
	uint64_t bytes;
};

static struct gantry_slab_pool *pool_of(const struct gantry_slab *slab)
{
	return &slab->agent->pools[slab->device];
}

static bool overlap(uint64_t off, uint64_t bytes, uint64_t off2, uint64_t bytes2)
{
	return off < off2 + bytes2 && off2 < off + bytes;
}

/* ---- limits ---- */

/* As many as leave room for guests: the monitor has each of them too, and a restarted agent gets all at once. */
static uint32_t host_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > GANTRY_STORE_MAX)
		return GANTRY_STORE_MAX / 2;
	return (uint32_t)(limit.rlim_cur / 4);
}

static uint32_t host_slabs(const struct gantry_agent *a)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++)
		n += a->pools[i].nslabs;
	return n;
}

/* Those that sessions have, or are about to: the others are ready, or will be soon, and give way. */
static uint32_t host_session_slabs(const struct gantry_agent *a)
{
	size_t n = host_slabs(a);

	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++)
		n -= gantry_list_count(&a->pools[i].clean) + gantry_list_count(&a->pools[i].dirty) +
		     gantry_list_count(&a->pools[i].asked);
	return (uint32_t)n;
}

/*
 * A session that makes room drops slabs and asks for others before the steward has cleared the first. So these do not
 * count against what sessions may have; for all together there is twice as much.
 */
static bool has_descriptors(const struct gantry_agent *a, uint32_t n)
{
	return host_session_slabs(a) + n <= host_max() && host_slabs(a) + n <= 2 * host_max();
}

/*
 * Workers charge bytes that are handed out, exactly. What slabs have beyond that, because buffers do not fill them, is
 * bounded here, so that a worker that was taken over cannot hoard.
 */
static uint64_t with_slack(uint64_t limit, uint64_t align)
{
	uint64_t slack = limit / 8 + SLACK_UNITS * align;

	return limit > UINT64_MAX - slack ? UINT64_MAX : limit + slack;
}

bool gantry_slabs_any(const struct gantry_session *s, uint32_t device)
{
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab)
		if (slab->device == device)
			return true;
	return false;
}

uint64_t gantry_slabs_of(const struct gantry_session *s, uint32_t *ret_n)
{
	uint64_t bytes = 0;
	uint32_t n = 0;

	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		bytes += slab->bytes;
		n++;
	}
	if (ret_n)
		*ret_n = n;
	return bytes;
}

/* Slabs of a session, or of all sessions of a tenant. */
struct held {
	uint64_t here; /* bytes on the device that more are wanted of */
	uint64_t all;
	uint32_t n;
};

static void add_held(const struct gantry_session *s, uint32_t device, struct held *held)
{
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		held->here += slab->device == device ? slab->bytes : 0;
		held->all += slab->bytes;
		held->n++;
	}
}

static struct held tenant_held(const struct gantry_tenant *t, uint32_t device)
{
	struct held held = { 0 };

	held.here = gantry_loans_held(t, device, &held.all);

	gantry_list_for_each(&t->agent->sessions, struct gantry_session, link, s)
		if (s->tenant == t)
			add_held(s, device, &held);
	return held;
}

/*
 * What moves from one device to another has slabs on both until the last byte is there: so the limit is one for each
 * device, and all together may have twice as much.
 */
static bool within(const struct held *held, uint64_t more, uint64_t limit, uint64_t align)
{
	uint64_t most = with_slack(limit, align);

	if (more > most || held->here > most - more)
		return false;
	return most > UINT64_MAX / 2 || (more <= 2 * most && held->all <= 2 * most - more);
}

static uint64_t device_limit(const struct gantry_agent_device *d)
{
	return d->mem_bytes ? d->mem_bytes + SLACK_UNITS * d->slab_align : UINT64_MAX;
}

/* May @s have @n more slabs of @bytes together on @device? 0, or a status with a sentence. */
static int check_limits(const struct gantry_session *s, uint32_t device, uint32_t n, uint64_t bytes,
			struct gantry_err *err)
{
	const struct gantry_agent_device *d = &s->agent->devices[device];
	const struct gantry_slab_pool *pool = &s->agent->pools[device];
	struct held tenant = tenant_held(s->tenant, device);
	struct held own = { 0 };

	add_held(s, device, &own);
	if (own.n + n > PER_SESSION)
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "a session has at most %u slabs; it allocates too many small "
				      "buffers far apart",
				      PER_SESSION);
	if (!has_descriptors(s->agent, n))
		return gantry_err_set(
			err, GANTRY_E_NO_MEMORY,
			"the host has no descriptor left for %u more slabs beside %u; "
			"raise LimitNOFILE",
			n, host_slabs(s->agent));
	if (!within(&own, bytes, s->shape.mem_bytes, d->slab_align))
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "slabs of %" PRIu64 " and %" PRIu64
				      " bytes are more than the session may have of %" PRIu64,
				      own.here, bytes, s->shape.mem_bytes);
	if (!within(&tenant, bytes, s->tenant->conf.mem_bytes, d->slab_align))
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "tenant %s has slabs of %" PRIu64 " bytes of %" PRIu64
				      " allowed; %" PRIu64 " more are too many",
				      s->tenant->conf.name, tenant.here, s->tenant->conf.mem_bytes,
				      bytes);
	if (bytes > device_limit(d) || pool->session_bytes > device_limit(d) - bytes)
		return gantry_err_set(err, GANTRY_E_NO_MEMORY,
				      "device %s has %" PRIu64 " of %" PRIu64
				      " bytes in use; %" PRIu64 " more do not fit",
				      d->conf.name, pool->session_bytes, d->mem_bytes, bytes);
	return GANTRY_OK;
}

int gantry_slabs_room(const struct gantry_tenant *t, struct gantry_err *err)
{
	const struct gantry_agent *a = t->agent;
	uint64_t mask = t->device_mask & gantry_devices_serving(a);
	const struct gantry_agent_device *full = NULL;

	for (uint32_t i = 0; i < a->ndevices; i++) {
		const struct gantry_agent_device *d = &a->devices[i];
		const struct gantry_slab_pool *pool = &a->pools[i];

		if (!(mask >> i & 1))
			continue;
		if (d->slab_align == 0 ||
		    (!pool->is_short && !d->no_room &&
		     (d->mem_bytes == 0 || pool->session_bytes + d->slab_align <= d->mem_bytes)))
			return 0;
		full = d;
	}
	if (!full)
		return 0;
	return gantry_err_set(err, -ENOSPC, "device %s has no memory for another session",
			      full->conf.name);
}

/* ---- slabs ---- */

static struct gantry_slab *new_slab(struct gantry_agent *a, uint32_t device, uint64_t bytes, int fd)
{
	struct gantry_slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return NULL;
	slab->agent = a;
	slab->device = device;
	slab->bytes = bytes;
	slab->fd = fd;
	slab->serial = a->next_slab++;
	gantry_list_init(&slab->link);
	gantry_list_init(&slab->todo_link);
	a->pools[device].nslabs++;
	return slab;
}

/* The memory goes with the last descriptor: the monitor's copy too, whose name was dropped. */
static void free_slab(struct gantry_slab *slab)
{
	pool_of(slab)->nslabs--;
	gantry_list_remove(&slab->link);
	gantry_list_remove(&slab->todo_link);
	gantry_fd_close(slab->fd);
	free(slab);
}

static void keep(struct gantry_slab *slab, const char *fmt)
{
	char name[GANTRY_MONITOR_NAME_MAX];

	(void)gantry_str_format(name, sizeof(name), "%s%u/%llx/%llx", fmt, slab->device,
				(unsigned long long)slab->bytes, /* it fits */
				(unsigned long long)slab->serial);
	gantry_keep(slab->agent, slab->fd, "%s", name);
}

static void drop(struct gantry_slab *slab, const char *fmt)
{
	gantry_keep_drop(slab->agent, "%s%u/%llx/%llx", fmt, slab->device,
			 (unsigned long long)slab->bytes, (unsigned long long)slab->serial);
}

/* In the order of devices and offsets. */
static void give_to(struct gantry_slab *slab, struct gantry_session *s, uint64_t off)
{
	struct gantry_list *at = &s->slabs;

	slab->session = s;
	slab->off = off;
	slab->fresh = true;
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, other) {
		if (other->device > slab->device ||
		    (other->device == slab->device && other->off > off)) {
			at = &other->link;
			break;
		}
	}
	gantry_list_remove(&slab->link);
	gantry_list_insert_before(at, &slab->link);
	pool_of(slab)->session_bytes += slab->bytes;
}

static void hold(struct gantry_slab *slab)
{
	slab->state = SLAB_HELD;
	gantry_keep(slab->agent, slab->fd, GANTRY_KEPT_SLAB, (unsigned long long)slab->session->id,
		    slab->device, (unsigned long long)slab->off, (unsigned long long)slab->bytes);
}

static void into_pool(struct gantry_slab *slab)
{
	struct gantry_slab_pool *pool = pool_of(slab);

	slab->state = SLAB_CLEAN;
	gantry_list_remove(&slab->link);
	gantry_list_push_back(&pool->clean, &slab->link);
	pool->clean_bytes += slab->bytes;
	keep(slab, "m/");
}

static void out_of_pool(struct gantry_slab *slab)
{
	struct gantry_slab_pool *pool = pool_of(slab);

	drop(slab, "m/");
	gantry_list_remove(&slab->link);
	pool->clean_bytes -= slab->bytes;
}

static void into_dirty(struct gantry_slab *slab)
{
	struct gantry_slab_pool *pool = pool_of(slab);

	slab->session = NULL;
	slab->state = SLAB_DIRTY;
	gantry_list_remove(&slab->link);
	gantry_list_push_back(&pool->dirty, &slab->link);
	pool->dirty_bytes += slab->bytes;
	keep(slab, "z/");
	/* Whoever waits for memory tries again. */
	pool->is_short = pool->is_short && !gantry_list_is_empty(&pool->wanted);
	gantry_devices_room_again(slab->agent);
}

/* Of the pool, what lies in slabs of the smallest size. */
static uint64_t unit_bytes(const struct gantry_slab_pool *pool, uint64_t unit)
{
	uint64_t bytes = 0;

	gantry_list_for_each(&pool->clean, struct gantry_slab, link, slab)
		bytes += slab->bytes == unit ? unit : 0;
	return bytes;
}

static void release_clean(struct gantry_slab_pool *pool)
{
	gantry_list_for_each_safe(&pool->clean, struct gantry_slab, link, slab) {
		out_of_pool(slab);
		free_slab(slab);
	}
}

static uint64_t pool_limit(const struct gantry_agent_device *d)
{
	if (!d->used || d->state == GANTRY_DEVICE_FAILED)
		return 0;
	return d->mem_bytes ? GANTRY_MIN(d->conf.slab_pool_bytes, d->mem_bytes / 4)
			    : d->conf.slab_pool_bytes;
}

/* ---- answers to workers ---- */

struct packet {
	Gantry__Worker__ToWorker msg;
	Gantry__Worker__GiveSlabs give;
	Gantry__Worker__Slab slabs[PER_PACKET];
	Gantry__Worker__Slab *list[PER_PACKET];
	int fds[PER_PACKET];
};

static void begin_packet(struct packet *p, const struct gantry_session *s, const struct need *n)
{
	gantry__worker__to_worker__init(&p->msg);
	gantry__worker__give_slabs__init(&p->give);
	p->msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_GIVE_SLABS;
	p->msg.give_slabs = &p->give;
	p->give.session_id = s->id;
	p->give.device = n->device;
	p->give.off = n->off;
	p->give.bytes = n->bytes;
	p->give.slabs = p->list;
}

static void add_slab(struct packet *p, struct gantry_slab *slab)
{
	size_t i = p->give.n_slabs++;

	gantry__worker__slab__init(&p->slabs[i]);
	p->slabs[i].off = slab->off;
	p->slabs[i].bytes = slab->bytes;
	p->slabs[i].fresh = slab->fresh;
	slab->fresh = false;
	p->list[i] = &p->slabs[i];
	p->fds[i] = slab->fd;
}

static int send_packet(struct gantry_session *s, struct packet *p)
{
	/* -EPIPE: it is dead, and its successor asks anew. */
	return gantry_call(s->worker, &p->msg, p->fds, (unsigned int)p->give.n_slabs, 0, NULL,
			   NULL);
}

/* All that the session has in the range, in as many packets as the descriptors take. */
static void answer(struct gantry_session *s, const struct need *n, int status)
{
	struct packet p;

	if (!s->worker)
		return;
	begin_packet(&p, s, n);
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		if (slab->device != n->device || slab->state != SLAB_HELD ||
		    !overlap(slab->off, slab->bytes, n->off, n->bytes))
			continue;
		if (p.give.n_slabs == PER_PACKET) {
			if (send_packet(s, &p) < 0)
				return;
			begin_packet(&p, s, n);
		}
		add_slab(&p, slab);
	}
	p.give.last = true;
	p.give.status = status;
	(void)send_packet(s, &p); /* as above */
}

static bool complete(const struct gantry_session *s, const struct need *n)
{
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab)
		if (slab->device == n->device && slab->state != SLAB_HELD &&
		    overlap(slab->off, slab->bytes, n->off, n->bytes))
			return false;
	return true;
}

static void free_need(struct gantry_session *s, struct need *n)
{
	gantry_list_remove(&n->link);
	s->nneeds--;
	free(n);
}

static void answer_complete(struct gantry_session *s)
{
	gantry_list_for_each_safe(&s->needs, struct need, link, n) {
		if (!complete(s, n))
			continue;
		answer(s, n, n->status);
		free_need(s, n);
	}
}

/* A slab that a session wants cannot be had: who waits for it is told once the rest is settled. */
static void give_up(struct gantry_slab *slab, int status, const char *text)
{
	struct gantry_session *s = slab->session;

	gantry_list_for_each(&s->needs, struct need, link, n)
		if (n->device == slab->device && overlap(slab->off, slab->bytes, n->off, n->bytes))
			n->status = status;
	pool_of(slab)->nrefused++;
	pool_of(slab)->session_bytes -= slab->bytes;
	gantry_event(slab->agent, "slab-refused", NULL, s, NULL, "device %s, %" PRIu64 " bytes: %s",
		     slab->agent->devices[slab->device].conf.name, slab->bytes, text);
	free_slab(slab);
	answer_complete(s);
}

/* ---- the steward's work ---- */

static void pump(struct gantry_agent *a, uint32_t device);

/* Guests that wait for room on a device look again. */
static void room_again(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->tenants, struct gantry_tenant, link, t)
		if (!gantry_list_is_empty(&t->waiting))
			gantry_conn_next(t);
}

/* A slab that was being made is not there: again, or never. */
static void not_made(struct gantry_slab *slab, int status, const char *text)
{
	struct gantry_slab_pool *pool = pool_of(slab);
	bool elsewhere = !gantry_list_is_empty(&pool->clean) ||
			 !gantry_list_is_empty(&pool->dirty) || pool->nasked > 0;

	if (status == GANTRY_E_NO_MEMORY)
		pool->is_short = true;
	if (!slab->session) {
		pool->making_bytes -= slab->bytes;
		free_slab(slab);
		return;
	}
	if ((status == GANTRY_E_NO_MEMORY && elsewhere) ||
	    (status == GANTRY_E_AGAIN && ++slab->ntries < TRIES_MAX)) {
		release_clean(pool);
		slab->state = SLAB_WANTED;
		gantry_list_push_front(&pool->wanted, &slab->todo_link);
		return;
	}
	give_up(slab, status, text);
}

static void was_made(struct gantry_slab *slab, int fd)
{
	struct gantry_slab_pool *pool = pool_of(slab);

	slab->fd = fd;
	pool->nmade++;
	pool->is_short = false;
	if (!slab->session) {
		pool->making_bytes -= slab->bytes;
		into_pool(slab);
		return;
	}
	hold(slab);
	answer_complete(slab->session);
}

/* It did not answer in time, or is dead already. */
static void end_steward(struct gantry_agent *a, uint32_t device)
{
	struct gantry_worker *steward = gantry_steward_find(a, device);

	if (!steward)
		return;
	steward->state = GANTRY_WORKER_ENDING;
	gantry_worker_kill(steward);
}

static void made(void *arg, const Gantry__Worker__FromWorker *said, int fd)
{
	struct gantry_slab *slab = arg;
	struct gantry_agent *a = slab->agent;
	uint32_t device = slab->device;
	const Gantry__Worker__SlabMade *msg = NULL;

	pool_of(slab)->nasked--;
	if (said && said->body_case == GANTRY__WORKER__FROM_WORKER__BODY_SLAB_MADE)
		msg = said->slab_made;
	if (msg && msg->status == GANTRY_OK && fd >= 0) {
		was_made(slab, fd);
	} else {
		gantry_fd_close(fd);
		if (!said)
			end_steward(a, device);
		if (!said)
			not_made(slab, GANTRY_E_AGAIN, "the steward died again and again");
		else
			not_made(slab,
				 gantry_status_of_worker(msg ? msg->status : 0, GANTRY_E_INTERNAL),
				 msg ? msg->text : "the steward answered with something else");
	}
	pump(a, device);
}

static void scrubbed(void *arg, const Gantry__Worker__FromWorker *said, int fd)
{
	struct gantry_slab *slab = arg;
	struct gantry_agent *a = slab->agent;
	uint32_t device = slab->device;
	struct gantry_slab_pool *pool = pool_of(slab);
	const Gantry__Worker__Done *done = NULL;

	gantry_fd_close(fd);
	pool->nasked--;
	if (said && said->body_case == GANTRY__WORKER__FROM_WORKER__BODY_DONE)
		done = said->done;
	if (!said)
		end_steward(a, device);
	if (!done && ++slab->ntries < TRIES_MAX) {
		slab->state = SLAB_DIRTY;
		gantry_list_remove(&slab->link);
		gantry_list_push_front(&pool->dirty, &slab->link);
		pump(a, device);
		return;
	}
	pool->dirty_bytes -= slab->bytes;
	drop(slab, "z/");
	if (done && done->status == GANTRY_OK) {
		pool->scrubbed_bytes += slab->bytes;
	} else {
		gantry_event(a, "scrub-failed", NULL, NULL, NULL,
			     "device %s: a slab of %" PRIu64
			     " bytes is given back to the driver: %s",
			     a->devices[device].conf.name, slab->bytes,
			     done ? done->text : "the steward died again and again");
		free_slab(slab);
		pump(a, device);
		return;
	}
	slab->ntries = 0;
	if (pool->is_short || pool->clean_bytes + slab->bytes > pool_limit(&a->devices[device]))
		free_slab(slab);
	else
		into_pool(slab);
	pump(a, device);
	room_again(a);
}

static int ask_make(struct gantry_worker *steward, struct gantry_slab *slab)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__MakeSlab make = GANTRY__WORKER__MAKE_SLAB__INIT;

	make.device = slab->device;
	make.bytes = slab->bytes;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_MAKE_SLAB;
	msg.make_slab = &make;
	return gantry_call(steward, &msg, NULL, 0, STEWARD_NS, made, slab);
}

static int ask_scrub(struct gantry_worker *steward, struct gantry_slab *slab)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__ScrubSlab scrub = GANTRY__WORKER__SCRUB_SLAB__INIT;

	scrub.device = slab->device;
	scrub.bytes = slab->bytes;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_SCRUB_SLAB;
	msg.scrub_slab = &scrub;
	return gantry_call(steward, &msg, &slab->fd, 1, STEWARD_NS, scrubbed, slab);
}

static int make_wanted(struct gantry_worker *steward, struct gantry_slab_pool *pool)
{
	struct gantry_slab *slab = gantry_list_entry(pool->wanted.next, struct gantry_slab,
						     todo_link);
	int r = ask_make(steward, slab);

	if (r < 0)
		return r;
	slab->state = SLAB_MAKING;
	gantry_list_remove(&slab->todo_link);
	pool->nasked++;
	return 0;
}

static int scrub_dirty(struct gantry_worker *steward, struct gantry_slab_pool *pool)
{
	struct gantry_slab *slab = gantry_list_entry(pool->dirty.next, struct gantry_slab, link);
	int r = ask_scrub(steward, slab);

	if (r < 0)
		return r;
	slab->state = SLAB_SCRUBBING;
	gantry_list_remove(&slab->link);
	gantry_list_push_back(&pool->asked, &slab->link);
	pool->nasked++;
	return 0;
}

/* The pool is warm when half of what it may hold lies ready in the smallest size. */
static bool wants_more(const struct gantry_agent *a, uint32_t device)
{
	const struct gantry_agent_device *d = &a->devices[device];
	const struct gantry_slab_pool *pool = &a->pools[device];
	uint64_t limit = pool_limit(d);
	uint64_t unit = d->slab_align;

	return !a->stopping && !pool->is_short && d->state == GANTRY_DEVICE_ENABLED &&
	       unit_bytes(pool, unit) + pool->making_bytes + unit <= limit / 2 &&
	       pool->clean_bytes + pool->making_bytes + unit <= limit &&
	       host_slabs(a) + 1 <= host_max() / 2 &&
	       pool->session_bytes + pool->clean_bytes + pool->dirty_bytes + pool->making_bytes +
			       unit <=
		       device_limit(d);
}

static int fill_pool(struct gantry_agent *a, struct gantry_worker *steward, uint32_t device)
{
	struct gantry_slab_pool *pool = &a->pools[device];
	struct gantry_slab *slab = new_slab(a, device, a->devices[device].slab_align, -EBADF);
	int r = slab ? ask_make(steward, slab) : -ENOMEM;

	if (r < 0) {
		if (slab)
			free_slab(slab);
		return r;
	}
	slab->state = SLAB_MAKING;
	gantry_list_push_back(&pool->asked, &slab->link);
	pool->making_bytes += slab->bytes;
	pool->nasked++;
	return 0;
}

static int ask_next(struct gantry_agent *a, struct gantry_worker *steward, uint32_t device)
{
	struct gantry_slab_pool *pool = &a->pools[device];
	bool dirty = !gantry_list_is_empty(&pool->dirty);
	bool wanted = !gantry_list_is_empty(&pool->wanted);

	/* Without room for more, only what is scrubbed and given back can make some. */
	if (wanted && pool->is_short && (dirty || pool->nasked > 0))
		return dirty ? scrub_dirty(steward, pool) : -EAGAIN;
	if (wanted)
		return make_wanted(steward, pool);
	if (dirty)
		return scrub_dirty(steward, pool);
	return wants_more(a, device) ? fill_pool(a, steward, device) : -EAGAIN;
}

static void pump(struct gantry_agent *a, uint32_t device)
{
	struct gantry_worker *steward = gantry_steward_find(a, device);

	while (steward && a->pools[device].nasked < ASKED_MAX)
		if (ask_next(a, steward, device) < 0)
			return;
}

void gantry_slabs_pump(struct gantry_agent *a)
{
	for (uint32_t i = 0; i < a->ndevices; i++)
		pump(a, i);
}

/* ---- what workers ask ---- */

/* A slab of exactly @bytes from the pool. */
static struct gantry_slab *take_clean(struct gantry_slab_pool *pool, uint64_t bytes)
{
	gantry_list_for_each(&pool->clean, struct gantry_slab, link, slab)
		if (slab->bytes == bytes) {
			out_of_pool(slab);
			return slab;
		}
	return NULL;
}

static bool hold_clean(struct gantry_session *s, uint32_t device, uint64_t off, uint64_t bytes)
{
	struct gantry_slab *slab = take_clean(&s->agent->pools[device], bytes);

	if (!slab)
		return false;
	give_to(slab, s, off);
	hold(slab);
	return true;
}

/* A large piece from small slabs, where the pool has enough: sooner than the steward could. */
static bool hold_units(struct gantry_session *s, uint32_t device,
		       const struct gantry_slab_place *piece)
{
	uint64_t unit = s->agent->devices[device].slab_align;

	if (piece->bytes > UNITS_FOR_ONE * unit ||
	    unit_bytes(&s->agent->pools[device], unit) < piece->bytes)
		return false;
	for (uint64_t at = 0; at < piece->bytes; at += unit)
		(void)hold_clean(s, device, piece->off + at, unit); /* the pool has them all */
	return true;
}

static int want(struct gantry_session *s, uint32_t device, const struct gantry_slab_place *piece)
{
	struct gantry_slab *slab;

	if (hold_clean(s, device, piece->off, piece->bytes) || hold_units(s, device, piece))
		return 0;
	slab = new_slab(s->agent, device, piece->bytes, -EBADF);
	if (!slab)
		return -ENOMEM;
	slab->state = SLAB_WANTED;
	give_to(slab, s, piece->off);
	gantry_list_push_back(&pool_of(slab)->wanted, &slab->todo_link);
	return 0;
}

/* Pools stand back where sessions need the room that the device's limit leaves. */
static void make_room(struct gantry_agent *a, uint32_t device, uint64_t bytes)
{
	struct gantry_slab_pool *pool = &a->pools[device];
	uint64_t others = pool->session_bytes + pool->dirty_bytes + pool->making_bytes;

	if (others + pool->clean_bytes + bytes <= device_limit(&a->devices[device]))
		return;
	gantry_list_for_each_safe(&pool->clean, struct gantry_slab, link, slab) {
		if (slab->bytes == bytes)
			continue; /* it is what is asked for */
		out_of_pool(slab);
		free_slab(slab);
	}
}

static uint32_t plan(const struct gantry_session *s, const struct need *n,
		     struct gantry_slab_place *places)
{
	static struct gantry_slab_place have[PER_SESSION]; /* static: large */
	uint32_t nhave = 0;

	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab)
		if (slab->device == n->device && nhave < PER_SESSION)
			have[nhave++] = (struct gantry_slab_place){ slab->off, slab->bytes };
	return gantry_slab_plan(have, nhave, n->off, n->bytes,
				s->agent->devices[n->device].slab_align, places, PER_SESSION);
}

/* Slabs, there or wanted, behind all of the range: 0, or a status with a sentence. */
static int cover(struct gantry_session *s, const struct need *n, struct gantry_err *err)
{
	static struct gantry_slab_place places[PER_SESSION]; /* static: large */
	uint32_t nplaces = plan(s, n, places);
	uint64_t bytes = 0;
	int r;

	if (nplaces > PER_SESSION)
		return gantry_err_set(err, GANTRY_E_LIMIT, "the range takes more than %u slabs",
				      PER_SESSION);
	for (uint32_t i = 0; i < nplaces; i++)
		bytes += places[i].bytes;
	if (nplaces == 0)
		return GANTRY_OK;
	r = check_limits(s, n->device, nplaces, bytes, err);
	if (r != GANTRY_OK)
		return r;
	make_room(s->agent, n->device, bytes);
	for (uint32_t i = 0; i < nplaces; i++)
		if (want(s, n->device, &places[i]) < 0)
			return gantry_err_set(err, GANTRY_E_NO_MEMORY,
					      "no memory for a slab's name");
	return GANTRY_OK;
}

static int check_need(const struct gantry_session *s, const struct need *n, struct gantry_err *err)
{
	const struct gantry_agent *a = s->agent;
	const struct gantry_agent_device *d;

	if (n->device >= a->ndevices)
		return gantry_err_set(err, GANTRY_E_ARG, "there is no device %u", n->device);
	d = &a->devices[n->device];
	if (!gantry_slab_range_valid(n->off, n->bytes, d->slab_align, s->shape.slab_bytes))
		return gantry_err_set(err, GANTRY_E_ARG,
				      "[%" PRIu64 ", +%" PRIu64 ") is no range of its window",
				      n->off, n->bytes);
	if (!(s->tenant->device_mask >> n->device & 1))
		return gantry_err_set(err, GANTRY_E_NO_DEVICE, "the tenant may not use device %s",
				      d->conf.name);
	if (!d->used || d->state == GANTRY_DEVICE_FAILED)
		return gantry_err_set(err, GANTRY_E_NO_DEVICE, "device %s does not serve",
				      d->conf.name);
	if (s->nneeds >= NEEDS_MAX)
		return gantry_err_set(err, GANTRY_E_AGAIN, "%u requests for slabs wait already",
				      NEEDS_MAX);
	return GANTRY_OK;
}

void gantry_slabs_need(struct gantry_worker *w, const Gantry__Worker__NeedSlabs *msg)
{
	struct gantry_session *s = gantry_session_find(w->agent, msg->session_id);
	struct gantry_err err = GANTRY_ERR_NONE;
	struct need like = { .device = msg->device, .off = msg->off, .bytes = msg->bytes };
	struct need *n;
	int status;

	if (!s || s->worker != w || s->phase == GANTRY_PHASE_DETACHING)
		return;
	status = check_need(s, &like, &err);
	if (status == GANTRY_OK)
		status = cover(s, &like, &err);
	n = status == GANTRY_OK ? malloc(sizeof(*n)) : NULL;
	if (!n) {
		if (like.device < w->agent->ndevices)
			w->agent->pools[like.device].nrefused++;
		gantry_event(w->agent, "slab-refused", NULL, s, w, "%s",
			     err.text[0] ? err.text : "the host is out of memory");
		answer(s, &like, status ? status : GANTRY_E_NO_MEMORY);
		return;
	}
	*n = like;
	gantry_list_init(&n->link);
	gantry_list_push_back(&s->needs, &n->link);
	s->nneeds++;
	answer_complete(s);
	pump(w->agent, like.device);
}

/* The driver has it back when the last who has it mapped lets go, and clears it for nobody: the next slab is cleared when it is made. */
static void let_out(struct gantry_slab *slab)
{
	struct gantry_agent *a = slab->agent;
	const struct gantry_lent lent = { slab->session->id, slab->device, slab->off, slab->bytes };

	gantry_keep_drop(a, GANTRY_KEPT_LENT, (unsigned long long)lent.owner, lent.device,
			 (unsigned long long)lent.off, (unsigned long long)lent.bytes);
	pool_of(slab)->is_short = pool_of(slab)->is_short &&
				  !gantry_list_is_empty(&pool_of(slab)->wanted);
	free_slab(slab);
	gantry_loans_orphan(a, &lent);
	gantry_devices_room_again(a);
}

/* A session's, which goes on without it. */
static void give_back(struct gantry_slab *slab)
{
	gantry_keep_drop(slab->agent, GANTRY_KEPT_SLAB, (unsigned long long)slab->session->id,
			 slab->device, (unsigned long long)slab->off,
			 (unsigned long long)slab->bytes);
	pool_of(slab)->session_bytes -= slab->bytes;
	if (slab->lent)
		let_out(slab);
	else
		into_dirty(slab);
}

void gantry_slabs_drop(struct gantry_worker *w, const Gantry__Worker__DropSlab *msg)
{
	struct gantry_session *s = gantry_session_find(w->agent, msg->session_id);

	if (!s || s->worker != w)
		return;
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		if (slab->device != msg->device || slab->off != msg->off ||
		    slab->bytes != msg->bytes || slab->state != SLAB_HELD)
			continue;
		give_back(slab);
		pump(w->agent, msg->device);
		return;
	}
}

/* ---- to other sessions ---- */

static uint32_t lent_of(const struct gantry_agent *a, const struct gantry_tenant *tenant)
{
	uint32_t n = 0;

	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (!tenant || s->tenant == tenant)
			gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab)
				n += slab->lent;
	return n;
}

static bool may_lend(const struct gantry_session *s, uint32_t n)
{
	return n == 0 || (lent_of(s->agent, s->tenant) + n <= LENT_PER_TENANT &&
			  lent_of(s->agent, NULL) + n <= LENT_MAX);
}

/* What a next agent does not hear of it would have cleared for somebody else. */
static int mark_lent(struct gantry_slab *slab)
{
	if (slab->lent)
		return GANTRY_OK;
	if (gantry_keep_surely(slab->agent, slab->fd, GANTRY_KEPT_LENT,
			       (unsigned long long)slab->session->id, slab->device,
			       (unsigned long long)slab->off, (unsigned long long)slab->bytes) < 0)
		return GANTRY_E_AGAIN;
	slab->lent = true;
	return GANTRY_OK;
}

/* The slabs behind @what; @ret_nnew of them were never lent. */
static int find_behind(const struct gantry_session *s, const struct gantry_lent *what,
		       struct gantry_slab **ret_slabs, uint32_t max, uint32_t *ret_n,
		       uint32_t *ret_nnew)
{
	uint64_t at = what->off, end = what->off + what->bytes;
	uint32_t n = 0;

	*ret_nnew = 0;
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		if (slab->device != what->device || slab->off + slab->bytes <= at || at >= end)
			continue;
		if (slab->off > at || slab->state != SLAB_HELD)
			return GANTRY_E_NOT_FOUND;
		if (n == max)
			return GANTRY_E_LIMIT;
		*ret_nnew += !slab->lent;
		ret_slabs[n++] = slab;
		at = slab->off + slab->bytes;
	}
	*ret_n = n;
	return at < end ? GANTRY_E_NOT_FOUND : GANTRY_OK;
}

int gantry_slabs_lend(struct gantry_session *s, const struct gantry_lent *what,
		      struct gantry_slab_lent *ret_slabs, uint32_t max, uint32_t *ret_n,
		      struct gantry_lent *ret_whole)
{
	struct gantry_slab *slabs[GANTRY_PACKET_MAX_FDS];
	uint32_t n, nnew;
	int status = find_behind(s, what, slabs, GANTRY_MIN(max, GANTRY_PACKET_MAX_FDS), &n, &nnew);

	if (status == GANTRY_OK && !may_lend(s, nnew))
		status = GANTRY_E_LIMIT;
	for (uint32_t i = 0; status == GANTRY_OK && i < n; i++) {
		status = mark_lent(slabs[i]);
		ret_slabs[i] = (struct gantry_slab_lent){ slabs[i]->off, slabs[i]->bytes,
							  slabs[i]->fd };
	}
	if (status != GANTRY_OK)
		return status;
	*ret_n = n;
	*ret_whole = *what;
	ret_whole->off = slabs[0]->off;
	ret_whole->bytes = slabs[n - 1]->off + slabs[n - 1]->bytes - slabs[0]->off;
	return GANTRY_OK;
}

/* ---- ends ---- */

static void forget_needs(struct gantry_session *s)
{
	gantry_list_for_each_safe(&s->needs, struct need, link, n)
		free_need(s, n);
}

/* Where a buffer lies in a device's window. */
struct lived {
	uint32_t device;
	uint64_t off;
	uint64_t end;
};

static int by_place(const void *one, const void *other)
{
	const struct lived *a = one, *b = other;

	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	return (a->off > b->off) - (a->off < b->off);
}

/* The ledger is the session's own: what it says wrongly costs that session bytes, and nobody else. */
static size_t find_lived(const struct gantry_session *s, struct lived *ret_lived)
{
	uint64_t places = gantry_load_acquire(&s->ledger.hdr->places);
	size_t n = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];
		const struct gantry_ledger_buffer *b = &o->buffer;

		if (o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
		    b->place == GANTRY_PLACE_WINDOW)
			ret_lived[n++] = (struct lived){ gantry_ledger_whereabouts(places, b),
							 b->off, b->off + b->bytes };
	}
	qsort(ret_lived, n, sizeof(*ret_lived), by_place);
	return n;
}

static void take_back(struct gantry_slab *slab)
{
	struct gantry_slab_pool *pool = pool_of(slab);

	pool->session_bytes -= slab->bytes;
	if (slab->lent) {
		let_out(slab);
		return;
	}
	slab->session = NULL;
	switch (slab->state) {
	case SLAB_HELD:
		into_dirty(slab);
		break;
	case SLAB_MAKING: /* it comes, and is the pool's then */
		gantry_list_remove(&slab->link);
		gantry_list_push_back(&pool->asked, &slab->link);
		pool->making_bytes += slab->bytes;
		break;
	default:
		free_slab(slab);
		break;
	}
}

/* Both in the order of devices and offsets. Buffers do not overlap; should a ledger say so, a slab may go that holds one. */
static void give_back_others(struct gantry_session *s, const struct lived *lived, size_t n)
{
	size_t i = 0;

	gantry_list_for_each_safe(&s->slabs, struct gantry_slab, link, slab) {
		while (i < n && (lived[i].device < slab->device ||
				 (lived[i].device == slab->device && lived[i].end <= slab->off)))
			i++;
		if (i < n && lived[i].device == slab->device &&
		    lived[i].off < slab->off + slab->bytes)
			continue;
		if (slab->state == SLAB_HELD)
			give_back(slab);
		else /* it is not there yet */
			take_back(slab);
	}
}

void gantry_slabs_worker_gone(struct gantry_session *s)
{
	struct lived *lived;

	forget_needs(s);
	gantry_loans_end(s);
	if (!s->ledger.hdr || gantry_list_is_empty(&s->slabs))
		return;
	/* A successor asks for the places of its buffers, so nobody would ever speak of the others again. */
	lived = malloc(GANTRY_LEDGER_NOBJECTS * sizeof(*lived));
	if (lived) /* else they stay until the session ends */
		give_back_others(s, lived, find_lived(s, lived));
	free(lived);
	gantry_slabs_pump(s->agent);
}

void gantry_slabs_session_gone(struct gantry_session *s)
{
	forget_needs(s);
	gantry_loans_end(s);
	if (gantry_list_is_empty(&s->slabs))
		return;
	gantry_list_for_each_safe(&s->slabs, struct gantry_slab, link, slab)
		take_back(slab);
	gantry_slabs_pump(s->agent);
}

void gantry_slabs_device_failed(struct gantry_agent *a, uint32_t device)
{
	struct gantry_slab_pool *pool = &a->pools[device];

	while (!gantry_list_is_empty(&pool->wanted))
		give_up(gantry_list_entry(pool->wanted.next, struct gantry_slab, todo_link),
			GANTRY_E_NO_DEVICE, "the device has failed");
}

void gantry_slabs_device_removed(struct gantry_agent *a, uint32_t device)
{
	struct gantry_slab_pool *pool = &a->pools[device];

	gantry_slabs_device_failed(a, device);
	release_clean(pool);
	/* No steward will scrub them; the driver has the memory back, and nobody of ours. */
	gantry_list_for_each_safe(&pool->dirty, struct gantry_slab, link, slab) {
		drop(slab, "z/");
		pool->dirty_bytes -= slab->bytes;
		free_slab(slab);
	}
}

void gantry_slabs_init(struct gantry_agent *a)
{
	a->next_slab = 1;
	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++) {
		gantry_list_init(&a->pools[i].clean);
		gantry_list_init(&a->pools[i].dirty);
		gantry_list_init(&a->pools[i].asked);
		gantry_list_init(&a->pools[i].wanted);
	}
}

static void free_list(struct gantry_list *list)
{
	gantry_list_for_each_safe(list, struct gantry_slab, link, slab)
		free_slab(slab);
}

void gantry_slabs_fini(struct gantry_agent *a)
{
	gantry_loans_fini(a);
	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++) {
		free_list(&a->pools[i].clean);
		free_list(&a->pools[i].dirty);
		free_list(&a->pools[i].asked);
	}
}

/* ---- after an agent that died ---- */

/* Whether the slab of that name was lent; that name stays kept. */
static bool was_lent(struct gantry_agent *a, const char *kept, char name[GANTRY_MONITOR_NAME_MAX])
{
	unsigned long long id, off, bytes;
	unsigned int device;

	if (sscanf(kept, GANTRY_KEPT_SLAB, &id, &device, &off, &bytes) != 4)
		return false;
	(void)gantry_str_format(name, GANTRY_MONITOR_NAME_MAX, GANTRY_KEPT_LENT, id, device, off,
				bytes); /* it fits */
	for (size_t i = 0; i < a->handed.nentries; i++)
		if (strcmp(a->handed.entries[i].name, name) == 0)
			return true;
	return false;
}

/* Once nobody walks over the entries, which move. */
static void take_markers(struct gantry_session *s)
{
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		char name[GANTRY_MONITOR_NAME_MAX];

		if (!slab->lent)
			continue;
		(void)gantry_str_format(name, sizeof(name), GANTRY_KEPT_LENT, /* it fits */
					(unsigned long long)s->id, slab->device,
					(unsigned long long)slab->off,
					(unsigned long long)slab->bytes);
		gantry_fd_close(gantry_store_take(&s->agent->handed, name));
	}
}

void gantry_slabs_restore_session(struct gantry_session *s)
{
	struct gantry_agent *a = s->agent;
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX], marker[GANTRY_MONITOR_NAME_MAX];
		unsigned long long id, off, bytes;
		struct gantry_slab *slab;
		unsigned int device;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, GANTRY_KEPT_SLAB, &id, &device, &off, &bytes) != 4 ||
		    id != s->id || device >= a->ndevices || bytes == 0) {
			i++;
			continue;
		}
		slab = new_slab(a, device, bytes, gantry_store_take(&a->handed, name));
		if (!slab) {
			s->broken = true;
			return;
		}
		give_to(slab, s, off);
		slab->fresh = false; /* nobody knows who had it */
		hold(slab);
		slab->lent = was_lent(a, name, marker);
		if (slab->lent)
			gantry_keep(a, slab->fd, "%s", marker);
	}
	take_markers(s);
}

static void restore_pooled(struct gantry_agent *a, const char *name, uint32_t device,
			   uint64_t bytes, bool clean)
{
	char marker[GANTRY_MONITOR_NAME_MAX];
	bool lent = was_lent(a, name, marker); /* forget_lent() takes that name */
	int fd = gantry_store_take(&a->handed, name);
	struct gantry_slab *slab = NULL;

	gantry_keep_drop(a, "%s", name);
	if (device < a->ndevices && a->devices[device].used && bytes > 0 && !lent)
		slab = new_slab(a, device, bytes, fd);
	if (!slab) {
		gantry_fd_close(fd);
		return;
	}
	if (clean)
		into_pool(slab);
	else
		into_dirty(slab);
}

/* Under new serials: those of the agent before are not ours to count on. */
static void learn_serials(struct gantry_agent *a)
{
	for (size_t i = 0; i < a->handed.nentries; i++) {
		const char *name = a->handed.entries[i].name;
		unsigned long long bytes, serial;
		unsigned int device;

		if ((sscanf(name, KEPT_POOL, &device, &bytes, &serial) == 3 ||
		     sscanf(name, KEPT_DIRTY, &device, &bytes, &serial) == 3) &&
		    serial >= a->next_slab)
			a->next_slab = serial + 1;
	}
}

/* What was lent of sessions that are gone, and of slabs that were just let go of: the driver has that memory, or its users. */
static void forget_lent(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		unsigned long long id, off, bytes;
		unsigned int device;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, GANTRY_KEPT_LENT, &id, &device, &off, &bytes) != 4) {
			i++;
			continue;
		}
		gantry_fd_close(gantry_store_take(&a->handed, name));
		gantry_keep_drop(a, "%s", name);
	}
}

void gantry_slabs_restore(struct gantry_agent *a)
{
	size_t i = 0;

	learn_serials(a);
	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		unsigned long long id, bytes, other;
		unsigned int device;
		bool clean, dirty;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		clean = sscanf(name, KEPT_POOL, &device, &bytes, &other) == 3;
		dirty = sscanf(name, KEPT_DIRTY, &device, &bytes, &other) == 3 ||
			/* of a session that was not restored */
			sscanf(name, GANTRY_KEPT_SLAB, &id, &device, &other, &bytes) == 4;
		if (clean || dirty)
			restore_pooled(a, name, device, bytes, clean); /* entries have moved */
		else
			i++;
	}
	forget_lent(a);
}
