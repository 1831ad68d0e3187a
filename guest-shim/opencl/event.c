/* SPDX-License-Identifier: Apache-2.0 */
/* Events: how commands have ended, and who wants to know. */
#include <stdlib.h>
#include <time.h>

#include "guest-shim/opencl/calls.h"

uint64_t icd_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with these arguments */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void give_cell(struct _cl_event *event)
{
	if (event->cell)
		icd_cell_put(event->context->host, event->cell, event->end_ticket);
	event->cell = NULL;
}

void icd_event_free(struct _cl_event *event)
{
	for (uint32_t i = 0; i < event->ndeps; i++)
		icd_object_drop(event->deps[i]);
	free(event->deps);
	for (uint32_t i = 0; i < event->nmems; i++)
		icd_object_drop(event->mems[i]);
	free(event->mems);
	gantry_list_for_each_safe(&event->callbacks, struct icd_event_callback, link, callback) {
		gantry_list_remove(&callback->link);
		free(callback);
	}
	give_cell(event);
	if (event->queue)
		icd_object_drop(event->queue);
	icd_object_drop(event->context);
}

/* ---- callbacks ---- */

struct told {
	struct icd_call call; /* first */
	struct _cl_event *event;
	cl_int status;
	void(CL_CALLBACK *fn)(cl_event, cl_int, void *);
	void *user;
};

static void run_callback(struct icd_call *call)
{
	struct told *told = (struct told *)call;

	told->fn(told->event, told->status, told->user);
	icd_gate_lock();
	icd_object_let_go(told->event);
	icd_gate_unlock();
	free(told);
}

/* The status as clGetEventInfo() has it. */
static cl_int status_of(const struct _cl_event *event)
{
	switch ((enum icd_state)event->state) {
	case ICD_WAITING:
		return event->queue ? CL_QUEUED : CL_SUBMITTED;
	case ICD_RUNNING:
		return CL_RUNNING;
	case ICD_ON_DEVICE:
		return CL_SUBMITTED;
	default:
		return event->status;
	}
}

/* Hands to the pump those whose time has come. Without memory for that they are not called, and the event is as it is. */
static void tell(struct _cl_event *event)
{
	cl_int status = status_of(event);

	gantry_list_for_each_safe(&event->callbacks, struct icd_event_callback, link, callback) {
		struct told *told;

		if (status > callback->at)
			continue;
		told = calloc(1, sizeof(*told));
		if (!told)
			continue;
		*told = (struct told){ .call.run = run_callback,
				       .event = event,
				       .status = status < 0 ? status : callback->at,
				       .fn = callback->fn,
				       .user = callback->user };
		event->object
			.refs++; /* a callback may ask about it, though the program has let go */
		gantry_list_remove(&callback->link);
		free(callback);
		icd_pump_call(&told->call);
	}
}

/* ---- ends ---- */

static void take_times(struct _cl_event *event)
{
	icd_stamps_read(event->context->host, event->queue->line, event->cell, event->times[3],
			event->device_ns);
	give_cell(event);
}

void icd_event_end(struct _cl_event *event, cl_int status)
{
	bool was_watched = !gantry_list_is_empty(&event->watched);

	event->state = ICD_ENDED;
	event->status = status;
	event->times[3] = icd_now_ns();
	if (event->cell)
		take_times(event);
	for (uint32_t i = 0; i < event->ndeps; i++)
		icd_object_drop(event->deps[i]);
	event->ndeps = 0;
	for (uint32_t i = 0; i < event->nmems; i++)
		icd_object_drop(event->mems[i]);
	event->nmems = 0;
	gantry_list_remove(&event->watched);
	tell(event);
	icd_gate_changed();
	if (!gantry_list_is_empty(&icd_waiting))
		icd_pump_kick();
	if (was_watched)
		icd_object_drop(event);
}

/* A user event whose status nobody can set any more: what waits for it would do so for ever. */
void icd_event_left(struct _cl_event *event)
{
	if (event->command == CL_COMMAND_USER && event->state != ICD_ENDED)
		icd_event_end(event, CL_INVALID_EVENT);
}

/* As libgantry's of its ticket: 0 where it is not done. */
static int test(const struct _cl_event *event)
{
	struct gantry_session *session = event->context->host->session;

	if (event->state != ICD_ON_DEVICE ||
	    (event->end_ticket && gantry_test(session, event->end_ticket) == 0))
		return 0;
	return gantry_test(session, event->ticket);
}

/* One that it waited for and that is done, without having been looked at since. */
static struct _cl_event *done_before(const struct _cl_event *event)
{
	for (uint32_t i = 0; i < event->ndeps; i++)
		if (test(event->deps[i]) != 0)
			return event->deps[i];
	return NULL;
}

static void end_on_device(struct _cl_event *event, int r)
{
	cl_int status = r < 0 ? icd_status(r) : CL_COMPLETE;

	for (uint32_t i = 0; i < event->ndeps; i++)
		if (event->deps[i]->state == ICD_ENDED && event->deps[i]->status < 0)
			status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
	icd_event_end(event, status);
}

/* Those that it waited for end before it; they may be a chain of any length. */
void icd_event_refresh(struct _cl_event *event)
{
	struct _cl_event *at = test(event) != 0 ? event : NULL, *before, *above;

	event->above = NULL;
	while (at) {
		before = done_before(at);
		above = at->above;
		if (before) {
			before->above = at;
			at = before;
			continue;
		}
		end_on_device(at, test(at));
		at = above;
	}
}

cl_int icd_event_watch(struct _cl_event *event)
{
	cl_int result = icd_pump_need();

	if (result != CL_SUCCESS || !gantry_list_is_empty(&event->watched) ||
	    event->state != ICD_ON_DEVICE)
		return result;
	gantry_list_push_back(&icd_watched, &event->watched);
	icd_object_hold(event);
	icd_pump_kick();
	return CL_SUCCESS;
}

cl_int icd_event_wait(struct _cl_event *event)
{
	struct icd_host *host = event->context->host;
	gantry_ticket ticket;
	cl_int status;

	icd_object_hold(event);
	for (icd_event_refresh(event); event->state != ICD_ENDED; icd_event_refresh(event)) {
		if (event->state != ICD_ON_DEVICE) {
			icd_gate_wait();
			continue;
		}
		ticket = event->end_ticket ? event->end_ticket : event->ticket;
		icd_gate_unlock();
		(void)gantry_printed_wait(&host->printed, host->session, &ticket, 1);
		icd_gate_lock();
	}
	status = event->status;
	icd_object_drop(event);
	return status;
}

cl_int CL_API_CALL icd_clWaitForEvents(cl_uint n, const cl_event *list)
{
	const struct icd_waits waits = { n, list };
	cl_int result;

	if (n == 0 || !list)
		return CL_INVALID_VALUE;
	icd_gate_lock();
	result = CL_INVALID_EVENT;
	if (icd_object_get(list[0], ICD_EVENT)) {
		result = icd_waits_check(&waits, list[0]->context);
		if (result == CL_INVALID_EVENT_WAIT_LIST)
			result = CL_INVALID_EVENT;
	}
	for (cl_uint i = 0; result == CL_SUCCESS && i < n; i++)
		icd_object_hold(list[i]);
	if (result == CL_SUCCESS) {
		for (cl_uint i = 0; i < n; i++)
			if (icd_event_wait(list[i]) < 0)
				result = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
		icd_output_pass_on(list[0]->context->host);
		for (cl_uint i = 0; i < n; i++)
			icd_object_drop(list[i]);
	}
	icd_gate_unlock();
	return result;
}

/* ---- the program's own ---- */

cl_event CL_API_CALL icd_clCreateUserEvent(cl_context handle, cl_int *ret)
{
	struct _cl_context *context;
	struct _cl_event *event = NULL;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context) {
		event = icd_object_new(ICD_EVENT);
		result = event ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	}
	if (event) {
		event->context = context;
		event->command = CL_COMMAND_USER;
		gantry_list_init(&event->waiting);
		gantry_list_init(&event->watched);
		gantry_list_init(&event->callbacks);
		icd_object_hold(context);
	}
	icd_gate_unlock();
	return icd_result(ret, result, event);
}

cl_int CL_API_CALL icd_clSetUserEventStatus(cl_event handle, cl_int status)
{
	struct _cl_event *event;
	cl_int result = CL_INVALID_EVENT;

	icd_gate_lock();
	event = icd_object_get(handle, ICD_EVENT);
	if (event && !event->queue) {
		result = CL_SUCCESS;
		if (status > CL_COMPLETE)
			result = CL_INVALID_VALUE;
		else if (event->state == ICD_ENDED)
			result = CL_INVALID_OPERATION;
		else
			icd_event_end(event, status);
	}
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clSetEventCallback(cl_event handle, cl_int at,
					  void(CL_CALLBACK *fn)(cl_event, cl_int, void *),
					  void *user)
{
	struct icd_event_callback *callback;
	struct _cl_event *event;
	cl_int result = CL_INVALID_EVENT;

	icd_gate_lock();
	event = icd_object_get(handle, ICD_EVENT);
	if (event)
		result = !fn || at < CL_COMPLETE || at > CL_SUBMITTED ? CL_INVALID_VALUE
								      : icd_pump_need();
	if (result == CL_SUCCESS) {
		callback = calloc(1, sizeof(*callback));
		if (callback) {
			*callback = (struct icd_event_callback){ .fn = fn, .user = user, .at = at };
			gantry_list_push_back(&event->callbacks, &callback->link);
			icd_event_refresh(event);
			tell(event);
			result = icd_event_watch(event);
		} else {
			result = CL_OUT_OF_HOST_MEMORY;
		}
	}
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clRetainEvent(cl_event event)
{
	return icd_object_retain(event, ICD_EVENT, CL_INVALID_EVENT);
}

cl_int CL_API_CALL icd_clReleaseEvent(cl_event event)
{
	return icd_object_release(event, ICD_EVENT, CL_INVALID_EVENT);
}

/* ---- questions ---- */

static cl_int info(struct _cl_event *event, cl_event_info what, const struct icd_to *to)
{
	switch (what) {
	case CL_EVENT_COMMAND_QUEUE:
		return ICD_ANSWER(to, cl_command_queue, event->queue);
	case CL_EVENT_CONTEXT:
		return ICD_ANSWER(to, cl_context, event->context);
	case CL_EVENT_COMMAND_TYPE:
		return ICD_ANSWER(to, cl_command_type, event->command);
	case CL_EVENT_COMMAND_EXECUTION_STATUS:
		icd_event_refresh(event);
		return ICD_ANSWER(to, cl_int, status_of(event));
	case CL_EVENT_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, event->object.refs);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetEventInfo(cl_event handle, cl_event_info what, size_t size, void *value,
				      size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_event *event;
	cl_int result = CL_INVALID_EVENT;

	icd_gate_lock();
	event = icd_object_get(handle, ICD_EVENT);
	if (event)
		result = info(event, what, &to);
	icd_gate_unlock();
	return result;
}

static uint64_t latest(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* All four by one clock, this process's: what the two are apart is known better with each command that has ended. */
static uint64_t time_of(const struct _cl_event *event, unsigned which)
{
	const struct icd_line *line = event->queue->line;
	uint64_t began;

	if (which < 2 || event->device_ns[1] == 0)
		return which == 2 ? latest(event->times[2], event->times[1]) : event->times[which];
	began = latest(event->device_ns[0] + (uint64_t)line->apart_ns, event->times[1]);
	return which == 2 ? began : began + (event->device_ns[1] - event->device_ns[0]);
}

static cl_int profile(struct _cl_event *event, cl_profiling_info what, const struct icd_to *to)
{
	if (what < CL_PROFILING_COMMAND_QUEUED || what > CL_PROFILING_COMMAND_END)
		return CL_INVALID_VALUE;
	if (!event->queue || !(event->queue->properties & CL_QUEUE_PROFILING_ENABLE))
		return CL_PROFILING_INFO_NOT_AVAILABLE;
	icd_event_refresh(event);
	if (event->state != ICD_ENDED || event->status != CL_COMPLETE)
		return CL_PROFILING_INFO_NOT_AVAILABLE;
	return ICD_ANSWER(to, cl_ulong, time_of(event, what - CL_PROFILING_COMMAND_QUEUED));
}

cl_int CL_API_CALL icd_clGetEventProfilingInfo(cl_event handle, cl_profiling_info what, size_t size,
					       void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_event *event;
	cl_int result = CL_INVALID_EVENT;

	icd_gate_lock();
	event = icd_object_get(handle, ICD_EVENT);
	if (event)
		result = profile(event, what, &to);
	icd_gate_unlock();
	return result;
}
