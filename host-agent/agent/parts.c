/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/parts.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/list.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/extents.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/tenant.h"

/* So that clearing takes a third of the agent's time at most. */
#define PAUSE_FACTOR 2u
/* After a step that the kernel did not take. */
#define TRY_AGAIN_NS (10 * GANTRY_NS_PER_MS)

/* Where in [from, end) memory begins that is not known to be zero; @end: nowhere. */
static uint64_t dirty_from(const struct gantry_doormem *m, uint64_t from, uint64_t end)
{
	off_t at = lseek(m->seek_fd, (off_t)from, SEEK_DATA);

	if (at < 0)
		return errno == ENXIO ? end : from;
	return gantry_min_u64((uint64_t)at, end);
}

/* Zero, and memory that the host has back until it is touched. */
static int punch(const struct gantry_doormem *m, uint64_t off, uint64_t bytes)
{
	return fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
			 (off_t)bytes) < 0
		       ? -errno
		       : 0;
}

/* ---- steps ---- */

static struct gantry_desk *desk_of(struct gantry_doormem *m, uint64_t off)
{
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++)
		if (m->desks[i].part == GANTRY_PART_CLEARING && m->desks[i].part_off == off)
			return &m->desks[i];
	return NULL;
}

static void is_clean(struct gantry_doormem *m, struct gantry_extent *x)
{
	struct gantry_desk *d = desk_of(m, x->off);

	m->nclearing--;
	if (!d) {
		(void)gantry_extents_put(&m->extents, x->off); /* it is there */
		return;
	}
	x->is_dirty = false;
	d->part = GANTRY_PART_READY;
}

/* -errno: the kernel did not take it. */
static int step(struct gantry_doormem *m)
{
	struct gantry_extent *x = gantry_extents_dirty(&m->extents, m->clear_next);
	uint64_t end = x->off + x->bytes;
	uint64_t at = dirty_from(m, x->clean_off, end);
	uint64_t bytes = gantry_min_u64(end - at, GANTRY_PARTS_STEP_BYTES);
	int r = bytes > 0 ? punch(m, at, bytes) : 0;

	m->clear_next = x->off + 1;
	if (r < 0)
		return r;
	m->tenant->nclearings += bytes > 0;
	m->tenant->cleared_bytes += bytes;
	x->clean_off = at + bytes;
	if (dirty_from(m, x->clean_off, end) == end)
		is_clean(m, x);
	return 0;
}

/* Those who wait for a part, or for room, and have it now or may have it. */
static void let_in(struct gantry_doormem *m)
{
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++) {
		struct gantry_desk *d = &m->desks[i];

		if (!d->open || d->conn.state != GANTRY_CONN_ATTACHING)
			continue;
		if (d->part == GANTRY_PART_ROOM)
			d->part = GANTRY_PART_NONE;
		else if (d->part != GANTRY_PART_READY)
			continue;
		gantry_conn_admit(&d->conn);
	}
}

static void turn(evutil_socket_t fd, short what, void *arg);

static void next_turn(struct gantry_agent *a, uint64_t after_ns)
{
	if (!gantry_list_is_empty(&a->clearing))
		/* Without memory for a timer: gantry_parts_go_on(). */
		(void)gantry_timer_set(a, &a->clear_timer, after_ns, turn, a);
}

static void turn(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	struct gantry_doormem *m = gantry_list_first(&a->clearing, struct gantry_doormem,
						     clearing_link);
	uint64_t began_ns = gantry_now_ns();
	uint64_t took_ns;
	uint32_t before;
	int r;

	(void)fd;
	(void)what;
	if (!m)
		return;
	before = m->nclearing;
	gantry_list_remove(&m->clearing_link);
	r = step(m);
	took_ns = gantry_now_ns() - began_ns;
	if (m->nclearing > 0)
		gantry_list_push_back(&a->clearing, &m->clearing_link);
	if (m->nclearing < before)
		let_in(m);
	gantry_doormem_reap(m);
	next_turn(a, r < 0 ? TRY_AGAIN_NS : took_ns * PAUSE_FACTOR);
}

/* The next turn is soon; if one is due already it stays as it is. */
static void begin(struct gantry_doormem *m, struct gantry_extent *x)
{
	struct gantry_agent *a = m->agent;
	bool is_first = gantry_list_is_empty(&a->clearing);

	x->is_dirty = true;
	x->clean_off = x->off;
	m->nclearing++;
	if (gantry_list_is_empty(&m->clearing_link))
		gantry_list_push_back(&a->clearing, &m->clearing_link);
	if (is_first)
		next_turn(a, 0);
}

void gantry_parts_go_on(struct gantry_agent *a)
{
	if (!a->clear_timer || !event_pending(a->clear_timer, EV_TIMEOUT, NULL))
		next_turn(a, 0);
}

/* ---- parts ---- */

int gantry_parts_take(struct gantry_desk *d, uint64_t bytes)
{
	struct gantry_doormem *m = d->mem;

	if (gantry_extents_take(&m->extents, bytes, &d->part_off) < 0) {
		if (m->nclearing == 0)
			return -ENOSPC;
		d->part = GANTRY_PART_ROOM;
		return 1;
	}
	/* What the machine wrote where nothing was its, or an agent before us has not cleared. */
	if (dirty_from(m, d->part_off, d->part_off + bytes) == d->part_off + bytes) {
		d->part = GANTRY_PART_READY;
		return 0;
	}
	d->part = GANTRY_PART_CLEARING;
	begin(m, gantry_extents_find(&m->extents, d->part_off));
	return 1;
}

void gantry_parts_forget(struct gantry_desk *d)
{
	/* It is there in either state. */
	if (d->part == GANTRY_PART_READY)
		(void)gantry_extents_put(&d->mem->extents, d->part_off);
	else if (d->part == GANTRY_PART_CLEARING)
		gantry_extents_find(&d->mem->extents, d->part_off)->is_leaving = true;
	d->part = GANTRY_PART_NONE;
}

void gantry_parts_put(struct gantry_doormem *m, uint64_t off)
{
	struct gantry_extent *x = gantry_extents_find(&m->extents, off);

	if (!x)
		return;
	if (dirty_from(m, off, off + x->bytes) == off + x->bytes) {
		(void)gantry_extents_put(&m->extents, off); /* it is there */
		return;
	}
	x->is_leaving = true;
	begin(m, x);
}

void gantry_parts_clear_all(struct gantry_doormem *m, uint64_t begin_off)
{
	uint64_t off;

	gantry_list_remove(&m->clearing_link);
	m->nclearing = 0;
	gantry_extents_init(&m->extents, begin_off, m->bytes);
	if (gantry_extents_take(&m->extents, m->bytes - begin_off, &off) == 0)
		gantry_parts_put(m, off);
}
