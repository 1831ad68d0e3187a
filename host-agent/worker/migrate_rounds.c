/* SPDX-License-Identifier: Apache-2.0 */
/* A queue that moves between devices: what it owns is copied ahead, in rounds, while it runs. Run on one thread, see migrate.c. */
#include <errno.h>

#include "base/checked.h"
#include "host-agent/worker/ahead.h"
#include "host-agent/worker/migrate.h"

#define ROUND_PIECES	16u
#define PIECE_BYTES_MIN (16ull << 20)

/* ---- which parts ---- */

/* What it owns by now is copied ahead from now on; the marks of this round are taken. From above, as they are copied. */
static int look_locked(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;
	uint32_t users = 1u << mg->from;

	for (uint32_t i = GANTRY_LEDGER_NOBJECTS; i-- > 0;) {
		struct wobject *rt = &s->objects[i];
		int status;

		if (!worker_migration_owns_locked(mg, i) || rt->moving ||
		    (rt->ahead && rt->ahead->mover != mg))
			continue;
		if (!rt->ahead) {
			status = worker_ahead_begin_locked(s, i, mg->way, mg->to, mg);
			if (status != GANTRY_OK)
				return status;
			/* The memory of all is on its way while the first is copied. */
			status = worker_ahead_want_locked(s, i);
			if (status != GANTRY_OK && status != GANTRY_E_AGAIN)
				return status;
		}
		worker_ahead_round_locked(rt->ahead);
		users |= rt->users;
	}
	return worker_quiet_begin_locked(&mg->quiet, s, users, UINT64_MAX);
}

/* The marks that were aging have aged: what of them is to be copied yet is not marked any more. */
static void settle_marks_locked(struct wmigration *mg)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wahead *ahead = worker_migration_ahead_locked(mg, i);

		if (ahead)
			worker_ahead_settle_locked(ahead, mg->carrying && i == mg->slot ? &mg->carry
											: NULL);
	}
	mg->stamping = false;
}

/* Marks made in this round so far age from now on. */
static int age_marks_locked(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;
	uint32_t users = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wahead *ahead = worker_migration_ahead_locked(mg, i);

		if (!ahead || worker_marks_bytes(&ahead->dirty) == 0)
			continue;
		worker_ahead_age_locked(ahead);
		users |= s->objects[i].users | 1u << mg->from;
	}
	if (!users)
		return GANTRY_OK;
	mg->stamping = true;
	return worker_quiet_begin_locked(&mg->stamp, s, users, UINT64_MAX);
}

/* Between two pieces. Nothing is waited for: what has not finished is looked at before the next piece. */
static int stamp(struct wmigration *mg, struct gantry_err *err)
{
	struct wsession *s = mg->job.session;
	int status = GANTRY_OK;

	if (mg->stamping && !worker_quiet_reached(mg->d, &mg->stamp))
		return 0;
	pthread_mutex_lock(&s->lock);
	if (mg->stamping)
		settle_marks_locked(mg);
	status = age_marks_locked(mg);
	pthread_mutex_unlock(&s->lock);
	return worker_migration_error(status, err);
}

bool worker_migration_is_alone(struct wmigration *mg)
{
	return worker_quiet_visited(&mg->quiet) && worker_quiet_visited(&mg->stamp);
}

/* ---- copying ---- */

/* Memory for the next copy, where it goes. 0 also where nothing is left to copy. */
static int next_memory_locked(const struct wmigration *mg, const struct wcarry *carry,
			      struct gantry_err *err)
{
	uint64_t off, bytes;

	if (carry->way == CARRY_SPILL || !worker_carry_peek(carry, &off, &bytes))
		return 0;
	return worker_migration_error(
		worker_window_want_locked(mg->job.session, mg->to, off, bytes), err);
}

/* Small beside all of it, so that marks have time to age; not so small that waiting for its end counts. */
static uint64_t piece_of(const struct wmigration *mg)
{
	return GANTRY_MAX(mg->m.counts.owned_bytes / ROUND_PIECES, PIECE_BYTES_MIN);
}

/* The next buffer of the round that has memory for its first copy. 1: it is mg->slot; 0: that was the last. */
static int next_buffer_locked(struct wmigration *mg, struct gantry_err *err)
{
	struct wsession *s = mg->job.session;

	while (mg->left > 0) {
		struct wahead *ahead = worker_migration_ahead_locked(mg, --mg->left);
		int r;

		mg->slot = mg->left;
		if (!ahead || s->objects[mg->slot].moving || worker_marks_bytes(&ahead->todo) == 0)
			continue;
		mg->carry = worker_ahead_carry_locked(s, mg->slot);
		mg->carry.most = piece_of(mg);
		r = next_memory_locked(mg, &mg->carry, err);
		if (r == 0) {
			mg->carrying = true;
			return 1;
		}
		worker_ahead_carried_locked(s, mg->slot, false);
		if (r != -EAGAIN)
			return r;
		mg->waits = true;
	}
	if (!mg->waits)
		return 0;
	/* From the start: what has been copied is marked no more. */
	mg->waits = false;
	mg->left = GANTRY_LEDGER_NOBJECTS;
	return -EAGAIN;
}

void worker_migration_stop_carrying(struct wmigration *mg, bool arrived)
{
	struct wsession *s = mg->job.session;

	if (!mg->carrying)
		return;
	worker_carry_close(mg->d, &mg->carry);
	pthread_mutex_lock(&s->lock);
	worker_ahead_carried_locked(s, mg->slot, arrived);
	pthread_mutex_unlock(&s->lock);
	mg->carrying = false;
	mg->round_bytes += mg->carry.moved_bytes;
	worker_session_wake(s); /* who wants to move or free it may */
}

static int carry_on(struct wmigration *mg, struct gantry_err *err)
{
	struct wsession *s = mg->job.session;
	bool more;
	int r;

	for (;;) {
		r = stamp(mg, err);
		if (r < 0)
			return r;
		if (!mg->carrying) {
			pthread_mutex_lock(&s->lock);
			r = next_buffer_locked(mg, err);
			pthread_mutex_unlock(&s->lock);
			if (r <= 0)
				return r;
		}
		pthread_mutex_lock(&s->lock);
		r = next_memory_locked(mg, &mg->carry, err);
		pthread_mutex_unlock(&s->lock);
		if (r < 0)
			return r;
		r = worker_migration_error(worker_carry_next(mg->d, &mg->carry, mg->cmd, &more),
					   err);
		if (r < 0)
			return r;
		if (more) {
			mg->has_command = true;
			return -EAGAIN;
		}
		worker_migration_stop_carrying(mg, true);
	}
}

static uint64_t dirty_bytes(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;
	uint64_t bytes = 0;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct wahead *ahead = worker_migration_ahead_locked(mg, i);

		if (ahead)
			bytes += worker_ahead_dirty_bytes(ahead);
	}
	pthread_mutex_unlock(&s->lock);
	return bytes;
}

int worker_migration_round(struct wmigration *mg, uint64_t *ret_bytes, uint64_t *ret_dirty,
			   struct gantry_err *err)
{
	struct wsession *s = mg->job.session;
	int r = 0;

	if (mg->phase == PHASE_LOOK) {
		pthread_mutex_lock(&s->lock);
		r = worker_migration_error(look_locked(mg), err);
		pthread_mutex_unlock(&s->lock);
		if (r < 0)
			return r == -EAGAIN ? -EIO : r;
		mg->waits = false;
		mg->phase = PHASE_QUIET;
		mg->round_bytes = 0;
		mg->left = GANTRY_LEDGER_NOBJECTS;
	}
	if (mg->phase == PHASE_QUIET) {
		if (!worker_quiet_reached(mg->d, &mg->quiet))
			return -EAGAIN;
		mg->phase = PHASE_CARRY;
	}
	if (mg->phase == PHASE_CARRY)
		r = carry_on(mg, err);
	if (r < 0)
		return r;
	mg->phase = PHASE_CARRIED;
	if (!worker_quiet_visited(&mg->stamp))
		return -EAGAIN;
	mg->stamping = false; /* what ages is of the next round, which looks anew */
	mg->phase = PHASE_LOOK;
	*ret_bytes = mg->round_bytes;
	*ret_dirty = dirty_bytes(mg);
	return 0;
}
