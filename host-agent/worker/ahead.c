/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that are copied ahead of a queue that will move, while it runs. A buffer is used where it is; threads no
 * longer write it by a look at `ready` alone, but come to the lock and mark what they will write. The marks of a round are
 * taken first; then what was bound before is waited for (quiet.c), so that it has written; then they are copied. Who writes
 * meanwhile has marked it for the next round, unless all of that turns out to have finished before its place was copied in this
 * one: such marks age, from one look between two pieces to a later one. Programs write upwards more often than not, so
 * that the copy goes downwards, and meets them once. A move to the same place takes the last marks along (move.c).
 */
#include "host-agent/worker/ahead.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "base/checked.h"

static struct gantry_ledger_buffer *buffer_of(struct wsession *s, uint32_t slot)
{
	return &s->ledger.objects[slot].buffer;
}

bool worker_ahead_holds_locked(const struct wsession *s, uint32_t slot)
{
	const struct wahead *ahead = s->objects[slot].ahead;

	return ahead && ahead->carried;
}

void worker_ahead_written_locked(struct wsession *s, uint32_t slot, uint64_t off, uint64_t len)
{
	struct wahead *ahead = s->objects[slot].ahead;

	if (ahead)
		worker_marks_add(&ahead->dirty, off, len);
}

void worker_ahead_end_locked(struct wsession *s, uint32_t slot)
{
	free(s->objects[slot].ahead);
	s->objects[slot].ahead = NULL;
}

/* Room where it goes. SPILL: host memory, of which the ledger says that it is worth nothing yet. */
static int reserve_locked(struct wsession *s, uint32_t slot, enum wcarry_way way, uint32_t to)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	int status = GANTRY_OK;

	if (way == CARRY_SPILL) {
		if (b->host_copy == GANTRY_HOST_COPY_NONE)
			status = worker_charge_host(s, b);
		if (status == GANTRY_OK)
			gantry_store_release(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_FILLING);
		return status;
	}
	if (!gantry_range_inside(b->off, worker_page_up(b->bytes), s->windows[to]->bytes))
		return GANTRY_E_LIMIT;
	return worker_move_reserve_locked(s->engine->devices[to], s, slot);
}

int worker_ahead_begin_locked(struct wsession *s, uint32_t slot, enum wcarry_way way, uint32_t to,
			      const void *mover)
{
	struct wobject *rt = &s->objects[slot];
	bool is_there = way == CARRY_SPILL ? buffer_of(s, slot)->host_copy == GANTRY_HOST_COPY_CLEAN
					   : (rt->clean >> to & 1) != 0;
	struct wahead *ahead = calloc(1, sizeof(*ahead));
	int status;

	if (!ahead)
		return GANTRY_E_NO_MEMORY;
	status = reserve_locked(s, slot, way, to);
	if (status != GANTRY_OK) {
		free(ahead);
		return status;
	}
	ahead->mover = mover;
	ahead->way = way;
	ahead->to = to;
	worker_marks_init(&ahead->dirty, worker_page_up(buffer_of(s, slot)->bytes), !is_there);
	worker_marks_init(&ahead->todo, ahead->dirty.len_bytes, false);
	worker_marks_init(&ahead->aging, ahead->dirty.len_bytes, false);
	worker_marks_init(&ahead->again, ahead->dirty.len_bytes, false);
	if (way != CARRY_SPILL)
		rt->dirty |= 1u << to;
	rt->ahead = ahead;
	/* From now on whoever writes it comes to the lock, or reads a copy. What was bound before is waited for. */
	gantry_store_relaxed(&rt->ready, rt->ready & 1u << buffer_of(s, slot)->device);
	return GANTRY_OK;
}

void worker_ahead_drop_locked(struct wsession *s, uint32_t slot)
{
	struct wahead *ahead = s->objects[slot].ahead;

	if (ahead->way == CARRY_SPILL) {
		worker_replica_host_gone_locked(s, slot);
	} else {
		const struct gantry_ledger_buffer *b = buffer_of(s, slot);

		worker_window_unask_locked(s, ahead->to, b->off, worker_page_up(b->bytes));
		worker_move_forget_locked(s, slot);
	}
	worker_ahead_end_locked(s, slot);
}

int worker_ahead_want_locked(struct wsession *s, uint32_t slot)
{
	const struct wahead *ahead = s->objects[slot].ahead;
	const struct gantry_ledger_buffer *b = buffer_of(s, slot);

	uint64_t left = worker_page_up(b->bytes);
	int status = GANTRY_OK;

	if (ahead->way == CARRY_SPILL)
		return GANTRY_OK;
	/* From above, as it is copied: slabs come in the order in which they were asked for. */
	while (left > 0) {
		uint64_t bytes = GANTRY_MIN(left, WORKER_ASK_AT_ONCE);
		int one = worker_window_want_locked(s, ahead->to, b->off + left - bytes, bytes);

		if (one != GANTRY_OK && one != GANTRY_E_AGAIN)
			return one;
		status = one == GANTRY_OK ? status : one;
		left -= bytes;
	}
	return status;
}

void worker_ahead_round_locked(struct wahead *ahead)
{
	worker_marks_take(&ahead->todo, &ahead->dirty);
	worker_marks_take(&ahead->todo, &ahead->aging);
	worker_marks_take(&ahead->todo, &ahead->again);
}

void worker_ahead_age_locked(struct wahead *ahead)
{
	worker_marks_take(&ahead->aging, &ahead->dirty);
}

void worker_ahead_settle_locked(struct wahead *ahead, const struct wcarry *carry)
{
	worker_marks_forget(&ahead->aging, &ahead->todo, carry ? carry->at : UINT64_MAX);
	worker_marks_take(&ahead->again, &ahead->aging);
}

uint64_t worker_ahead_dirty_bytes(const struct wahead *ahead)
{
	struct wmarks all = ahead->dirty, aging = ahead->aging, again = ahead->again;

	worker_marks_take(&all, &aging);
	worker_marks_take(&all, &again);
	return worker_marks_bytes(&all);
}

struct wcarry worker_ahead_carry_locked(struct wsession *s, uint32_t slot)
{
	const struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wahead *ahead = s->objects[slot].ahead;

	ahead->carried = true;
	return (struct wcarry){ .session = s,
				.way = ahead->way,
				.from = b->device,
				.off = b->off,
				.len = worker_page_up(b->bytes),
				.only = &ahead->todo,
				.downwards = true,
				.at = worker_page_up(b->bytes) };
}

void worker_ahead_carried_locked(struct wsession *s, uint32_t slot, bool arrived)
{
	struct wahead *ahead = s->objects[slot].ahead;

	ahead->carried = false;
	if (arrived)
		worker_marks_init(&ahead->todo, ahead->todo.len_bytes, false);
}
