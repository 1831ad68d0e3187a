/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: queues of the session. Where it has no more of them streams share one, which only takes away concurrency.
 *
 * The legacy stream and the others of its context that are blocking wait for each other, as CUDA has it: what goes into
 * the one is put behind the newest of the others, and what goes into them behind its newest.
 */
#include <stdlib.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/mirror.h"
#include "guest-shim/queue.h"
#include "guest-shim/session.h"

#define WAIT_GROUP 32u
/* A call puts no more than this part of a ring, or so many: the smallest has 16 slots. */
#define ROOM_PART  8u
#define ROOM_LEAST 4u

static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;

/* ---- life ---- */

/* Any stream of the context's device that has a queue. */
static gantry_queue any_queue(const struct CUctx_st *ctx)
{
	for (const struct CUstream_st *s = ctx->streams; s; s = s->next)
		if (!s->shares_queue && !s->builds)
			return s->queue;
	return 0;
}

/*
 * Queues of streams that were destroyed with work in them. It runs to its end, and nobody waits for that.
 */
static struct {
	gantry_queue queue;
	gantry_ticket last;
} dying[GANTRY_MAX_QUEUES];
static uint32_t ndying;

static bool is_done(gantry_ticket ticket)
{
	const struct gantry_queue_end *q = &cu.session->queues[GANTRY_TICKET_QUEUE(ticket)];

	return ticket == 0 || gantry_ring_done(&q->ring.map) >= GANTRY_TICKET_SEQ(ticket);
}

static void close_done(void)
{
	for (uint32_t i = 0; i < ndying;)
		if (is_done(dying[i].last)) {
			(void)gantry_queue_close(cu.session, dying[i].queue);
			dying[i] = dying[--ndying];
		} else {
			i++;
		}
}

static void close_queue(const struct CUstream_st *stream)
{
	close_done();
	/* Each has a place among the session's queues, so there is room. */
	if (is_done(stream->last) || ndying == GANTRY_MAX_QUEUES) {
		(void)gantry_queue_close(cu.session, stream->queue);
		return;
	}
	dying[ndying].queue = stream->queue;
	dying[ndying++].last = stream->last;
}

static uint32_t nfree_queues(void)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i < cu.session->nqueues; i++)
		n += gantry_load_acquire(&cu.session->queues[i].handle) == 0;
	return n;
}

/* A context without any queue cannot be, so each device that has none yet will want one; and so will the first transfer (copy.h). */
static uint32_t nkept_for_others(const struct CUctx_st *ctx)
{
	uint32_t n = gantry_load_relaxed(&cu.session->copy_queue) == 0;

	for (uint32_t i = 0; i < cu.ndevices; i++)
		n += !cu.devices[i].primary && &cu.devices[i] != ctx->dev;
	return n;
}

static CUresult open_queue(const struct CUctx_st *ctx, struct CUstream_st *stream)
{
	const struct gantry_queue_options options = {
		/* CUDA's lower numbers are more urgent. */
		.priority = -stream->priority,
		.kind = GANTRY_KIND_CUDA,
		.device_mask = 1ull << ctx->dev->index,
	};
	gantry_queue shared = any_queue(ctx);

	close_done();
	if (!shared || nfree_queues() > nkept_for_others(ctx)) {
		int r = gantry_queue_open(cu.session, &options, &stream->queue);

		if (r != GANTRY_E_LIMIT)
			return cu_result(r);
	}
	stream->queue = shared;
	stream->shares_queue = true;
	return shared ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What failed in the queue before this stream had it is not this stream's. */
static gantry_ticket newest_ticket(gantry_queue queue)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(queue);

	return GANTRY_TICKET(slot, gantry_load_acquire(&cu.session->queues[slot].tail));
}

CUresult cu_stream_new_locked(struct CUctx_st *ctx, unsigned int flags, int priority,
			      struct CUstream_st **ret_stream)
{
	struct CUstream_st *stream = calloc(1, sizeof(*stream));
	CUresult result;

	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->ctx = ctx;
	stream->flags = flags;
	stream->priority = priority;
	stream->is_blocking = !(flags & CU_STREAM_NON_BLOCKING);
	stream->hints.waits = CU_SYNC_POLICY_AUTO;
	stream->hints.domains.remote = 1;
	stream->id = ++cu.next_id;
	result = open_queue(ctx, stream);
	if (result == CUDA_SUCCESS && !cu_handle_add_locked(stream, CU_KIND_STREAM)) {
		if (!stream->shares_queue)
			(void)gantry_queue_close(cu.session, stream->queue); /* nothing is in it */
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(stream);
		return result;
	}
	stream->checked = newest_ticket(stream->queue);
	stream->next = ctx->streams;
	ctx->streams = stream;
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

static bool queue_is_shared(const struct CUstream_st *stream)
{
	for (const struct CUstream_st *s = stream->ctx->streams; s; s = s->next)
		if (s != stream && s->queue == stream->queue)
			return true;
	return false;
}

/* Somebody else has to close the queue then. */
static void pass_queue(const struct CUstream_st *stream)
{
	for (struct CUstream_st *s = stream->ctx->streams; s; s = s->next)
		if (s != stream && s->queue == stream->queue) {
			s->shares_queue = false;
			if (GANTRY_TICKET_SEQ(s->last) < GANTRY_TICKET_SEQ(stream->last))
				s->last = stream->last; /* the queue is not closed before */
			return;
		}
}

void cu_stream_end_locked(struct CUstream_st *stream)
{
	struct CUstream_st **at = &stream->ctx->streams;

	cu_capture_leave_locked(stream);
	cu_handle_remove_locked(stream);
	if (!stream->shares_queue && queue_is_shared(stream))
		pass_queue(stream);
	else if (!stream->shares_queue)
		close_queue(stream);
	while (*at && *at != stream)
		at = &(*at)->next;
	if (*at)
		*at = stream->next;
	free(stream);
}

static CUresult thread_stream_locked(struct CUctx_st *ctx, struct CUstream_st **ret_stream)
{
	CUresult result;

	for (struct CUstream_st *s = ctx->streams; s; s = s->next)
		if (s->is_default && pthread_equal(s->thread, pthread_self())) {
			*ret_stream = s;
			return CUDA_SUCCESS;
		}
	result = cu_stream_new_locked(ctx, CU_STREAM_DEFAULT, 0, ret_stream);
	if (result != CUDA_SUCCESS)
		return result;
	(*ret_stream)->is_default = true;
	(*ret_stream)->thread = pthread_self();
	return CUDA_SUCCESS;
}

CUresult cu_stream_get_locked(struct CUctx_st *ctx, CUstream handle, bool per_thread,
			      struct CUstream_st **ret_stream)
{
	if (handle == CU_STREAM_PER_THREAD || (!handle && per_thread))
		return thread_stream_locked(ctx, ret_stream);
	if (!handle || handle == CU_STREAM_LEGACY) {
		*ret_stream = ctx->legacy;
		return CUDA_SUCCESS;
	}
	if (!cu_handle_is_locked(handle, CU_KIND_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_stream = handle;
	return CUDA_SUCCESS;
}

/* ---- order ---- */

/* Submissions wait for room at most so long as calls do; a stream waits as long as it takes. */
static int put_waits(struct CUstream_st *stream, const gantry_ticket *tickets, unsigned int n)
{
	int r;

	do
		r = gantry_submit_wait(cu.session, stream->queue, tickets, n, NULL);
	while (r == GANTRY_E_AGAIN);
	return r;
}

static int wait_for_others(struct CUstream_st *legacy)
{
	gantry_ticket tickets[WAIT_GROUP];
	unsigned int n = 0;
	int r = 0;

	for (const struct CUstream_st *s = legacy->ctx->streams; s && r == 0; s = s->next) {
		if (s == legacy || !s->is_blocking || is_done(s->last))
			continue;
		tickets[n++] = s->last;
		if (n < WAIT_GROUP)
			continue;
		r = put_waits(legacy, tickets, n);
		n = 0;
	}
	return r == 0 && n > 0 ? put_waits(legacy, tickets, n) : r;
}

/* What goes into the legacy stream would wait for streams that are captured, which run nothing. */
static bool is_implied(const struct CUstream_st *legacy)
{
	bool is = false;

	for (struct CUstream_st *s = legacy->ctx->streams; s; s = s->next)
		if (s->capture && s->is_blocking) {
			(void)cu_capture_refuse_locked(s);
			is = true;
		}
	return is;
}

CUresult cu_stream_begin_locked(struct CUstream_st *stream)
{
	struct CUstream_st *legacy = stream->ctx->legacy;
	CUresult result = cu_mirror_push_locked();
	int r = 0;

	if (result != CUDA_SUCCESS)
		return result;
	if (stream == legacy) {
		if (is_implied(legacy))
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		r = wait_for_others(legacy);
	} else if (stream->is_blocking && stream->after_legacy != legacy->last) {
		if (!is_done(legacy->last))
			r = put_waits(stream, &legacy->last, 1);
		if (r == 0)
			stream->after_legacy = legacy->last;
	}
	return cu_result(r);
}

CUresult cu_stream_put_locked(struct CUstream_st *stream, int status, gantry_ticket ticket)
{
	if (status == 0)
		stream->last = ticket;
	return cu_result(status);
}

/* ---- waiting ---- */

/* Of two statuses the one that the program is told: that it was at fault says more than that a task is in doubt. */
static int graver(int status, int other)
{
	if (status >= 0 || (other == GANTRY_E_DEVICE_FAULT && status == GANTRY_E_IN_DOUBT))
		return GANTRY_MIN(other, 0);
	return status;
}

/* What the tasks since the last look came to: each counts, not the last only. */
static int judge(struct CUstream_st *stream, gantry_ticket last)
{
	uint64_t seq = GANTRY_TICKET_SEQ(stream->checked);
	int status = 0;

	/* Another thread may have looked at later ones. */
	if (last == 0 || (GANTRY_TICKET_QUEUE(last) == GANTRY_TICKET_QUEUE(stream->checked) &&
			  seq >= GANTRY_TICKET_SEQ(last)))
		return 0;
	/* Statuses of so many failed tasks are remembered. */
	if (GANTRY_TICKET_SEQ(last) - seq > 65536)
		seq = GANTRY_TICKET_SEQ(last) - 65536;
	if (gantry_load_relaxed(
		    &cu.session->queues[GANTRY_TICKET_QUEUE(last)].ring.map.area->nfailed) == 0)
		seq = GANTRY_TICKET_SEQ(last);
	while (++seq <= GANTRY_TICKET_SEQ(last))
		status = graver(status, gantry_test(cu.session,
						    GANTRY_TICKET(GANTRY_TICKET_QUEUE(last), seq)));
	stream->checked = last;
	return status;
}

/* What a failure of the newest task came to has been told. It is told once; what lasts is told by every call. */
static bool is_told(const struct CUstream_st *stream)
{
	return stream->last == 0 || stream->checked == stream->last;
}

/* 0, or what it failed with. The lock is given up meanwhile. */
static int wait_locked(gantry_ticket ticket)
{
	int r;

	cu_output_due();
	if (ticket == 0)
		return 0;
	(void)pthread_mutex_unlock(&cu.lock);
	r = cu_output_wait(ticket);
	(void)pthread_mutex_lock(&cu.lock);
	return r;
}

CUresult cu_ticket_wait_locked(gantry_ticket ticket)
{
	return cu_result(wait_locked(ticket));
}

/* What has to end before there is room; 0: there is. */
static gantry_ticket lack_of_room(const struct CUstream_st *stream)
{
	/* Streams may share a queue, so it may be full before the first thing is put. */
	uint32_t slot = GANTRY_HANDLE_SLOT(stream->queue);
	const struct gantry_queue_end *q = &cu.session->queues[slot];
	uint64_t nslots = q->ring.map.nslots, wanted = GANTRY_MAX(nslots / ROOM_PART, ROOM_LEAST);
	uint64_t tail;

	tail = gantry_load_acquire(&q->tail);
	/* The host's word of how far it is costs, and is not asked for while what it last said will do. */
	if (tail + wanted <= q->room_end || tail + wanted <= gantry_queue_done(q) + nslots)
		return 0;
	return GANTRY_TICKET(slot, tail - nslots / 2);
}

static bool is_anothers(const struct CUstream_st *stream)
{
	return stream->is_held && !pthread_equal(stream->holder, pthread_self());
}

void cu_stream_hold_locked(struct CUstream_st *stream)
{
	stream->is_held = true;
	stream->holder = pthread_self();
}

void cu_stream_let_go_locked(struct CUstream_st *stream)
{
	/* Where it is gone, who waits has to find that out. */
	if (cu_handle_is_locked(stream, CU_KIND_STREAM) && !is_anothers(stream))
		stream->is_held = false;
	(void)pthread_cond_broadcast(&let_go);
}

CUresult cu_stream_room_locked(struct CUstream_st *stream)
{
	gantry_ticket ticket = 0;
	bool has_failed = false;

	/* While this waits for the one, there may come to be the other. */
	while (is_anothers(stream) || (!has_failed && (ticket = lack_of_room(stream)) != 0)) {
		if (is_anothers(stream))
			(void)pthread_cond_wait(&let_go, &cu.lock);
		else
			/* A task that failed has ended too; and where all have, the call finds out. */
			has_failed = cu_ticket_wait_locked(ticket) != CUDA_SUCCESS;
		if (!cu_handle_is_locked(stream, CU_KIND_STREAM))
			return CUDA_ERROR_INVALID_HANDLE;
	}
	return CUDA_SUCCESS;
}

bool cu_stream_has_room_locked(const struct CUstream_st *stream)
{
	return !is_anothers(stream) && lack_of_room(stream) == 0;
}

CUresult cu_stream_wait_locked(struct CUstream_st *stream)
{
	gantry_ticket last = stream->last;
	int status = wait_locked(is_told(stream) ? 0 : last);

	/* Or another thread has destroyed it. */
	if (!cu_handle_is_locked(stream, CU_KIND_STREAM))
		return cu_result(status);
	return cu_mirror_pull_locked(cu_result(graver(judge(stream, last), status)));
}

CUresult cu_stream_query_locked(struct CUstream_st *stream)
{
	int r = is_told(stream) ? 1 : gantry_test(cu.session, stream->last);

	if (r == 0)
		return CUDA_ERROR_NOT_READY;
	return cu_mirror_pull_locked(cu_result(graver(judge(stream, stream->last), r)));
}

bool cu_ctx_is_idle_locked(const struct CUctx_st *ctx)
{
	for (const struct CUstream_st *s = ctx->streams; s; s = s->next)
		if (!is_done(s->last))
			return false;
	return true;
}

CUresult cu_ctx_wait_locked(struct CUctx_st *ctx)
{
	gantry_ticket lasts[GANTRY_MAX_QUEUES];
	uint32_t n = 0;
	int status = 0;

	cu_output_due();

	/* Of streams that share a queue the newest. */
	for (const struct CUstream_st *s = ctx->streams; s; s = s->next) {
		uint32_t i;

		for (i = 0; i < n; i++)
			if (GANTRY_TICKET_QUEUE(lasts[i]) == GANTRY_TICKET_QUEUE(s->last))
				break;
		if (is_told(s) || (i == n && n == GANTRY_MAX_QUEUES))
			continue;
		if (i == n)
			lasts[n++] = s->last;
		else if (lasts[i] < s->last)
			lasts[i] = s->last;
	}
	for (uint32_t i = 0; i < n; i++)
		status = graver(status, wait_locked(lasts[i]));
	/* The context may have ended while the lock was given up: then nobody asks. */
	if (!cu_handle_is_locked(ctx, CU_KIND_CTX))
		return cu_result(status);
	for (struct CUstream_st *s = ctx->streams; s; s = s->next)
		if (is_done(s->last))
			status = graver(status, judge(s, s->last));
	return cu_mirror_pull_locked(cu_result(status));
}
