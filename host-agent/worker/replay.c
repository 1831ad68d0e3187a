/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a task that may have run already reads what it read then.
 *
 * That a task leaves the same when it runs twice is not enough. Tasks of its queue that came after it may have run too
 * and have written over what it reads: then the second run gives another answer than the first did, and nobody would
 * know. Such a task is in doubt, unless the range has been written anew meanwhile by an older task that ran again.
 */
#include <string.h>

#include "host-agent/worker/worker.h"
#include "proto/codec.h"

#define SPACE_HEAP 1u /* no handle, no name of a share */
#define USES_MAX   GANTRY_MAX_ACCESSES

struct uses {
	uint32_t n;
	struct wuse {
		struct wspan span;
		uint32_t mode;
	} use[USES_MAX];
};

/* Two tasks are looked at together, never more; thread-local keeps them off the stack. */
static _Thread_local struct uses mine, later;
static _Thread_local uint8_t heap_copy[GANTRY_MAX_VAR_BYTES];

static void add(struct uses *u, uint64_t space, uint64_t off, uint64_t len, uint32_t mode)
{
	if (u->n < USES_MAX)
		u->use[u->n++] = (struct wuse){ .span = { space, off, len }, .mode = mode };
}

/* Two handles may mean the same memory: host buffers lie in the heap, adopted ones are another's. */
static void add_buffer(struct uses *u, struct wsession *s, uint64_t handle, uint64_t off,
		       uint64_t len, uint32_t mode)
{
	const struct gantry_ledger_object *obj;
	uint64_t space = handle;

	obj = &s->ledger.objects[GANTRY_HANDLE_SLOT(handle) % GANTRY_LEDGER_NOBJECTS];
	if (obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_BUFFER &&
	    obj->gen == GANTRY_HANDLE_GEN(handle)) {
		if (obj->buffer.place == GANTRY_PLACE_OWN)
			space = obj->buffer.share_id;
		if (obj->buffer.place == GANTRY_PLACE_HEAP) {
			space = SPACE_HEAP;
			if (len == 0)
				len = obj->buffer.bytes > off ? obj->buffer.bytes - off : 0;
			off += obj->buffer.off;
		}
	}
	/* 0: to the end, wherever that is. */
	add(u, space, off, len ? len : UINT64_MAX - off, mode);
}

static void launch_uses(struct uses *u, struct wsession *s, const struct gantry_ledger_task *task,
			const struct gantry_op_launch *op)
{
	uint64_t bytes = (uint64_t)op->naccess * sizeof(struct gantry_wire_access);
	const uint8_t *var = task->inl.bytes;
	void *ptr;

	if (op->naccess > GANTRY_MAX_ACCESSES || bytes > task->desc.len_bytes)
		return;
	if (!(task->desc.flags & GANTRY_DESC_INLINE)) {
		if (gantry_region_span(&s->heap, task->desc.off_bytes, bytes, 8, &ptr) < 0)
			return;
		gantry_region_copy_out(heap_copy, ptr, bytes);
		var = heap_copy;
	}
	for (uint32_t i = 0; i < op->naccess; i++) {
		struct gantry_wire_access a;

		memcpy(&a, var + i * sizeof(a), sizeof(a));
		add_buffer(u, s, a.buffer, a.off, a.len, a.mode);
	}
}

/* What the task at @pos reaches; nothing for one that cannot be decoded, as it cannot have run. */
static void uses_of(struct wqueue *q, uint64_t pos, struct uses *ret)
{
	struct wsession *s = q->session;
	const struct gantry_ledger_task *task = gantry_ledger_task(&s->ledger, q->slot, pos);
	union gantry_op_any op;

	ret->n = 0;
	if (gantry_desc_decode(&task->desc, false, s->version, &op) != GANTRY_OK)
		return;
	switch (task->desc.op) {
	case GANTRY_OP_launch:
		if (op.launch.kernel) /* or it only brings ranges to the device */
			launch_uses(ret, s, task, &op.launch);
		break;
	case GANTRY_OP_copy:
		add_buffer(ret, s, op.copy.src, op.copy.src_off, op.copy.bytes, GANTRY_R);
		add_buffer(ret, s, op.copy.dst, op.copy.dst_off, op.copy.bytes, GANTRY_W);
		break;
	case GANTRY_OP_fill:
		add_buffer(ret, s, op.fill.buffer, op.fill.off, op.fill.bytes, GANTRY_W);
		break;
	case GANTRY_OP_write:
		add(ret, SPACE_HEAP, op.write.heap_off, op.write.bytes, GANTRY_R);
		add_buffer(ret, s, op.write.buffer, op.write.off, op.write.bytes, GANTRY_W);
		break;
	case GANTRY_OP_read:
		add_buffer(ret, s, op.read.buffer, op.read.off, op.read.bytes, GANTRY_R);
		add(ret, SPACE_HEAP, op.read.heap_off, op.read.bytes, GANTRY_W);
		break;
	default:
		break;
	}
}

/* Offsets and lengths are the guest's and not checked here. */
static uint64_t end_of(const struct wspan *span)
{
	return span->len > UINT64_MAX - span->off ? UINT64_MAX : span->off + span->len;
}

static bool overlap(const struct wspan *a, const struct wspan *b)
{
	return a->space == b->space && a->off < end_of(b) && b->off < end_of(a);
}

static bool written_anew(const struct wqueue *q, const struct wspan *span)
{
	for (uint32_t i = 0; i < q->nredone; i++) {
		const struct wspan *r = &q->redone[i];

		if (r->space == span->space && r->off <= span->off && end_of(r) >= end_of(span))
			return true;
	}
	return false;
}

/* Whether the task of `later` may have changed what `mine` reads. */
static bool disturbs(const struct wqueue *q)
{
	for (uint32_t i = 0; i < mine.n; i++) {
		if (mine.use[i].mode == GANTRY_W || written_anew(q, &mine.use[i].span))
			continue;
		for (uint32_t k = 0; k < later.n; k++)
			if (later.use[k].mode != GANTRY_R &&
			    overlap(&mine.use[i].span, &later.use[k].span))
				return true;
	}
	return false;
}

bool worker_replay_reads_the_same(struct wqueue *q, uint64_t pos)
{
	uses_of(q, pos, &mine);
	for (uint64_t p = pos + 1; p < q->doubt_below; p++) {
		uses_of(q, p, &later);
		if (disturbs(q))
			return false;
	}
	for (uint32_t i = 0; i < mine.n; i++)
		/* It may be asked again about the same task: one that had to wait for memory. */
		if (mine.use[i].mode == GANTRY_W && q->nredone < WORKER_WINDOW_TASKS &&
		    !written_anew(q, &mine.use[i].span))
			q->redone[q->nredone++] = mine.use[i].span;
	return true;
}

uint32_t worker_task_buffers(struct wqueue *q, uint64_t pos, uint64_t *ret_handles, uint32_t cap)
{
	uint32_t n = 0;

	uses_of(q, pos, &later);
	for (uint32_t i = 0; i < later.n && n < cap; i++)
		if (GANTRY_HANDLE_TYPE(later.use[i].span.space) == GANTRY_HANDLE_BUFFER)
			ret_handles[n++] = later.use[i].span.space;
	return n;
}
