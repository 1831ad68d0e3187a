/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of the program's own that run between two tasks of a stream. A thread of ours calls them, made at the first
 * one: it waits for the task before, calls, and writes the word that what follows in the stream waits for.
 */
#include <stdlib.h>

#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/mirror.h"

#define LOOK_NS 200000 /* how often others are looked at while the oldest is not due */

struct call {
	struct call *next;
	gantry_ticket after;
	CUhostFn fn;
	CUstreamCallback callback; /* or this, with @stream and the status */
	CUstream stream;
	void *data;
	struct cu_cell *cell;
};

static pthread_cond_t come = PTHREAD_COND_INITIALIZER;
/*
 * A lock of its own: who puts tasks holds cu.lock while the ring is full, and what empties it may be behind one of these.
 */
static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;
static struct call *calls; /* oldest first */
static struct call **calls_end = &calls;
static struct cu_bell bell;

/* Takes the oldest whose task has finished out of the list; NULL: none is due. */
static struct call *take_due(int *ret_status)
{
	for (struct call **at = &calls; *at; at = &(*at)->next) {
		struct call *call = *at;
		int r = call->after ? gantry_test(cu.session, call->after) : 1;

		if (r == 0)
			continue;
		*ret_status = r < 0 ? r : 0;
		*at = call->next;
		if (calls_end == &call->next)
			calls_end = at;
		return call;
	}
	return NULL;
}

static void call_it(const struct call *call, int status)
{
	CUresult result = cu_result(status);

	cu_output_show();
	cu_mirror_before_function();
	cu_in_callback = true;
	if (call->callback)
		call->callback(call->stream, result, call->data);
	else if (result == CUDA_SUCCESS)
		call->fn(call->data);
	cu_in_callback = false;
	cu_mirror_behind_function();
}

static void *thread_main(void *arg)
{
	(void)arg;
	(void)pthread_mutex_lock(&calls_lock);
	for (;;) {
		int status = 0;
		struct call *call = take_due(&status);
		gantry_ticket after;

		if (!call && !calls) {
			(void)pthread_cond_wait(&come, &calls_lock);
			continue;
		}
		after = call ? 0 : calls->after;
		(void)pthread_mutex_unlock(&calls_lock);
		if (call) {
			call_it(call, status);
			for (bool again = false; !cu_bell_ring(&bell, call->cell, again);)
				again = true;
		} else {
			(void)gantry_wait(cu.session, &after, 1, LOOK_NS);
		}
		(void)pthread_mutex_lock(&calls_lock);
		free(call);
	}
	return NULL;
}

CUresult cu_hostfn_put_locked(struct CUstream_st *stream, CUhostFn fn, void *data,
			      CUstreamCallback callback)
{
	struct call *call;
	gantry_ticket ticket = 0;
	CUresult result;
	int r;

	if (!fn && !callback)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		/* Callbacks of the older sort are not to be captured, which is what waiting is refused with too. */
		return cu_capture_work_locked(stream,
					      &(struct cu_work){ .type = CU_GRAPH_NODE_TYPE_HOST,
								 .host = { fn, data } },
					      callback != NULL);
	result = cu_stream_begin_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_bell_start(&bell, thread_main))
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* Waits for other streams are tasks too, without a ticket that is known: one is made. */
	do
		r = gantry_submit_marker(cu.session, stream->queue, &ticket);
	while (r == GANTRY_E_AGAIN);
	result = cu_stream_put_locked(stream, r, ticket);
	call = result == CUDA_SUCCESS ? calloc(1, sizeof(*call)) : NULL;
	if (call)
		*call = (struct call){ .after = ticket,
				       .fn = fn,
				       .callback = callback,
				       .stream = stream,
				       .data = data,
				       .cell = cu_cell_take_locked() };
	if (!call || !call->cell) {
		free(call);
		return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
	}
	do
		r = gantry_submit_await(cu.session, stream->queue, cu_cell_off(call->cell), 1,
					&ticket);
	while (r == GANTRY_E_AGAIN);
	result = cu_stream_put_locked(stream, r, ticket);
	if (result != CUDA_SUCCESS) {
		cu_cell_put_locked(call->cell, 0);
		free(call);
		return result;
	}
	/* Its word is somebody else's when the task that waits for it is done. */
	cu_cell_put_locked(call->cell, ticket);
	(void)pthread_mutex_lock(&calls_lock);
	*calls_end = call;
	calls_end = &call->next;
	(void)pthread_cond_signal(&come);
	(void)pthread_mutex_unlock(&calls_lock);
	return CUDA_SUCCESS;
}
