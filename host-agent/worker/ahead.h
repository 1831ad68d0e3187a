/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of buffers ahead of a queue that will move (ahead.c): what its mover calls. The session's lock is held. */
#ifndef GANTRY_HOST_AGENT_WORKER_AHEAD_H
#define GANTRY_HOST_AGENT_WORKER_AHEAD_H

#include "host-agent/worker/memory.h"

/*
 * From now on writes of the buffer are marked; at first all of it is. @to: the device it will go to, not of a
 * SPILL. Room is charged there. @mover: for whom. A status.
 */
int worker_ahead_begin_locked(struct wsession *s, uint32_t slot, enum wcarry_way way, uint32_t to,
			      const void *mover);
/* It does not go after all: what was charged goes back. */
void worker_ahead_drop_locked(struct wsession *s, uint32_t slot);
/*
 * A round begins: what is marked by now is its. Once what was bound before has finished it may be copied.
 */
void worker_ahead_round_locked(struct wahead *ahead);
/*
 * In a round, at any time: what has been marked in it so far ages. Once what was bound before has finished,
 * worker_ahead_settle_locked() has what is still to be copied in this round copied once, for both. @carry: the copy of it
 * that is under way; NULL: none is.
 */
void worker_ahead_age_locked(struct wahead *ahead);
void worker_ahead_settle_locked(struct wahead *ahead, const struct wcarry *carry);
/* What is marked for the next round. */
uint64_t worker_ahead_dirty_bytes(const struct wahead *ahead);
/* Memory where it goes. AGAIN: it was asked for, the device is woken. */
int worker_ahead_want_locked(struct wsession *s, uint32_t slot);
/* The copy of what is marked `todo`; the buffer stays where it is until worker_ahead_carried_locked(). */
struct wcarry worker_ahead_carry_locked(struct wsession *s, uint32_t slot);
void worker_ahead_carried_locked(struct wsession *s, uint32_t slot, bool arrived);

#endif
