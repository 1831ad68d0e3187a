/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last task that used each buffer, so that reading, writing or mapping one waits for its tasks and not for all
 * that is in flight.
 *
 * One word a buffer, by the slot of its handle: 0 for none, the ticket of the last task, or "several" once tasks of
 * more than one queue may use it at the same time: then all queues are waited for. Noting costs one
 * compare-and-swap an access, and no lookup.
 * Returns: -errno, or statuses where said. Threads: any, no lock.
 */
#ifndef GANTRY_GUEST_SHIM_USES_H
#define GANTRY_GUEST_SHIM_USES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "guest-shim/gantry.h"

/* Buffers whose handle has a slot past this are waited for with everything else. */
#define GANTRY_USES_SLOTS 8192u

struct gantry_session;

struct gantry_uses {
	uint64_t *last; /* owned, GANTRY_USES_SLOTS of them */
};

/* -ENOMEM. */
int gantry_uses_init(struct gantry_uses *uses);
void gantry_uses_fini(struct gantry_uses *uses);

/* The handle is new: nothing has used the buffer, whatever its slot was before. */
void gantry_uses_forget(struct gantry_session *s, gantry_buffer buffer);

/*
 * A task with this ticket, of a queue whose lock is held, uses the buffer; before it is published. False: this
 * queue's was not the last that did, and gantry_uses_note_other() has to be called.
 */
static inline bool gantry_uses_note(const struct gantry_uses *uses, gantry_buffer buffer,
				    gantry_ticket ticket)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(buffer);
	uint64_t before;

	if (slot >= GANTRY_USES_SLOTS)
		return true;
	before = gantry_load_relaxed(&uses->last[slot]);
	if (GANTRY_TICKET_QUEUE(before ^ ticket) != 0)
		return false;
	return gantry_cas(&uses->last[slot], &before, ticket);
}

/* The same for any buffer. */
void gantry_uses_note_other(struct gantry_session *s, gantry_buffer buffer, gantry_ticket ticket);

/*
 * The tickets to wait for until nothing submitted so far uses the buffer: by queue slot a count of tasks, 0 for none,
 * as gantry_wait_snapshot() has them.
 */
void gantry_uses_snapshot(struct gantry_session *s, gantry_buffer buffer, uint64_t ret_tails[]);

/* Until nothing submitted so far uses the buffer. A status, as gantry_wait_tails(). */
int gantry_uses_wait(struct gantry_session *s, gantry_buffer buffer, uint64_t deadline_ns);

#endif
