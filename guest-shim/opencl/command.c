/* SPDX-License-Identifier: Apache-2.0 */
/* The order of commands: what starts when, and where. */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/icd.h"

#define FEW	    8u
#define QUICK_BYTES (256u << 10)

struct gantry_list icd_waiting = GANTRY_LIST_INIT(icd_waiting);

/* ---- what a command waits for ---- */

cl_int icd_waits_check(const struct icd_waits *waits, const struct _cl_context *context)
{
	if (!waits->n != !waits->list)
		return CL_INVALID_EVENT_WAIT_LIST;
	for (cl_uint i = 0; i < waits->n; i++) {
		const struct _cl_event *event = icd_object_get(waits->list[i], ICD_EVENT);

		if (!event)
			return CL_INVALID_EVENT_WAIT_LIST;
		if (event->context != context)
			return CL_INVALID_CONTEXT;
	}
	return CL_SUCCESS;
}

static void add_dep(struct _cl_event *event, struct _cl_event *dep)
{
	icd_object_hold(dep);
	event->deps[event->ndeps++] = dep;
}

static bool is_marker(const struct _cl_event *event)
{
	return event->command == CL_COMMAND_MARKER || event->command == CL_COMMAND_BARRIER;
}

/* The list; the queue's barrier; of a marker or barrier without a list, all of the queue that waits. */
static bool take_deps(struct _cl_event *event, const struct icd_waits *waits)
{
	struct _cl_command_queue *q = event->queue;
	bool all = is_marker(event) && waits->n == 0;

	if (waits->n == 0 && !q->barrier && !all)
		return true;
	event->deps = malloc(((size_t)waits->n + 1 + (all ? q->nwaiting : 0)) *
			     sizeof(struct _cl_event *));
	if (!event->deps)
		return false;
	for (cl_uint i = 0; i < waits->n; i++)
		add_dep(event, waits->list[i]);
	if (q->barrier)
		icd_event_refresh(q->barrier);
	if (q->barrier && q->barrier->state != ICD_ENDED)
		add_dep(event, q->barrier);
	if (!all)
		return true;
	gantry_list_for_each(&icd_waiting, struct _cl_event, waiting, other)
		if (other->queue == q && other != event)
			add_dep(event, other);
	return true;
}

static bool in_order(const struct _cl_command_queue *q)
{
	return !(q->properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
}

/* Whether one of the same queue that waits or runs came before. */
static bool has_earlier(const struct _cl_event *event)
{
	gantry_list_for_each(&icd_waiting, struct _cl_event, waiting, other) {
		if (other == event)
			return false;
		if (other->queue == event->queue)
			return true;
	}
	return false;
}

/* ---- starting ---- */

struct ready {
	gantry_ticket *tickets; /* to wait for */
	gantry_ticket few[FEW];
	unsigned n;
	bool failed; /* one of those that it waits for has */
};

/* A task comes after those of its own queue anyway. */
static bool is_before(const struct _cl_event *event, const struct _cl_event *dep)
{
	return event->work->on_device && dep->queue == event->queue;
}

/* false: not yet. */
static bool look_at_deps(struct _cl_event *event, struct ready *ready)
{
	ready->tickets = NULL;
	ready->n = 0;
	ready->failed = false;
	if (in_order(event->queue) && has_earlier(event))
		return false;
	for (uint32_t i = 0; i < event->ndeps; i++) {
		icd_event_refresh(event->deps[i]);
		if (event->deps[i]->state < ICD_ON_DEVICE)
			return false;
		ready->failed = ready->failed ||
				(event->deps[i]->state == ICD_ENDED && event->deps[i]->status < 0);
	}
	if (ready->failed)
		return true;
	ready->tickets = event->ndeps < FEW ? ready->few
					    : malloc((event->ndeps + 1) * sizeof(gantry_ticket));
	for (uint32_t i = 0; ready->tickets && i < event->ndeps; i++)
		if (event->deps[i]->state == ICD_ON_DEVICE && !is_before(event, event->deps[i]))
			ready->tickets[ready->n++] = event->deps[i]->ticket;
	return true;
}

static void no_more_waiting(struct _cl_event *event)
{
	gantry_list_remove(&event->waiting);
	event->queue->nwaiting--;
}

/* Those before it in an in-order queue; all before it, of a marker. Its own list it has already. */
static bool follows_queue(const struct _cl_event *event)
{
	return in_order(event->queue) || (is_marker(event) && event->ndeps == 0);
}

static bool deps_failed(const struct _cl_event *event)
{
	for (uint32_t i = 0; i < event->ndeps; i++) {
		icd_event_refresh(event->deps[i]);
		if (event->deps[i]->state == ICD_ENDED && event->deps[i]->status < 0)
			return true;
	}
	return false;
}

/* On this thread: its place in the queue is kept until it has ended. */
static void run_on_host(struct _cl_event *event, struct ready *ready)
{
	struct icd_host *host = event->context->host;
	struct _cl_command_queue *q = event->queue;
	cl_int result = CL_SUCCESS;

	event->state = ICD_RUNNING;
	event->times[1] = icd_now_ns();
	if (follows_queue(event) && q->last)
		ready->tickets[ready->n++] = q->last;
	icd_gate_unlock();
	if (ready->n)
		(void)gantry_printed_wait(&host->printed, host->session, ready->tickets, ready->n);
	icd_gate_lock();
	if (deps_failed(event))
		result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
	event->times[2] = icd_now_ns();
	icd_gate_unlock();
	if (result == CL_SUCCESS)
		result = event->work->on_host(event, event->work);
	icd_gate_lock();
	no_more_waiting(event);
	icd_event_end(event, result);
}

/* The program is told of a buffer's end when no command works on it any more. */
static bool is_told_of(const struct _cl_mem *mem)
{
	return mem && (mem->callbacks || (mem->parent && mem->parent->callbacks));
}

static void keep_mem(struct _cl_event *event, struct _cl_mem *mem)
{
	if (!is_told_of(mem))
		return;
	icd_object_hold(mem);
	event->mems[event->nmems++] = mem;
}

static void keep_mems(struct _cl_event *event)
{
	const struct icd_work *work = event->work;
	bool any = is_told_of(work->mem) || is_told_of(work->other);

	for (uint32_t i = 0; i < work->nmems; i++)
		any = any || is_told_of(work->mems[i]);
	if (!any)
		return;
	event->mems = malloc((work->nmems + 2) * sizeof(struct _cl_mem *));
	if (!event->mems)
		return; /* it is told of too early, and nothing else */
	keep_mem(event, work->mem);
	keep_mem(event, work->other);
	for (uint32_t i = 0; i < work->nmems; i++)
		keep_mem(event, work->mems[i]);
}

/* Where times are wanted: a stamp when it may begin and one behind it. Without room for them times are this process's. */
static int put_with_times(struct _cl_event *event, const struct ready *ready,
			  gantry_ticket *ret_ticket)
{
	struct icd_host *host = event->context->host;
	struct icd_line *line = event->queue->line;
	struct icd_cell *cell = icd_cell_take(host);
	int r = 0;

	if (!cell)
		return event->work->on_device(event, event->work, ready->tickets, ready->n,
					      ret_ticket);
	if (ready->n)
		r = gantry_submit_wait(host->session, line->queue, ready->tickets, ready->n, NULL);
	if (r == 0)
		r = icd_stamp(host, line, cell, 0, &event->end_ticket);
	if (r == 0)
		r = event->work->on_device(event, event->work, NULL, 0, ret_ticket);
	if (r == 0)
		r = icd_stamp(host, line, cell, 1, &event->end_ticket);
	event->cell = cell;
	return r;
}

static void put_on_device(struct _cl_event *event, const struct ready *ready)
{
	struct _cl_command_queue *q = event->queue;
	bool is_timed = q->properties & CL_QUEUE_PROFILING_ENABLE;
	gantry_ticket ticket = 0;
	int r;

	event->times[1] = icd_now_ns();
	r = is_timed
		    ? put_with_times(event, ready, &ticket)
		    : event->work->on_device(event, event->work, ready->tickets, ready->n, &ticket);
	no_more_waiting(event);
	if (r < 0) {
		icd_event_end(event, icd_status(r));
		return;
	}
	event->ticket = ticket;
	event->state = ICD_ON_DEVICE;
	q->last = q->line->last = event->end_ticket ? event->end_ticket : ticket;
	keep_mems(event);
	if (((is_timed && !event->cell) || event->nmems > 0 ||
	     !gantry_list_is_empty(&event->callbacks)) &&
	    icd_event_watch(event) != CL_SUCCESS)
		(void)icd_event_wait(event); /* no thread to look at it: then here */
	icd_gate_changed();
}

/* What a command for this processor would have to wait for; 0: nothing. */
static gantry_ticket blocker_of(const struct _cl_event *event, const struct ready *ready)
{
	struct gantry_session *session = event->context->host->session;
	gantry_ticket last = follows_queue(event) ? event->queue->last : 0;

	for (unsigned i = 0; i < ready->n; i++)
		if (gantry_test(session, ready->tickets[i]) == 0)
			return ready->tickets[i];
	return last && gantry_test(session, last) == 0 ? last : 0;
}

static void ready_fini(struct ready *ready)
{
	if (ready->tickets != ready->few)
		free(ready->tickets);
}

bool icd_event_start(struct _cl_event *event, bool may_wait)
{
	struct ready ready;

	event->blocker = 0;
	if (event->state != ICD_WAITING || !look_at_deps(event, &ready))
		return false;
	if (ready.tickets && event->work->on_host && !may_wait) {
		event->blocker = blocker_of(event, &ready);
		if (event->blocker) {
			ready_fini(&ready);
			return false;
		}
	}
	icd_object_hold(event);
	if (ready.failed || !ready.tickets) {
		no_more_waiting(event);
		icd_event_end(event, ready.failed ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
						  : CL_OUT_OF_HOST_MEMORY);
	} else if (event->work->on_host) {
		run_on_host(event, &ready);
	} else {
		put_on_device(event, &ready);
	}
	ready_fini(&ready);
	icd_object_drop(event);
	return true;
}

/* ---- putting ---- */

static void work_fini(struct icd_work *work)
{
	if (work->fini)
		work->fini(work);
	icd_object_drop(work->mem);
	icd_object_drop(work->other);
}

static struct _cl_event *make(struct _cl_command_queue *q, cl_command_type command,
			      struct icd_work *work, const struct icd_waits *waits)
{
	struct _cl_event *event = icd_object_new(ICD_EVENT);

	if (!event)
		return NULL;
	gantry_list_init(&event->waiting);
	gantry_list_init(&event->watched);
	gantry_list_init(&event->callbacks);
	event->context = q->context;
	event->queue = q;
	event->command = command;
	event->work = work;
	event->times[0] = icd_now_ns();
	icd_object_hold(q->context);
	icd_object_hold(q);
	if (take_deps(event, waits))
		return event;
	event->work = NULL;
	icd_object_throw_away(event);
	return NULL;
}

/* It has to wait: what it does is kept, and the pump will start it. */
static bool keep(struct _cl_event *event)
{
	struct icd_work *kept;

	kept = malloc(sizeof(*kept));
	if (!kept || icd_pump_need() != CL_SUCCESS) {
		free(kept);
		return false;
	}
	*kept = *event->work;
	event->work = kept;
	icd_object_hold(event); /* until it has ended or is on a device */
	return true;
}

bool icd_event_resume(struct _cl_event *event)
{
	struct icd_work *work = event->work;

	if (!icd_event_start(event, false))
		return false;
	event->work = NULL;
	work_fini(work);
	free(work);
	icd_object_drop(event);
	return true;
}

/* What became of a command that this thread has tried to start; an event that has failed is no failure of the call. */
static cl_int outcome(struct _cl_event *event, bool is_blocking)
{
	if (event->state != ICD_ENDED && is_blocking)
		(void)icd_event_wait(event);
	if (is_blocking)
		icd_output_pass_on(event->context->host);
	if (event->state != ICD_ENDED || event->status >= 0)
		return CL_SUCCESS;
	return !is_blocking && event->status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
		       ? CL_SUCCESS
		       : event->status;
}

static void set_barrier(struct _cl_command_queue *q, struct _cl_event *event)
{
	if (event->command != CL_COMMAND_BARRIER || in_order(q))
		return;
	icd_object_drop(q->barrier);
	q->barrier = event;
	icd_object_hold(event);
}

/* What a call that does not block may copy itself: less than to tell another thread. */
static bool is_quick(const struct icd_work *work)
{
	return work->is_prompt || work->bytes <= QUICK_BYTES;
}

/* Long copies, and those that have to wait, are the pump's, unless the program waits for them. */
static bool start_here(struct _cl_event *event, bool is_blocking)
{
	if (event->work->on_host && !is_blocking && !is_quick(event->work))
		return false;
	return icd_event_start(event, is_blocking);
}

cl_int icd_enqueue(struct _cl_command_queue *q, cl_command_type command, struct icd_work *work,
		   bool is_blocking, const struct icd_waits *waits, cl_event *ret_event)
{
	struct _cl_event *event = make(q, command, work, waits);
	cl_int result;

	if (!event) {
		work_fini(work);
		return CL_OUT_OF_HOST_MEMORY;
	}
	gantry_list_push_back(&icd_waiting, &event->waiting);
	q->nwaiting++;
	icd_object_hold(event);
	if (!start_here(event, is_blocking) && !keep(event)) {
		no_more_waiting(event);
		icd_event_end(event, CL_OUT_OF_RESOURCES);
	}
	if (event->work == work) {
		event->work = NULL;
		work_fini(work);
	}
	set_barrier(q, event);
	result = outcome(event, is_blocking);
	if (result == CL_SUCCESS && ret_event)
		*ret_event = event;
	else
		event->object.refs = 0;
	icd_object_drop(event);
	if (!gantry_list_is_empty(&icd_waiting))
		icd_pump_kick();
	return result;
}
