/* SPDX-License-Identifier: Apache-2.0 */
/* The list of migrations, and moves of queues between devices. */
#include "host-agent/agent/migrate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/upgrade.h"
#include "host-agent/agent/worker.h"
#include "proto/wire.h"

#define ANSWER_NS (10 * GANTRY_NS_PER_S)
#define WHY_DRAIN "drain"

/* ---- the list ---- */

static void forget_old(struct gantry_agent *a)
{
	uint32_t nover = 0;

	gantry_list_for_each(&a->migrations, struct gantry_migration_entry, link, e)
		nover += e->over && !e->waits;
	gantry_list_for_each_safe(&a->migrations, struct gantry_migration_entry, link, e) {
		if (nover <= GANTRY_MIGRATIONS_KEPT)
			return;
		if (!e->over || e->waits)
			continue;
		gantry_list_remove(&e->link);
		free(e);
		nover--;
	}
}

struct gantry_migration_entry *gantry_migration_note(struct gantry_agent *a, const char *kind,
						     const struct gantry_session *s,
						     const char *from, const char *to,
						     const char *why)
{
	struct gantry_migration_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	forget_old(a);
	e->id = ++a->last_handover; /* one series of numbers for all that moves */
	e->kind = kind;
	e->session_id = s->id;
	e->started_ns = gantry_now_ns();
	/* For people: cut is better than unsaid. */
	(void)gantry_str_copy(e->tenant, sizeof(e->tenant), s->tenant->conf.name);
	(void)gantry_str_copy(e->from, sizeof(e->from), from);
	(void)gantry_str_copy(e->to, sizeof(e->to), to);
	(void)gantry_str_copy(e->why, sizeof(e->why), why);
	gantry_list_push_back(&a->migrations, &e->link);
	return e;
}

struct gantry_migration_entry *gantry_migration_find(struct gantry_agent *a, uint64_t id)
{
	gantry_list_for_each(&a->migrations, struct gantry_migration_entry, link, e)
		if (e->id == id)
			return e;
	return NULL;
}

/* "queue 3", "session 7" */
static const char *name_of(const struct gantry_migration_entry *e, char *text, size_t cap)
{
	bool is_queue = strcmp(e->kind, "queue") == 0;

	(void)snprintf(text, cap, "%s %" PRIu64, e->kind, is_queue ? e->slot : e->session_id);
	return text;
}

static void tell_end(struct gantry_agent *a, const struct gantry_migration_entry *e)
{
	const struct gantry_session *s = gantry_session_find(a, e->session_id);
	const struct gantry_migration_counts *c = &e->counts;
	char name[40];

	if (e->dry_run)
		return;
	(void)name_of(e, name, sizeof(name));
	if (e->error)
		gantry_event(a, "migration-failed", NULL, s, NULL,
			     "%" PRIu64 ": %s stays on %.32s: %.90s", e->id, name, e->from,
			     e->text);
	else
		gantry_event(a, "migration-done", NULL, s, NULL,
			     "%" PRIu64 ": %s, %.24s to %.24s: %" PRIu64 " KiB in %" PRIu64
			     " us, still for %" PRIu64 " us, a task's %" PRIu64,
			     e->id, name, e->from, e->to, c->moved_bytes >> 10,
			     (uint64_t)(c->total_ns / GANTRY_NS_PER_US),
			     (uint64_t)(c->pause_ns / GANTRY_NS_PER_US),
			     (uint64_t)(c->longest_task_ns / GANTRY_NS_PER_US));
}

static void count_end(struct gantry_agent *a, const struct gantry_migration_entry *e)
{
	struct gantry_migration_totals *t = &a->migrated;

	if (e->dry_run)
		return;
	if (e->error) {
		t->nfailed++;
		return;
	}
	t->ndone++;
	t->moved_bytes += e->counts.moved_bytes;
	t->rounds += e->counts.nrounds;
	t->pause_ns += e->counts.pause_ns;
	t->last_pause_ns = e->counts.pause_ns;
	t->last_task_ns = e->counts.longest_task_ns;
}

/* The last of a session's queues has left a device that drains, or cannot. */
static void drained(struct gantry_agent *a, const struct gantry_migration_entry *ended)
{
	struct gantry_session *s = gantry_session_find(a, ended->session_id);

	if (!s || strcmp(ended->why, WHY_DRAIN) != 0)
		return;
	gantry_list_for_each(&a->migrations, struct gantry_migration_entry, link, e)
		if (!e->over && e->session_id == s->id && e->from_device == ended->from_device &&
		    strcmp(e->why, WHY_DRAIN) == 0)
			return;
	s->leaving &= ~(1ull << ended->from_device);
	gantry_session_allow(s);
	gantry_workers_nudge(a);
}

/* ---- lanes that queues keep ---- */

/*
 * A lane is asked for before its queue sets out: the word names the device too, so it means nothing where the queue is
 * yet, and an agent that dies on the way forgets nothing. The worker writes 0 where a queue is opened anew,
 * which is why words are replaced that are as they were, and no others.
 */
static uint32_t lane_word(const struct gantry_migration_entry *e)
{
	return e->lane ? GANTRY_LEDGER_LANE(e->to_device, e->lane - 1) : 0u;
}

static uint32_t *lane_of(struct gantry_agent *a, const struct gantry_migration_entry *e)
{
	struct gantry_session *s = gantry_session_find(a, e->session_id);

	if (e->dry_run || strcmp(e->kind, "queue") != 0 || !s || !s->ledger.hdr ||
	    e->slot >= s->ledger.nqueues)
		return NULL;
	return &s->ledger.queues[e->slot].lane;
}

static void ask_lane(struct gantry_agent *a, struct gantry_migration_entry *e)
{
	uint32_t *lane = lane_of(a, e);

	if (!lane)
		return;
	e->lane_before = gantry_load_relaxed(lane);
	if (e->lane)
		gantry_store_relaxed(lane, lane_word(e));
}

/* It has arrived, and keeps the lane that was asked for, or none; or it stays, and keeps what it had. */
static void settle_lane(struct gantry_agent *a, const struct gantry_migration_entry *e)
{
	uint32_t *lane = lane_of(a, e);
	uint32_t seen = e->lane ? lane_word(e) : e->lane_before;

	if (lane)
		(void)gantry_cas(lane, &seen, e->error ? e->lane_before : lane_word(e));
}

void gantry_migration_ended(struct gantry_agent *a, struct gantry_migration_entry *e, int error,
			    const char *text)
{
	if (e->over)
		return;
	e->over = true;
	e->error = error;
	e->ended_ns = gantry_now_ns();
	if (text)
		(void)gantry_str_copy(e->text, sizeof(e->text), text); /* cut, for people */
	gantry_str_make_printable(e->text);
	if (!e->counts.total_ns)
		e->counts.total_ns = e->ended_ns - e->started_ns;
	settle_lane(a, e);
	count_end(a, e);
	tell_end(a, e);
	drained(a, e);
}

bool gantry_migrations_under_way(const struct gantry_agent *a)
{
	gantry_list_for_each(&a->migrations, struct gantry_migration_entry, link, e)
		if (!e->over)
			return true;
	return false;
}

void gantry_migrations_fini(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->migrations, struct gantry_migration_entry, link, e) {
		gantry_list_remove(&e->link);
		free(e);
	}
}

/* ---- what the worker says ---- */

static uint64_t at(const uint64_t *numbers, size_t n, size_t i)
{
	return i < n ? numbers[i] : 0;
}

static void take_counts(struct gantry_migration_counts *c,
			const Gantry__Worker__MigrationNews *news)
{
	c->owned_bytes = news->owned_bytes;
	c->moved_bytes = news->moved_bytes;
	c->last_bytes = news->last_bytes;
	c->dirty_bytes = news->dirty_bytes;
	c->longest_task_ns = news->longest_task_ns;
	c->pause_ns = news->pause_ns;
	c->total_ns = news->total_ns;
	c->nrounds = (uint32_t)GANTRY_MIN(news->n_round_bytes, (size_t)GANTRY_MIGRATION_MAX_ROUNDS);
	for (size_t i = 0; i < c->nrounds; i++)
		c->round_bytes[i] = news->round_bytes[i];
	for (size_t i = 0; i < GANTRY_MIGRATION_NSTATES; i++)
		c->state_ns[i] = at(news->state_ns, news->n_state_ns, i);
}

/* A number that is no error of ours is one all the same. */
static int sane_error(int32_t error)
{
	return error < 0 && error > -4096 ? error : error ? -EIO : 0;
}

static void take_news(struct gantry_agent *a, struct gantry_migration_entry *e,
		      const Gantry__Worker__MigrationNews *news)
{
	take_counts(&e->counts, news);
	if (news->state < GANTRY_MIGRATION_NSTATES)
		e->state = (enum gantry_migration_state)news->state;
	if (!news->over) {
		/* Why it waits; cut, for people. */
		(void)gantry_str_copy(e->text, sizeof(e->text), news->text);
		gantry_str_make_printable(e->text);
		return;
	}
	gantry_failpoint(GANTRY_FAILPOINT_QUEUE_TOLD);
	gantry_migration_ended(a, e, sane_error(news->error), news->text);
}

/* It may come before the word that the queue has arrived. */
static void take_pulled(struct gantry_agent *a, struct gantry_migration_entry *e,
			const Gantry__Worker__MigrationNews *news)
{
	if (!e->lazy || news->pulled_bytes < e->pulled_bytes)
		return;
	a->counters.queue_pulled_bytes += news->pulled_bytes - e->pulled_bytes;
	e->pulled_bytes = news->pulled_bytes;
	e->touched_bytes = news->touched_bytes;
}

void gantry_migration_told(struct gantry_worker *w, const Gantry__Worker__MigrationNews *news)
{
	struct gantry_migration_entry *e = gantry_migration_find(w->agent, news->id);

	/* Another's, or one that an earlier agent asked for: the ledger says where the queue is. */
	if (!e || e->worker_id != w->id || e->session_id != news->session_id)
		return;
	if (news->pulled_bytes)
		take_pulled(w->agent, e, news);
	else if (!e->over)
		take_news(w->agent, e, news);
}

struct answer_to {
	struct gantry_agent *agent;
	uint64_t id;
};

static void answered(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct answer_to *to = arg;
	struct gantry_agent *a = to->agent;
	struct gantry_migration_entry *e = gantry_migration_find(a, to->id);
	const Gantry__Worker__MigrationNews *news;

	free(to);
	gantry_fd_close(fd);
	if (!e)
		return;
	e->waits = false;
	if (!answer) {
		gantry_migration_ended(a, e, -EPIPE, "the session's worker has ended");
		return;
	}
	if (answer->body_case != GANTRY__WORKER__FROM_WORKER__BODY_MIGRATION_NEWS) {
		gantry_migration_ended(a, e, -EOPNOTSUPP,
				       "the session's worker knows no migrations");
		return;
	}
	news = answer->migration_news;
	if (e->is_whole && news->from < a->ndevices && a->devices[news->from].used) {
		e->from_device = news->from;
		/* Cut, for people. */
		(void)gantry_str_copy(e->from, sizeof(e->from), a->devices[news->from].conf.name);
	}
	if (e->over) /* its last word has overtaken the answer */
		return;
	take_counts(&e->counts, news);
	if (news->error || e->dry_run)
		gantry_migration_ended(a, e, sane_error(news->error), news->text);
}

/* Where the ledger says that the queue is by now. */
static bool has_arrived(const struct gantry_session *s, const struct gantry_migration_entry *e)
{
	if (e->is_whole)
		return GANTRY_LEDGER_NUMBERING(gantry_load_acquire(&s->ledger.hdr->places)) !=
		       e->numbering;
	return e->slot < s->ledger.nqueues &&
	       gantry_load_relaxed(&s->ledger.queues[e->slot].device) == e->to_device;
}

/* What its worker carries out, and so ends with it. */
static bool is_workers(const struct gantry_migration_entry *e)
{
	return e->is_whole || strcmp(e->kind, "queue") == 0;
}

void gantry_migrations_worker_died(struct gantry_session *s)
{
	gantry_list_for_each(&s->agent->migrations, struct gantry_migration_entry, link, e) {
		if (e->over || e->session_id != s->id || !is_workers(e))
			continue;
		if (has_arrived(s, e))
			gantry_migration_ended(
				s->agent, e, 0,
				e->is_whole ? "its worker died after it had arrived"
					    : "its worker died after the queue had arrived");
		else
			gantry_migration_ended(
				s->agent, e, -EPIPE,
				e->is_whole ? "its worker died; the session is where it was"
					    : "its worker died; the queue is where it was");
	}
}

void gantry_migrations_session_gone(struct gantry_session *s)
{
	gantry_list_for_each(&s->agent->migrations, struct gantry_migration_entry, link, e)
		if (!e->over && e->session_id == s->id && is_workers(e))
			gantry_migration_ended(s->agent, e, -ESHUTDOWN, "the session has ended");
}

/* ---- queues ---- */

static int cancel_queue(struct gantry_agent *a, struct gantry_migration_entry *e,
			struct gantry_err *err)
{
	Gantry__Worker__MigrateCancel cancel = GANTRY__WORKER__MIGRATE_CANCEL__INIT;
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	struct gantry_worker *w = gantry_worker_find(a, e->worker_id);

	cancel.session_id = e->session_id;
	cancel.id = e->id;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_MIGRATE_CANCEL;
	msg.migrate_cancel = &cancel;
	if (!w || gantry_call(w, &msg, NULL, 0, 0, NULL, NULL) < 0)
		return gantry_err_set(err, -EPIPE, "its worker has ended");
	return 0;
}

/* ---- lanes ---- */

uint32_t gantry_queue_lane(const struct gantry_ledger_queue *led)
{
	uint32_t kept = gantry_load_relaxed(&led->lane);

	return kept >> 16 == gantry_load_relaxed(&led->device) + 1 ? kept & 0xffff : 0;
}

static int check_lane(const struct gantry_agent_device *d, const struct gantry_ledger_queue *led,
		      const struct gantry_queue_move *move, struct gantry_err *err)
{
	uint32_t nlanes = gantry_load_relaxed(&d->page->hdr.nlanes);

	if (move->lane && gantry_load_relaxed(&d->page->hdr.gpu))
		return gantry_err_set(
			err, -EOPNOTSUPP,
			"device %s is a GPU: its lanes are sessions', and each queue has "
			"a stream of its own there; name the device alone",
			d->conf.name);
	if (move->lane > nlanes)
		return gantry_err_set(err, -ENOENT, "device %s has no lane %u, but 0 to %u",
				      d->conf.name, move->lane - 1, nlanes - 1);
	if (gantry_load_relaxed(&led->device) != move->device ||
	    gantry_queue_lane(led) != move->lane)
		return 0;
	if (move->lane)
		return gantry_err_set(err, -EALREADY, "queue %u keeps lane %u of device %s already",
				      move->slot, move->lane - 1, d->conf.name);
	return gantry_err_set(err, -EALREADY, "queue %u is on device %s already", move->slot,
			      d->conf.name);
}

static void name_place(char *text, size_t cap, const struct gantry_agent_device *d, uint32_t lane)
{
	if (lane)
		(void)snprintf(text, cap, "%s:%u", d->conf.name, lane - 1);
	else
		(void)gantry_str_copy(text, cap, d->conf.name); /* it fits */
}

/*
 * From lane to lane of a device nothing has to be moved: the ledger says which one, and its worker takes that from the next
 * task on, once what the queue had issued on the other has finished.
 */
static void change_lane(struct gantry_agent *a, struct gantry_migration_entry *e)
{
	e->state = GANTRY_MIGRATION_DONE;
	gantry_migration_ended(a, e, 0, NULL);
}

/* What its worker is to move, to device @device, it may move there. */
static int check_device(struct gantry_agent *a, const struct gantry_session *s, uint32_t device,
			struct gantry_err *err)
{
	if (gantry_upgrade_settles(a))
		return gantry_err_set(err, -EBUSY,
				      "another build of the agent takes over; try again in a "
				      "moment");
	if (device >= a->ndevices || !a->devices[device].used)
		return gantry_err_set(err, -ENOENT, "there is no such device");
	if (!s->worker || s->phase != GANTRY_PHASE_ATTACHED)
		return gantry_err_set(err, -EBUSY,
				      "session %" PRIu64
				      " is between two workers; try again when it is attached",
				      s->id);
	if (!(s->tenant->device_mask >> device & 1))
		return gantry_err_set(err, -ENODEV, "tenant %s may not use device %s",
				      s->tenant->conf.name, a->devices[device].conf.name);
	if (a->devices[device].state != GANTRY_DEVICE_ENABLED)
		return gantry_err_set(err, -ENODEV,
				      "device %s is not in service; see gantryctl device list",
				      a->devices[device].conf.name);
	if (s->worker->unusable >> device & 1)
		return gantry_err_set(err, -ENODEV, "the session's worker could not open %s",
				      a->devices[device].conf.name);
	return 0;
}

/* Whether something else moves it; @slot 0: any of the session's queues. */
static int check_others(const struct gantry_agent *a, const struct gantry_session *s, uint32_t slot,
			struct gantry_err *err)
{
	gantry_list_for_each(&a->migrations, struct gantry_migration_entry, link, e)
		if (!e->over && e->session_id == s->id &&
		    (slot == 0 || e->slot == slot || strcmp(e->kind, "queue") != 0))
			return gantry_err_set(err, -EBUSY,
					      "migration %" PRIu64
					      " is moving it; see gantryctl migration list",
					      e->id);
	return 0;
}

static int check_move(struct gantry_agent *a, struct gantry_session *s,
		      const struct gantry_queue_move *move, struct gantry_err *err)
{
	const struct gantry_ledger_queue *led;
	int r;

	if (move->slot == 0 || move->slot >= s->ledger.nqueues ||
	    gantry_load_relaxed(&s->ledger.queues[move->slot].state) != GANTRY_QUEUE_OPEN)
		return gantry_err_set(err, -ENOENT, "session %" PRIu64 " has no queue %u", s->id,
				      move->slot);
	led = &s->ledger.queues[move->slot];
	r = check_device(a, s, move->device, err);
	if (r < 0)
		return r;
	if (gantry_load_relaxed(&led->device) >= a->ndevices)
		return gantry_err_set(err, -EIO, "the queue is at no device");
	r = check_others(a, s, move->slot, err);
	return r < 0 ? r : check_lane(&a->devices[move->device], led, move, err);
}

static int ask_worker(struct gantry_agent *a, struct gantry_session *s,
		      const struct gantry_queue_move *move, struct gantry_migration_entry *e,
		      struct gantry_err *err)
{
	Gantry__Worker__Migrate ask = GANTRY__WORKER__MIGRATE__INIT;
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	struct answer_to *to = malloc(sizeof(*to));

	if (!to)
		return gantry_err_set(err, -ENOMEM, "no memory");
	*to = (struct answer_to){ .agent = a, .id = e->id };
	ask.id = e->id;
	ask.session_id = s->id;
	ask.slot = move->slot;
	ask.device = move->device;
	ask.lazy = move->lazy;
	ask.whole = move->slot == 0;
	ask.dry_run = move->dry_run;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_MIGRATE;
	msg.migrate = &ask;
	e->worker_id = s->worker->id;
	e->waits = true;
	gantry_failpoint(GANTRY_FAILPOINT_QUEUE_ASK);
	if (gantry_call(s->worker, &msg, NULL, 0, ANSWER_NS, answered, to) == 0)
		return 0;
	free(to);
	e->waits = false;
	return gantry_err_set(err, -EPIPE, "the session's worker has ended");
}

int gantry_queue_move(struct gantry_agent *a, struct gantry_session *s,
		      const struct gantry_queue_move *move,
		      struct gantry_migration_entry **ret_entry, struct gantry_err *err)
{
	char here[GANTRY_CONFIG_NAME + 16], there[GANTRY_CONFIG_NAME + 16];
	struct gantry_migration_entry *e;
	uint32_t from;
	int r = check_move(a, s, move, err);

	if (r < 0)
		return r;
	from = gantry_load_relaxed(&s->ledger.queues[move->slot].device);
	name_place(here, sizeof(here), &a->devices[from],
		   gantry_queue_lane(&s->ledger.queues[move->slot]));
	name_place(there, sizeof(there), &a->devices[move->device], move->lane);
	e = gantry_migration_note(a, "queue", s, here, there, move->why);
	if (!e)
		return gantry_err_set(err, -ENOMEM, "no memory");
	e->slot = move->slot;
	e->from_device = from;
	e->to_device = move->device;
	e->lane = move->lane;
	e->dry_run = move->dry_run;
	e->lazy = move->lazy;
	e->cancel = cancel_queue;
	*ret_entry = e;
	ask_lane(a, e);
	if (from == move->device) {
		change_lane(a, e);
		return 0;
	}
	r = ask_worker(a, s, move, e, err);
	if (r < 0) {
		e->error = r;
		settle_lane(a, e);
		gantry_list_remove(&e->link);
		free(e);
		return r;
	}
	return 0;
}

int gantry_session_move(struct gantry_agent *a, struct gantry_session *s, uint32_t device,
			bool dry_run, struct gantry_migration_entry **ret_entry,
			struct gantry_err *err)
{
	const struct gantry_queue_move move = { .device = device, .dry_run = dry_run };
	struct gantry_migration_entry *e;
	int r = check_device(a, s, device, err);

	if (r == 0)
		r = check_others(a, s, 0, err);
	if (r < 0)
		return r;
	/* Where it comes from its worker says. */
	e = gantry_migration_note(a, "session", s, "", a->devices[device].conf.name,
				  "administrator");
	if (!e)
		return gantry_err_set(err, -ENOMEM, "no memory");
	e->is_whole = true;
	e->numbering = GANTRY_LEDGER_NUMBERING(gantry_load_acquire(&s->ledger.hdr->places));
	e->to_device = device;
	e->dry_run = dry_run;
	e->cancel = cancel_queue;
	r = ask_worker(a, s, &move, e, err);
	if (r < 0) {
		gantry_list_remove(&e->link);
		free(e);
		return r;
	}
	*ret_entry = e;
	return 0;
}

int gantry_queue_migrate(struct gantry_agent *a, struct gantry_session *s, uint32_t slot,
			 uint32_t device, const char *why, struct gantry_err *err)
{
	const struct gantry_queue_move move = { .slot = slot, .device = device, .why = why };
	struct gantry_migration_entry *e;
	int r;

	/* It is there, and keeps its lane if it has one. */
	if (slot < s->ledger.nqueues && s->ledger.hdr &&
	    gantry_load_relaxed(&s->ledger.queues[slot].device) == device)
		return 0;
	r = gantry_queue_move(a, s, &move, &e, err);
	return r == -EALREADY ? 0 : r;
}

/* ---- drain ---- */

/* Another device that the queue may use, with the fewest sessions; negative: none. */
static int choose_device(const struct gantry_agent *a, const struct gantry_session *s,
			 const struct gantry_ledger_queue *led, uint32_t device)
{
	uint64_t mask = s->tenant->device_mask & gantry_devices_serving(a) & ~(1ull << device);
	uint64_t asked = gantry_load_relaxed(&led->device_mask);
	uint32_t kind = gantry_load_relaxed(&led->kind);
	uint32_t best_n = UINT32_MAX;
	int best = -1;

	for (mask &= asked ? asked : UINT64_MAX; mask; mask &= mask - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(mask);
		uint32_t n = gantry_load_relaxed(&a->devices[i].page->hdr.nsessions);

		if (kind != GANTRY_KIND_ANY && a->devices[i].kind != kind)
			continue;
		if (n < best_n) {
			best_n = n;
			best = (int)i;
		}
	}
	return best;
}

static void drain_session(struct gantry_agent *a, struct gantry_session *s, uint32_t device)
{
	for (uint32_t slot = 1; slot < s->ledger.nqueues; slot++) {
		const struct gantry_ledger_queue *led = &s->ledger.queues[slot];
		struct gantry_err err;
		int to;

		if (gantry_load_relaxed(&led->state) != GANTRY_QUEUE_OPEN ||
		    gantry_load_relaxed(&led->device) != device)
			continue;
		to = choose_device(a, s, led, device);
		if (to >= 0 && gantry_queue_migrate(a, s, slot, (uint32_t)to, WHY_DRAIN, &err) == 0)
			s->leaving |= 1ull << device;
	}
}

void gantry_migrations_drain(struct gantry_agent *a, uint32_t device)
{
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (s->ledger.hdr)
			drain_session(a, s, device);
}
