/* SPDX-License-Identifier: Apache-2.0 */
/* Stewards: started where devices need them, started again when they die, asked for health. */
#include "host-agent/agent/steward.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "devices/registry.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/worker.h"

#define BACKOFF_MIN_NS	  (50 * GANTRY_NS_PER_MS)
#define BACKOFF_MAX_SHIFT 7u
/* One that lived so long died of something new: no back-off. */
#define HEALTHY_NS     (10 * GANTRY_NS_PER_S)
#define HEALTH_NS      (5 * GANTRY_NS_PER_S)  /* between questions while sessions are attached */
#define HEALTH_IDLE_NS (60 * GANTRY_NS_PER_S) /* and while none is */
#define ANSWER_NS      (10 * GANTRY_NS_PER_S)
/* A board that could not be opened is tried again by another steward after so long. */
#define UNHELD_NS (2 * GANTRY_NS_PER_S)

/* ---- which ---- */

bool gantry_steward_holds(const struct gantry_device_section *conf)
{
	const struct gantry_backend *backend = gantry_backend_find(conf->backend);

	return backend && backend->kind == GANTRY_KIND_FPGA &&
	       gantry_device_section_says(conf, "holder=steward");
}

bool gantry_steward_serves(const struct gantry_device_section *conf)
{
	const struct gantry_backend *backend = gantry_backend_find(conf->backend);

	if (gantry_steward_holds(conf))
		return true;
	if (!backend || !backend->slab_create)
		return false;
	/* A cpu device's memory is the host's, unless it plays at having its own; an AMD GPU's runtime may have no other. */
	if (backend->kind == GANTRY_KIND_CPU)
		return gantry_device_section_says(conf, "window=yes");
	return backend->kind != GANTRY_KIND_HIP ||
	       !gantry_device_section_says(conf, "memory=staged");
}

/* What its steward is for, as that one's group: a board that is lost, or cannot be opened, is no other board's affair. */
static void name_steward(const struct gantry_device_section *conf, char *name, size_t cap)
{
	/* it fits */
	(void)gantry_str_format(name, cap, "%s%s", gantry_steward_holds(conf) ? "held:" : "",
				gantry_steward_holds(conf) ? conf->name : conf->backend);
}

bool gantry_steward_is_for(const struct gantry_worker *steward,
			   const struct gantry_device_section *conf)
{
	char name[sizeof(steward->class.group)];

	static_assert(sizeof(name) >= sizeof("held:") - 1 + sizeof(conf->name), "it fits");
	if (steward->class.mode != GANTRY_WORKER_STEWARD || !gantry_steward_serves(conf))
		return false;
	name_steward(conf, name, sizeof(name));
	/* One that an agent of an earlier version left holds all boards of its backend. */
	return strcmp(steward->class.group, name) == 0 ||
	       strcmp(steward->class.group, conf->backend) == 0;
}

static struct gantry_worker *find_any(struct gantry_agent *a,
				      const struct gantry_device_section *conf)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (!w->dead && gantry_steward_is_for(w, conf))
			return w;
	return NULL;
}

struct gantry_worker *gantry_steward_find(struct gantry_agent *a, uint32_t idx)
{
	const struct gantry_agent_device *d = &a->devices[idx];
	struct gantry_worker *w = d->used ? find_any(a, &d->conf) : NULL;

	return w && w->state == GANTRY_WORKER_WARM && !w->querying && !w->stale &&
			       (w->served >> idx & 1)
		       ? w
		       : NULL;
}

static struct gantry_steward_tries *tries_of(struct gantry_agent *a, const char *what)
{
	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++) {
		struct gantry_steward_tries *t = &a->stewards[i];

		if (t->what[0] == '\0')
			/* the same size */
			(void)gantry_str_copy(t->what, sizeof(t->what), what);
		if (strcmp(t->what, what) == 0)
			return t;
	}
	return &a->stewards[0]; /* more than devices, over the years: they share a back-off */
}

/* ---- start ---- */

static void failed(struct gantry_steward_tries *t)
{
	uint32_t shift = t->nfailed < BACKOFF_MAX_SHIFT ? t->nfailed : BACKOFF_MAX_SHIFT;

	t->nfailed++;
	t->not_before_ns = gantry_now_ns() + (BACKOFF_MIN_NS << shift);
}

/* When to try again: 0 at once. */
static uint64_t fill_one(struct gantry_agent *a, const struct gantry_device_section *conf)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t now_ns = gantry_now_ns();
	struct gantry_worker_class class = { .mode = GANTRY_WORKER_STEWARD };
	struct gantry_steward_tries *t;
	struct gantry_worker *w;

	if (find_any(a, conf))
		return UINT64_MAX;
	name_steward(conf, class.group, sizeof(class.group));
	t = tries_of(a, class.group);
	if (now_ns < t->not_before_ns)
		return t->not_before_ns - now_ns;
	if (gantry_worker_spawn(a, &class, &w, &err) == 0)
		return UINT64_MAX;
	gantry_event(a, "worker-failed", NULL, NULL, NULL, "steward of %s: %s",
		     gantry_steward_holds(conf) ? conf->name : conf->backend, err.text);
	failed(t);
	return t->not_before_ns - now_ns;
}

static void fill_later(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_stewards_fill(arg);
}

void gantry_stewards_fill(struct gantry_agent *a)
{
	uint64_t wait_ns = UINT64_MAX;

	if (a->stopping)
		return;
	for (uint32_t i = 0; i < a->ndevices; i++) {
		uint64_t ns;

		if (!a->devices[i].used || !gantry_steward_serves(&a->devices[i].conf))
			continue;
		ns = fill_one(a, &a->devices[i].conf);
		wait_ns = ns < wait_ns ? ns : wait_ns;
	}
	if (wait_ns != UINT64_MAX)
		/* without memory for a timer the next change tries again */
		(void)gantry_timer_set(a, &a->steward_timer, wait_ns, fill_later, a);
}

void gantry_stewards_stop(struct gantry_agent *a)
{
	gantry_event_free(&a->steward_timer);
	gantry_event_free(&a->health_timer);
	while (a->arrivals.n > 0)
		gantry_fd_close(a->arrivals.fd[--a->arrivals.n]);
}

/* ---- seats ---- */

/* One of an older build or configuration, too: while it has the device no other can. NULL: none is ready. */
static struct gantry_worker *holder_of(struct gantry_agent *a, uint32_t idx)
{
	struct gantry_worker *w = a->devices[idx].used ? find_any(a, &a->devices[idx].conf) : NULL;

	return w && w->state == GANTRY_WORKER_WARM && !w->querying ? w : NULL;
}

/* Takes @fd over. Where the steward could not open the device the other end sees it close. */
static void give_seat(struct gantry_worker *w, uint32_t idx, uint64_t worker, int fd)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__GiveSeat give = GANTRY__WORKER__GIVE_SEAT__INIT;

	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_GIVE_SEAT;
	msg.give_seat = &give;
	give.device = idx;
	give.worker_id = worker;
	if (w->served >> idx & 1)
		(void)gantry_call(w, &msg, &fd, 1, 0, NULL,
				  NULL); /* or it is dead, as are its seats */
	gantry_fd_close(fd);
}

int gantry_steward_make_seat(struct gantry_agent *a, uint32_t idx, uint64_t worker, int *ret_fd)
{
	struct gantry_worker *w = holder_of(a, idx);
	int fds[2];

	if (!w && a->arrivals.n == GANTRY_STEWARD_MAX_ARRIVALS)
		return -EMFILE;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	if (w) {
		give_seat(w, idx, worker, fds[0]);
	} else {
		a->arrivals.device[a->arrivals.n] = idx;
		a->arrivals.worker[a->arrivals.n] = worker;
		a->arrivals.fd[a->arrivals.n++] = fds[0];
	}
	*ret_fd = fds[1];
	return 0;
}

/* The seats that waited for this steward. */
static void give_seats(struct gantry_worker *w)
{
	struct gantry_agent *a = w->agent;
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->arrivals.n; i++) {
		uint32_t idx = a->arrivals.device[i];

		if (holder_of(a, idx) == w) {
			give_seat(w, idx, a->arrivals.worker[i], a->arrivals.fd[i]);
			continue;
		}
		a->arrivals.device[n] = idx;
		a->arrivals.worker[n] = a->arrivals.worker[i];
		a->arrivals.fd[n++] = a->arrivals.fd[i];
	}
	a->arrivals.n = n;
}

/* Devices that the steward holds; of one that an earlier agent left and that has not said so yet, all that it may. */
static uint64_t held_by(const struct gantry_worker *steward)
{
	const struct gantry_agent *a = steward->agent;
	uint64_t mask = 0;

	for (uint32_t i = 0; i < a->ndevices; i++)
		if (gantry_steward_is_for(steward, &a->devices[i].conf) &&
		    (steward->querying || (steward->served >> i & 1)))
			mask |= 1ull << i;
	return mask;
}

static uint64_t configured(const struct gantry_agent *a)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < a->ndevices; i++)
		mask |= a->devices[i].used ? 1ull << i : 0;
	return mask;
}

bool gantry_steward_is_needed(const struct gantry_worker *steward)
{
	/* At one that was removed, or changed, nobody gets a turn any more. */
	uint64_t held = steward->class.mode == GANTRY_WORKER_STEWARD
				? held_by(steward) & configured(steward->agent)
				: 0;

	gantry_list_for_each(&steward->agent->workers, struct gantry_worker, link, w)
		if (!w->dead && (w->seats & held) && (w->nsessions > 0 || w->querying))
			return true;
	return false;
}

/* They recover on others, with seats at the next steward. */
static void end_seats(struct gantry_worker *steward)
{
	uint64_t held = held_by(steward);

	gantry_list_for_each(&steward->agent->workers, struct gantry_worker, link, w)
		if (!w->dead && (w->seats & held))
			gantry_worker_kill(w);
}

/* They came when nobody had the device open: those that follow them have seats. */
static void replace_seatless(struct gantry_worker *steward)
{
	uint64_t held = held_by(steward);

	gantry_list_for_each_safe(&steward->agent->workers, struct gantry_worker, link, w) {
		if (w->dead || w->state == GANTRY_WORKER_STARTING ||
		    !(w->class.seats & ~w->seats & held))
			continue;
		w->stale = true; /* it serves whom it has */
		if (w->nsessions == 0)
			gantry_worker_quit(w);
	}
}

/* ---- life ---- */

static void tick(evutil_socket_t fd, short what, void *arg);

static void arm_health(struct gantry_agent *a)
{
	bool busy = !gantry_list_is_empty(&a->sessions);

	/* without memory for a timer health is asked when somebody looks */
	(void)gantry_timer_set(a, &a->health_timer, busy ? HEALTH_NS : HEALTH_IDLE_NS, tick, a);
}

static bool holds_any(const struct gantry_worker *w)
{
	for (uint32_t i = 0; i < w->agent->ndevices; i++)
		if (w->agent->devices[i].used && gantry_steward_holds(&w->agent->devices[i].conf) &&
		    gantry_steward_is_for(w, &w->agent->devices[i].conf))
			return true;
	return false;
}

void gantry_steward_learn(struct gantry_worker *w, const Gantry__Worker__Ready *ready)
{
	struct gantry_agent *a = w->agent;

	w->served = 0;
	for (size_t i = 0; i < ready->n_devices && i < a->ndevices; i++) {
		const struct gantry_agent_device *d = &a->devices[i];

		if (!d->used || strcmp(ready->devices[i]->name, d->conf.name) != 0)
			continue;
		if (ready->devices[i]->error[0] == '\0')
			w->served |= 1ull << i;
		else
			gantry_slabs_device_failed(a, (uint32_t)i);
	}
}

void gantry_steward_ready(struct gantry_worker *w)
{
	struct gantry_agent *a = w->agent;

	give_seats(w);
	replace_seatless(w);
	gantry_slabs_pump(a);
	gantry_health_ask(a, 0);
	if (w->served == 0 && holds_any(w))
		gantry_worker_kill_after(w, UNHELD_NS);
}

void gantry_steward_died(struct gantry_worker *w)
{
	struct gantry_agent *a = w->agent;
	struct gantry_steward_tries *t = tries_of(a, w->class.group);
	bool in_order = w->stale || a->stopping;
	uint64_t lived_ns = gantry_now_ns() - w->started_ns;

	if (lived_ns > HEALTHY_NS || in_order)
		t->nfailed = 0;
	t->not_before_ns = 0;
	if (!in_order)
		failed(t);
	end_seats(w);
	gantry_worker_free(w);
	gantry_stewards_fill(a);
}

/* ---- health ---- */

static void told(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct gantry_worker *w = arg;
	struct gantry_agent *a = w->agent;

	gantry_fd_close(fd);
	if (!answer || answer->body_case != GANTRY__WORKER__FROM_WORKER__BODY_HEALTH)
		return; /* it died, or is stuck: what it makes has a time-out that ends it */
	for (size_t i = 0; i < answer->health->n_devices && i < a->ndevices; i++)
		if (w->served >> i & 1)
			gantry_device_health_learn(a, (uint32_t)i, answer->health->devices[i]);
}

void gantry_health_ask(struct gantry_agent *a, uint64_t max_age_ns)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__AskHealth ask = GANTRY__WORKER__ASK_HEALTH__INIT;
	uint64_t now_ns = gantry_now_ns();

	if (a->stopping || (a->health_asked_ns && now_ns - a->health_asked_ns < max_age_ns))
		return;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_ASK_HEALTH;
	msg.ask_health = &ask;
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		if (w->class.mode != GANTRY_WORKER_STEWARD || w->dead || w->served == 0 ||
		    w->state != GANTRY_WORKER_WARM)
			continue;
		a->health_asked_ns = now_ns;
		gantry_call_forget(w, w); /* one question at a time */
		(void)gantry_call(w, &msg, NULL, 0, ANSWER_NS, told, w); /* or it is dead */
		arm_health(a);
	}
}

static void tick(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)fd;
	(void)what;
	/* Of an older build or configuration, and nobody sits there any more. */
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w)
		if (w->class.mode == GANTRY_WORKER_STEWARD && w->stale &&
		    !gantry_steward_is_needed(w))
			gantry_worker_quit(w);
	gantry_health_ask(a, 0);
}
