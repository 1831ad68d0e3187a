/* SPDX-License-Identifier: Apache-2.0 */
/* Packed workers as clients of MPS servers: which are taken, what they find, and how one is killed. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/mps_inside.h"
#include "host-agent/agent/mps_run.h"
#include "host-agent/agent/mps_watch.h"
#include "host-agent/agent/procstat.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/warm.h"
#include "host-agent/agent/worker.h"

#define EXPECT_NS (400 * GANTRY_NS_PER_MS) /* clients had a fault of another within 0.3 s (H200) */
#define TERMINATE_NS \
	(2 * GANTRY_NS_PER_S) /* 9 ms measured; past it the worker is killed all the same */

/* After a fault the server takes nobody until all whose contexts it ended have left. */
static bool is_in_fault(const struct gantry_mps *m)
{
	gantry_list_for_each(&m->agent->workers, struct gantry_worker, link, w)
		if (w->mps == m && w->faulted && !w->dead)
			return true;
	return false;
}

static void nothing_came(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_mps *m = arg;

	(void)fd;
	(void)what;
	gantry_mps_fault_came(m);
	gantry_attach_serve(m->agent);
	gantry_warm_fill(m->agent);
}

void gantry_mps_expect_fault(struct gantry_mps *m)
{
	/* Without a timer nobody would end it. */
	m->expects_fault = m->state == GANTRY_MPS_READY &&
			   gantry_timer_set(m->agent, &m->timer, EXPECT_NS, nothing_came, m) == 0;
}

void gantry_mps_fault_came(struct gantry_mps *m)
{
	if (m->expects_fault && m->state == GANTRY_MPS_READY)
		gantry_event_free(&m->timer);
	m->expects_fault = false;
}

bool gantry_mps_expects_fault(const struct gantry_mps *m)
{
	return m->expects_fault && m->state == GANTRY_MPS_READY;
}

/* A warm worker of another class of the group has no guest yet, and makes room where a session waits. */
static bool make_room(const struct gantry_mps *m, const struct gantry_worker_class *class)
{
	if (!gantry_warm_is_wanted(m->agent, class))
		return false;
	gantry_list_for_each_safe(&m->agent->workers, struct gantry_worker, link, w)
		if (w->mps == m && w->nsessions == 0 && w->state == GANTRY_WORKER_WARM &&
		    !gantry_worker_class_equal(&w->class, class)) {
			gantry_worker_quit(w);
			return true;
		}
	return false;
}

int gantry_mps_admit(struct gantry_agent *a, const struct gantry_worker_class *class,
		     struct gantry_mps **ret_mps)
{
	struct gantry_mps *m;

	*ret_mps = NULL;
	if (class->mode != GANTRY_PACKED || !gantry_mps_is_wanted(a, class->group))
		return 0;
	m = gantry_mps_find(a, class->group);
	if (!m && gantry_now_ns() < a->mps_not_before_ns)
		return 0;
	if (!m) {
		gantry_mps_start(a, class->group);
		return -EAGAIN;
	}
	if (m->state == GANTRY_MPS_STARTING || is_in_fault(m) || m->expects_fault)
		return -EAGAIN;
	if (m->nclients >= a->config->agent.mps_clients)
		return make_room(m, class) ? -EAGAIN : -ENOSPC;
	*ret_mps = m;
	return 0;
}

bool gantry_mps_full(const struct gantry_tenant *t)
{
	const struct gantry_agent *a = t->agent;
	struct gantry_worker_class class, theirs;
	uint32_t n = 0;

	gantry_tenant_class(t, &class);
	if (class.mode != GANTRY_PACKED || !gantry_mps_is_wanted(a, class.group))
		return false;
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s) {
		gantry_tenant_class(s->tenant, &theirs);
		n += !s->worker && theirs.mode == GANTRY_PACKED &&
		     strcmp(theirs.group, class.group) == 0;
	}
	/* One that ends is still a client. */
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		n += w->mps && strcmp(w->class.group, class.group) == 0 &&
		     (w->nsessions > 0 || w->state == GANTRY_WORKER_ENDING);
	return n >= a->config->agent.mps_clients;
}

void gantry_mps_join(struct gantry_mps *m, struct gantry_worker *w)
{
	w->mps = m;
	if (!m)
		return;
	m->nclients++;
	gantry_mps_watch(m->agent);
	gantry_keep(m->agent, m->pidfd, "w/%" PRIx64 "/mps/%" PRIx64, w->id, m->id);
}

void gantry_mps_leave(struct gantry_worker *w)
{
	struct gantry_mps *m = w->mps;

	w->mps = NULL;
	if (!m)
		return;
	m->nclients--;
	gantry_mps_settle(m->agent);
}

/* Whatever the agent's own environment says; without memory the driver's default holds. */
static void set_number(const char *name, uint32_t number)
{
	char text[16];

	(void)unsetenv(name);
	if (number == 0)
		return;
	(void)gantry_str_format(text, sizeof(text), "%u", number); /* it fits */
	(void)setenv(name, text, 1);
}

void gantry_mps_environment(const struct gantry_worker *w)
{
	char text[PATH_MAX];

	set_number("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", w->mps ? w->class.percent : 0);
	set_number("CUDA_MPS_CLIENT_PRIORITY", w->mps ? w->class.mps_priority : 0);
	if (!w->mps) {
		/* A folder that is not there: the driver finds no daemon, and not the host's. It fits. */
		(void)gantry_str_format(text, sizeof(text), "%s/mps/none", w->agent->args.run_dir);
		gantry_mps_set_dirs(text);
		return;
	}
	gantry_mps_set_dirs(w->mps->dir);
}

void gantry_mps_ready(struct gantry_worker *w)
{
	if (w->mps)
		gantry_mps_ask_server(w->mps);
}

pid_t gantry_mps_server(const struct gantry_worker *w)
{
	return w->mps ? w->mps->server : 0;
}

bool gantry_mps_server_ended(const struct gantry_worker *w)
{
	struct pollfd p = { .fd = w->mps ? w->mps->server_fd : -EBADF, .events = POLLIN };
	struct gantry_procstat stat;

	if (p.fd < 0)
		return false;
	/* Its clients know before it is gone: to let go of a GPU takes a while. */
	return poll(&p, 1, 0) > 0 || gantry_procstat(w->mps->server, 0, &stat) < 0 || stat.ending;
}

uint32_t gantry_mps_party(const struct gantry_worker *w)
{
	return w->mps ? 0x80000000u | (uint32_t)w->mps->id : w->owner + 1;
}

/* ---- terminate, then kill ---- */

struct ending {
	struct gantry_agent *agent;
	uint64_t worker_id;
};

static void terminated(void *arg, bool ok, const char *answer)
{
	_cleanup_free_ struct ending *e = arg;
	struct gantry_worker *w = gantry_worker_find(e->agent, e->worker_id);

	(void)answer;
	if (ok)
		e->agent->counters.mps_terminated++;
	else
		gantry_event(e->agent, "mps-silent", NULL, NULL, w,
			     "the server was not told of a client's end; its neighbours may fault");
	if (!w)
		return;
	w->let_go = ok;
	gantry_worker_kill_now(w);
}

/*
 * Work that the server cuts off looks finished to its client: what comes behind it in the stream is done, and among that
 * the write that tells of it. From here on the worker believes nothing that its device says.
 */
static void fence(struct gantry_worker *w)
{
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s)
		if (s->ledger.hdr)
			gantry_store_release(&s->ledger.hdr->epoch, s->ledger.hdr->epoch + 1);
}

int gantry_mps_terminate(struct gantry_worker *w)
{
	struct gantry_mps *m = w->mps;
	struct ending *e;
	char text[80];
	int r;

	struct pollfd end = { .fd = w->pidfd, .events = POLLIN };

	if (!m || m->state != GANTRY_MPS_READY || m->server == 0 || poll(&end, 1, 0) > 0)
		return -ENOENT;
	e = malloc(sizeof(*e));
	if (!e)
		return -ENOMEM;
	*e = (struct ending){ .agent = w->agent, .worker_id = w->id };
	fence(w);
	(void)gantry_str_format(text, sizeof(text), "terminate_client %d %d\n", (int)m->server,
				(int)w->pid); /* it fits */
	r = gantry_mps_run(w->agent, m->dir, text, TERMINATE_NS, terminated, e);
	if (r < 0)
		free(e);
	return r;
}
