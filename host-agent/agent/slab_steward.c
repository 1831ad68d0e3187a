/* SPDX-License-Identifier: Apache-2.0 */
/* What stewards do about slabs: they make them for sessions and for the pool, and scrub what somebody had. */
#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab_inside.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "proto/vocab.h"

#define STEWARD_NS (30 * GANTRY_NS_PER_S) /* a slab of some GiB takes milliseconds */
#define ASKED_MAX  4u			  /* requests of one device at once */
#define TRIES_MAX  3u			  /* a slab at which so many stewards died is given up */

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
	struct gantry_slab_pool *pool = gantry_slab_pool_of(slab);
	bool elsewhere = !gantry_list_is_empty(&pool->clean) ||
			 !gantry_list_is_empty(&pool->dirty) || pool->nasked > 0;

	if (status == GANTRY_E_NO_MEMORY)
		pool->is_short = true;
	if (!slab->session) {
		pool->making_bytes -= slab->bytes;
		gantry_slab_free(slab);
		return;
	}
	if ((status == GANTRY_E_NO_MEMORY && elsewhere) ||
	    (status == GANTRY_E_AGAIN && ++slab->ntries < TRIES_MAX)) {
		gantry_slab_release_clean(pool);
		slab->state = GANTRY_SLAB_WANTED;
		gantry_list_push_front(&pool->wanted, &slab->todo_link);
		return;
	}
	gantry_slab_give_up(slab, status, text);
}

static void was_made(struct gantry_slab *slab, int fd)
{
	struct gantry_slab_pool *pool = gantry_slab_pool_of(slab);

	slab->fd = fd;
	pool->nmade++;
	pool->is_short = false;
	if (!slab->session) {
		pool->making_bytes -= slab->bytes;
		gantry_slab_into_pool(slab);
		return;
	}
	gantry_slab_hold(slab);
	gantry_slab_answer_complete(slab->session);
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

	gantry_slab_pool_of(slab)->nasked--;
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
	gantry_slab_pump(a, device);
}

static void scrubbed(void *arg, const Gantry__Worker__FromWorker *said, int fd)
{
	struct gantry_slab *slab = arg;
	struct gantry_agent *a = slab->agent;
	uint32_t device = slab->device;
	struct gantry_slab_pool *pool = gantry_slab_pool_of(slab);
	const Gantry__Worker__Done *done = NULL;

	gantry_fd_close(fd);
	pool->nasked--;
	if (said && said->body_case == GANTRY__WORKER__FROM_WORKER__BODY_DONE)
		done = said->done;
	if (!said)
		end_steward(a, device);
	if (!done && ++slab->ntries < TRIES_MAX) {
		slab->state = GANTRY_SLAB_DIRTY;
		gantry_list_remove(&slab->link);
		gantry_list_push_front(&pool->dirty, &slab->link);
		gantry_slab_pump(a, device);
		return;
	}
	gantry_slab_out_of_dirty(slab);
	if (done && done->status == GANTRY_OK) {
		pool->scrubbed_bytes += slab->bytes;
	} else {
		gantry_event(a, "scrub-failed", NULL, NULL, NULL,
			     "device %s: a slab of %" PRIu64
			     " bytes is given back to the driver: %s",
			     a->devices[device].conf.name, slab->bytes,
			     done ? done->text : "the steward died again and again");
		gantry_slab_free(slab);
		gantry_slab_pump(a, device);
		return;
	}
	slab->ntries = 0;
	if (pool->is_short ||
	    pool->clean_bytes + slab->bytes > gantry_slab_pool_limit(&a->devices[device]))
		gantry_slab_free(slab);
	else
		gantry_slab_into_pool(slab);
	gantry_slab_pump(a, device);
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
	slab->state = GANTRY_SLAB_MAKING;
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
	slab->state = GANTRY_SLAB_SCRUBBING;
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
	uint64_t limit = gantry_slab_pool_limit(d);
	uint64_t unit = d->slab_align;

	return !a->stopping && !pool->is_short && d->state == GANTRY_DEVICE_ENABLED &&
	       gantry_slab_unit_bytes(pool, unit) + pool->making_bytes + unit <= limit / 2 &&
	       pool->clean_bytes + pool->making_bytes + unit <= limit &&
	       gantry_slab_host_count(a) + 1 <= gantry_slab_host_max() / 2 &&
	       pool->session_bytes + pool->clean_bytes + pool->dirty_bytes + pool->making_bytes +
			       unit <=
		       gantry_slab_device_limit(d);
}

static int fill_pool(struct gantry_agent *a, struct gantry_worker *steward, uint32_t device)
{
	struct gantry_slab_pool *pool = &a->pools[device];
	struct gantry_slab *slab = gantry_slab_new(a, device, a->devices[device].slab_align,
						   -EBADF);
	int r = slab ? ask_make(steward, slab) : -ENOMEM;

	if (r < 0) {
		if (slab)
			gantry_slab_free(slab);
		return r;
	}
	slab->state = GANTRY_SLAB_MAKING;
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

void gantry_slab_pump(struct gantry_agent *a, uint32_t device)
{
	struct gantry_worker *steward = gantry_steward_find(a, device);

	while (steward && a->pools[device].nasked < ASKED_MAX)
		if (ask_next(a, steward, device) < 0)
			return;
}

void gantry_slabs_pump(struct gantry_agent *a)
{
	for (uint32_t i = 0; i < a->ndevices; i++)
		gantry_slab_pump(a, i);
}
