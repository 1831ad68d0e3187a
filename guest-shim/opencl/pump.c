/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's one thread: callbacks, commands that had to wait, and events whose end somebody wants to be told of.
 * It takes no signal, and ends with the program's last context, or when the library is unloaded.
 */
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "guest-shim/opencl/icd.h"

/* One of several queues' events is waited for at a time; the others are looked at again after this. */
#define LOOK_NS	   500000
#define PATIENCE_S 2

struct gantry_list icd_watched = GANTRY_LIST_INIT(icd_watched);

/* All under the gate, but what this thread alone asks for. */
static struct {
	bool exists;   /* there is a thread to join */
	bool stop;     /* it is to end */
	bool finished; /* it will not look at anything again */
	pid_t pid;     /* whose: a child of fork() has none */
	pthread_t thread;
	uint64_t nkicks;
	pthread_cond_t kicked;
	struct gantry_list calls;
} pump = { .kicked = PTHREAD_COND_INITIALIZER, .calls = GANTRY_LIST_INIT(pump.calls) };

static _Thread_local bool is_me;

bool icd_pump_is_me(void)
{
	return is_me;
}

void icd_pump_kick(void)
{
	pump.nkicks++;
	(void)pthread_cond_signal(&pump.kicked);
}

void icd_pump_call(struct icd_call *call)
{
	gantry_list_push_back(&pump.calls, &call->link);
	icd_gate_changed(); /* for who waits on the pump's own thread */
	icd_pump_kick();
}

/* ---- work ---- */

static bool run_call(void)
{
	struct gantry_list *link;

	if (gantry_list_is_empty(&pump.calls))
		return false;
	link = gantry_list_pop_front(&pump.calls);
	icd_gate_unlock();
	gantry_list_entry(link, struct icd_call, link)
		->run(gantry_list_entry(link, struct icd_call, link));
	icd_gate_lock();
	return true;
}

static bool start_one(void)
{
	gantry_list_for_each(&icd_waiting, struct _cl_event, waiting, event)
		if (event->state == ICD_WAITING && event->work && icd_event_resume(event))
			return true;
	return false;
}

static bool look_at_watched(void)
{
	gantry_list_for_each(&icd_watched, struct _cl_event, watched, event) {
		icd_object_hold(event);
		icd_event_refresh(event);
		if (event->state == ICD_ENDED) {
			icd_object_drop(event);
			return true;
		}
		icd_object_drop(event);
	}
	return false;
}

/* The oldest copy that waits for a device, or the oldest event that is watched. */
static struct _cl_event *find_waited(gantry_ticket *ret_ticket)
{
	struct _cl_event *event;

	gantry_list_for_each(&icd_waiting, struct _cl_event, waiting, copy) {
		*ret_ticket = copy->blocker;
		if (copy->blocker)
			return copy;
	}
	if (gantry_list_is_empty(&icd_watched))
		return NULL;
	event = gantry_list_first(&icd_watched, struct _cl_event, watched);
	*ret_ticket = event->end_ticket ? event->end_ticket : event->ticket;
	return event;
}

/* For one of them, a little. */
static bool wait_for_device(void)
{
	gantry_ticket ticket = 0;
	struct _cl_event *event = find_waited(&ticket);
	struct gantry_session *session;

	if (!event)
		return false;
	icd_object_hold(event);
	session = event->context->host->session;
	icd_gate_unlock();
	(void)gantry_wait(session, &ticket, 1, LOOK_NS);
	icd_gate_lock();
	icd_object_drop(event);
	return true;
}

/* Events on devices that something waits for have no call that tells their end, unless they are watched. */
static void watch_what_is_waited_for(void)
{
	gantry_list_for_each(&icd_waiting, struct _cl_event, waiting, event)
		for (uint32_t i = 0; event->state == ICD_WAITING && i < event->ndeps; i++)
			(void)icd_event_watch(event->deps[i]); /* this thread is there */
}

bool icd_pump_step(void)
{
	if (run_call() || start_one() || look_at_watched())
		return true;
	watch_what_is_waited_for();
	return wait_for_device();
}

static void *pump_main(void *arg)
{
	(void)arg;
	is_me = true;
	icd_gate_lock();
	while (!pump.stop) {
		uint64_t seen = pump.nkicks;

		if (icd_pump_step())
			continue;
		if (!icd_object_any(ICD_CONTEXT))
			break;
		while (!pump.stop && pump.nkicks == seen)
			icd_gate_sleep(&pump.kicked);
	}
	pump.finished = true;
	icd_gate_unlock();
	return NULL;
}

/* ---- life ---- */

static cl_int start(void)
{
	if (gantry_thread_start(&pump.thread, pump_main, NULL) < 0)
		return CL_OUT_OF_RESOURCES;
	pump.exists = true;
	pump.stop = false;
	pump.finished = false;
	pump.pid = getpid();
	return CL_SUCCESS;
}

cl_int icd_pump_need(void)
{
	if (pump.exists && pump.pid == getpid()) {
		if (!pump.finished) {
			pump.stop = false; /* also where it was told to end a moment ago */
			return CL_SUCCESS;
		}
		(void)pthread_join(pump.thread, NULL); /* it needs no gate any more */
	}
	return start();
}

void icd_pump_forget(void)
{
	static const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;

	gantry_list_init(&icd_waiting);
	gantry_list_init(&icd_watched);
	gantry_list_init(&pump.calls);
	pump.exists = false;
	pump.kicked = fresh;
}

/* A callback that never returns must not keep a program from ending. */
void icd_pump_end(void)
{
	struct timespec until;

	if (!pump.exists || pump.pid != getpid() || is_me)
		return;
	pump.stop = true;
	pump.exists = false;
	icd_pump_kick();
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += PATIENCE_S;
	icd_gate_unlock();
	(void)pthread_clockjoin_np(pump.thread, NULL, CLOCK_MONOTONIC, &until);
	icd_gate_lock();
}
