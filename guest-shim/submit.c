/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's part of the road of a task. No system call, no allocation, one copy: straight into
 * the ring.
 */
#include <stddef.h>
#include <string.h>

#include "base/atomic.h"
#include "guest-shim/device.h"
#include "guest-shim/error.h"
#include "guest-shim/queue.h"
#include "guest-shim/wait.h"

/* What a program passes as accesses is what goes over the wire. */
static_assert(
	sizeof(struct gantry_access) == sizeof(struct gantry_wire_access) &&
		offsetof(struct gantry_access, buffer) ==
			offsetof(struct gantry_wire_access, buffer) &&
		offsetof(struct gantry_access, off) == offsetof(struct gantry_wire_access, off) &&
		offsetof(struct gantry_access, len) == offsetof(struct gantry_wire_access, len) &&
		offsetof(struct gantry_access, mode) == offsetof(struct gantry_wire_access, mode) &&
		offsetof(struct gantry_access, arg_off) ==
			offsetof(struct gantry_wire_access, arg_off),
	"gantry_access is gantry_wire_access");
static_assert(GANTRY_NO_ARG == GANTRY_ARG_NONE, "no argument is the same to both");

#define TICKETS_PER_WAIT 6u

/* ---- checks ---- */

static int check_access(const struct gantry_access *access, uint32_t args_bytes)
{
	int status = gantry_wire_access_check((const struct gantry_wire_access *)access,
					      args_bytes);

	return status < 0 ? gantry_fail(status, "an access: %s", gantry_status_text(status)) : 0;
}

static int check_task(const struct gantry_task *t)
{
	if (GANTRY_HANDLE_TYPE(t->kernel) != GANTRY_HANDLE_KERNEL && t->kernel)
		return gantry_fail(GANTRY_E_HANDLE, "0x%llx is no kernel",
				   (unsigned long long)t->kernel);
	if (t->naccess > GANTRY_MAX_ACCESSES || (!t->access && t->naccess > 0))
		return gantry_fail(GANTRY_E_ARG, "a task has up to %u accesses",
				   GANTRY_MAX_ACCESSES);
	if (t->args_bytes > GANTRY_MAX_ARGS_BYTES || (!t->args && t->args_bytes > 0))
		return gantry_fail(GANTRY_E_ARG, "a task has up to %u bytes of arguments",
				   GANTRY_MAX_ARGS_BYTES);
	if (t->flags & ~GANTRY_TASK_FLAGS)
		return gantry_fail(GANTRY_E_ARG, "a task has no flags 0x%x", t->flags);
	if (t->nafter > 0 && !t->after)
		return gantry_fail(GANTRY_E_ARG, "a task waits for tickets at NULL");
	for (uint32_t i = 0; i < t->naccess; i++) {
		int r = check_access(&t->access[i], t->args_bytes);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Apart, as what else few tasks need: the road of the others is short where it has the registers for itself. */
__attribute__((noinline)) static int check_tickets(struct gantry_session *s,
						   const gantry_ticket *tickets, unsigned n)
{
	struct gantry_queue_end *q;
	uint64_t seq;

	for (unsigned i = 0; i < n; i++) {
		int r = tickets[i] ? gantry_ticket_find(s, tickets[i], &q, &seq) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* Everything, before the first task is put: what is refused here leaves nothing behind. */
static int check_tasks(struct gantry_session *s, const struct gantry_task *tasks, unsigned n)
{
	if (!tasks && n > 0)
		return gantry_fail(GANTRY_E_ARG, "there are no tasks at NULL");
	for (unsigned i = 0; i < n; i++) {
		int r = check_task(&tasks[i]);

		if (r == 0 && tasks[i].nafter > 0)
			r = check_tickets(s, tasks[i].after, tasks[i].nafter);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_buffer(gantry_buffer buffer)
{
	if (GANTRY_HANDLE_TYPE(buffer) != GANTRY_HANDLE_BUFFER)
		return gantry_fail(GANTRY_E_HANDLE, "0x%llx is no buffer",
				   (unsigned long long)buffer);
	return 0;
}

/* ---- encoding ---- */

/*
 * Whether a task of @q has to be told to wait for it: its own queue keeps the order, the past is
 * past.
 */
static bool is_needed(struct gantry_session *s, const struct gantry_queue_end *q,
		      gantry_ticket ticket)
{
	uint32_t slot = GANTRY_TICKET_QUEUE(ticket);

	if (ticket == 0 || slot == q->slot)
		return false;
	return gantry_queue_done(&s->queues[slot]) < GANTRY_TICKET_SEQ(ticket);
}

static int put_wait(struct gantry_batch *b, const gantry_ticket tickets[TICKETS_PER_WAIT])
{
	struct gantry_op_wait args = {
		tickets[0], tickets[1], tickets[2], tickets[3], tickets[4], tickets[5],
	};
	struct gantry_desc *desc;
	struct gantry_inline *inl;
	int r = gantry_batch_slot(b, &desc, &inl);

	if (r == 0)
		gantry_desc_put_wait(desc, &args);
	return r;
}

/* As few wait operations as hold the tickets that are still to be waited for. */
static int put_waits(struct gantry_batch *b, const gantry_ticket *tickets, unsigned n)
{
	gantry_ticket group[TICKETS_PER_WAIT] = { 0 };
	unsigned ngroup = 0;
	int r = 0;

	for (unsigned i = 0; i < n && r == 0; i++) {
		if (!is_needed(b->session, b->queue, tickets[i]))
			continue;
		group[ngroup++] = tickets[i];
		if (ngroup < TICKETS_PER_WAIT)
			continue;
		r = put_wait(b, group);
		ngroup = 0;
		memset(group, 0, sizeof(group));
	}
	return r == 0 && ngroup > 0 ? put_wait(b, group) : r;
}

static gantry_ticket ticket_of(const struct gantry_batch *b)
{
	return GANTRY_TICKET(b->queue->slot, gantry_batch_seq(b));
}

static inline void note_use(struct gantry_session *s, const struct gantry_uses *uses,
			    gantry_buffer buffer, gantry_ticket ticket)
{
	if (__builtin_expect(!gantry_uses_note(uses, buffer, ticket), 0))
		gantry_uses_note_other(s, buffer, ticket);
}

/* Accesses and arguments of the task in the slot filled last, to @var; what it uses is noted. Its ticket. */
static inline gantry_ticket encode_var(const struct gantry_batch *b, const struct gantry_task *t,
				       uint8_t *var)
{
	const struct gantry_access *access = t->access;
	uint8_t *args = var + t->naccess * sizeof(*access);
	gantry_ticket ticket = ticket_of(b);
	struct gantry_session *s = b->session;
	const struct gantry_uses uses = s->uses;

	if (t->args_bytes > 0)
		memcpy(args, t->args, t->args_bytes);
	for (; var != args; var += sizeof(*access), access++) {
		memcpy(var, access, sizeof(*access));
		note_use(s, &uses, access->buffer, ticket);
	}
	return ticket;
}

static inline void encode(struct gantry_desc *desc, const struct gantry_task *t)
{
	const struct gantry_op_launch args = {
		.kernel = t->kernel,
		.grid_x = t->grid[0],
		.grid_y = t->grid[1],
		.grid_z = t->grid[2],
		.block_x = t->block[0],
		.block_y = t->block[1],
		.block_z = t->block[2],
		.shared_bytes = t->shared_bytes,
		.est_us = t->est_us,
		.naccess = (uint16_t)t->naccess,
		.args_bytes = (uint16_t)t->args_bytes,
		.task_flags = t->flags,
	};

	gantry_desc_put_launch(desc, &args);
}

/* One whose variable part does not fit beside its descriptor. */
__attribute__((noinline)) static int put_big_task(struct gantry_batch *b,
						  const struct gantry_task *t, uint32_t len,
						  gantry_ticket *ret_ticket)
{
	struct gantry_desc *desc;
	uint64_t heap_off;
	uint8_t *record;
	int r = gantry_batch_slot_record(b, len, &desc, &record, &heap_off);

	if (r < 0)
		return r;
	encode(desc, t);
	*ret_ticket = encode_var(b, t, record);
	gantry_desc_set_heap(desc, heap_off, len);
	return 0;
}

static inline int put_task(struct gantry_batch *b, const struct gantry_task *t,
			   gantry_ticket *ret_ticket)
{
	uint32_t len = t->naccess * (uint32_t)sizeof(struct gantry_wire_access) + t->args_bytes;
	struct gantry_desc *desc;
	struct gantry_inline *inl;
	int r = t->nafter > 0 ? put_waits(b, t->after, t->nafter) : 0;

	if (r < 0)
		return r;
	if (len > GANTRY_INLINE_BYTES)
		return put_big_task(b, t, len, ret_ticket);
	r = gantry_batch_slot(b, &desc, &inl);
	if (r < 0)
		return r;
	encode(desc, t);
	if (len > 0)
		gantry_desc_set_inline(desc, len);
	*ret_ticket = encode_var(b, t, inl->bytes);
	return 0;
}

/* ---- the API ---- */

int gantry_submit(struct gantry_session *session, gantry_queue queue,
		  const struct gantry_task *tasks, unsigned n, gantry_ticket *ret_last)
{
	gantry_ticket last = 0;
	struct gantry_batch b;
	unsigned nput = 0;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = gantry_session_alive(session);
	if (r == 0)
		r = check_tasks(session, tasks, n);
	if (r == 0)
		r = gantry_queue_begin(&b, session, queue, 0);
	if (r < 0)
		return r;

	for (; nput < n; nput++) {
		r = put_task(&b, &tasks[nput], &last);
		if (r < 0)
			break;
	}
	gantry_store_relaxed(&b.queue->nsubmitted, b.queue->nsubmitted + nput);
	gantry_batch_end(&b);
	if (ret_last && (r == 0 || r == GANTRY_E_AGAIN))
		*ret_last = last;
	return r;
}

/* Puts one operation that has no variable part and uses up to two buffers (0: none); @desc is complete. */
static int submit_one(struct gantry_session *s, gantry_queue queue, const struct gantry_desc *desc,
		      gantry_buffer one, gantry_buffer other, gantry_ticket *ret_ticket)
{
	struct gantry_desc *slot;
	struct gantry_inline *inl;
	struct gantry_batch b;
	int r = gantry_session_alive(s);

	if (r == 0)
		r = gantry_queue_begin(&b, s, queue, 0);
	if (r < 0)
		return r;
	r = gantry_batch_slot(&b, &slot, &inl);
	if (r == 0) {
		*slot = *desc;
		if (one)
			note_use(s, &s->uses, one, ticket_of(&b));
		if (other)
			note_use(s, &s->uses, other, ticket_of(&b));
		gantry_store_relaxed(&b.queue->nsubmitted, b.queue->nsubmitted + 1);
		if (ret_ticket)
			*ret_ticket = ticket_of(&b);
	}
	gantry_batch_end(&b);
	return r;
}

int gantry_submit_copy(struct gantry_session *session, gantry_queue queue, gantry_buffer dst,
		       uint64_t dst_off, gantry_buffer src, uint64_t src_off, uint64_t bytes,
		       gantry_ticket *ret_ticket)
{
	struct gantry_op_copy args = {
		.dst = dst,
		.dst_off = dst_off,
		.src = src,
		.src_off = src_off,
		.bytes = bytes,
	};
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = check_buffer(dst);
	if (r == 0)
		r = check_buffer(src);
	if (r < 0)
		return r;
	gantry_desc_put_copy(&desc, &args);
	return submit_one(session, queue, &desc, dst, src, ret_ticket);
}

int gantry_submit_fill(struct gantry_session *session, gantry_queue queue, gantry_buffer buffer,
		       uint64_t off, uint64_t bytes, uint64_t pattern, unsigned pattern_bytes,
		       gantry_ticket *ret_ticket)
{
	struct gantry_op_fill args = {
		.buffer = buffer,
		.off = off,
		.bytes = bytes,
		.pattern = pattern,
		.pattern_bytes = pattern_bytes,
	};
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = check_buffer(buffer);
	if (r < 0)
		return r;
	if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4 && pattern_bytes != 8)
		return gantry_fail(GANTRY_E_ARG, "a pattern has 1, 2, 4 or 8 bytes, not %u",
				   pattern_bytes);
	gantry_desc_put_fill(&desc, &args);
	return submit_one(session, queue, &desc, buffer, 0, ret_ticket);
}

int gantry_submit_marker(struct gantry_session *session, gantry_queue queue,
			 gantry_ticket *ret_ticket)
{
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	gantry_desc_put_marker(&desc, &(struct gantry_op_marker){ 0 });
	return submit_one(session, queue, &desc, 0, 0, ret_ticket);
}

int gantry_submit_stamp(struct gantry_session *session, gantry_queue queue, uint64_t heap_off,
			gantry_ticket *ret_ticket)
{
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	gantry_desc_put_stamp(&desc, &(struct gantry_op_stamp){ .heap_off = heap_off });
	return submit_one(session, queue, &desc, 0, 0, ret_ticket);
}

int gantry_submit_transfer(struct gantry_session *session, gantry_queue queue, bool is_write,
			   gantry_buffer buffer, uint64_t off, uint64_t heap_off, uint64_t bytes,
			   gantry_ticket *ret_ticket)
{
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = check_buffer(buffer);
	if (r < 0)
		return r;
	if (is_write)
		gantry_desc_put_write(&desc, &(struct gantry_op_write){ .buffer = buffer,
									.off = off,
									.heap_off = heap_off,
									.bytes = bytes });
	else
		gantry_desc_put_read(&desc, &(struct gantry_op_read){ .buffer = buffer,
								      .off = off,
								      .heap_off = heap_off,
								      .bytes = bytes });
	return submit_one(session, queue, &desc, buffer, 0, ret_ticket);
}

/* The host sees a word of the heap where memory is shared; else it goes there with a task that does nothing. */
static int submit_word(struct gantry_session *s, gantry_queue queue, uint64_t heap_off)
{
	const struct gantry_op_launch args = { .args_bytes = sizeof(uint64_t) };
	struct gantry_desc desc;

	gantry_desc_put_launch(&desc, &args);
	gantry_desc_set_heap(&desc, heap_off, sizeof(uint64_t));
	return submit_one(s, queue, &desc, 0, 0, NULL);
}

int gantry_submit_await(struct gantry_session *session, gantry_queue queue, uint64_t heap_off,
			uint64_t value, gantry_ticket *ret_ticket)
{
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	/* What is there at the host may be of another's. */
	if (session->transport->is_pumped)
		r = submit_word(session, queue, heap_off);
	if (r < 0)
		return r;
	gantry_desc_put_await(&desc,
			      &(struct gantry_op_await){ .heap_off = heap_off, .value = value });
	return submit_one(session, queue, &desc, 0, 0, ret_ticket);
}

int gantry_await_end(struct gantry_session *session, gantry_queue other, uint64_t heap_off,
		     uint64_t value)
{
	uint64_t *word = (uint64_t *)(session->heap_region.base + heap_off);
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	/* Release: pairs with the acquire in bind_await() of the host; what was written before comes first. */
	gantry_store_release(word, value);
	return gantry_await_again(session, other, heap_off);
}

int gantry_await_again(struct gantry_session *session, gantry_queue other, uint64_t heap_off)
{
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	return session->transport->is_pumped ? submit_word(session, other, heap_off)
					     : gantry_submit_marker(session, other, NULL);
}

int gantry_submit_wait(struct gantry_session *session, gantry_queue queue,
		       const gantry_ticket *tickets, unsigned n, gantry_ticket *ret_ticket)
{
	struct gantry_batch b;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = gantry_session_alive(session);
	if (r < 0)
		return r;
	if (n > 0 && !tickets)
		return gantry_fail(GANTRY_E_ARG, "there are no tickets at NULL");
	r = check_tickets(session, tickets, n);
	if (r == 0)
		r = gantry_queue_begin(&b, session, queue, 0);
	if (r < 0)
		return r;
	r = put_waits(&b, tickets, n);
	if (r == 0 && ret_ticket) /* of the last wait; if none was needed, of what is before it */
		*ret_ticket = gantry_batch_seq(&b) ? ticket_of(&b) : 0;
	gantry_batch_end(&b);
	return r;
}
