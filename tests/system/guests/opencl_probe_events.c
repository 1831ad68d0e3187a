/* SPDX-License-Identifier: Apache-2.0 */
/* Events, their order, callbacks, times. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/guests/opencl_probe.h"

/* ---- what callbacks tell the main thread ---- */

struct told {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned n;
	cl_int status;
	bool elsewhere; /* on a thread that is not the main one */
	pthread_t main;
	cl_command_queue queue; /* for a callback that calls back in */
	cl_mem mem;
	cl_int result;
};

static void told_init(struct told *t)
{
	*t = (struct told){ .main = pthread_self(), .result = CL_SUCCESS };
	(void)pthread_mutex_init(&t->lock, NULL);
	(void)pthread_cond_init(&t->cond, NULL);
}

static void tell(struct told *t, cl_int status)
{
	(void)pthread_mutex_lock(&t->lock);
	t->n++;
	t->status = status;
	t->elsewhere = !pthread_equal(pthread_self(), t->main);
	(void)pthread_cond_broadcast(&t->cond);
	(void)pthread_mutex_unlock(&t->lock);
}

static void await(struct told *t, unsigned n)
{
	(void)pthread_mutex_lock(&t->lock);
	while (t->n < n)
		(void)pthread_cond_wait(&t->cond, &t->lock);
	(void)pthread_mutex_unlock(&t->lock);
}

static void CL_CALLBACK on_event(cl_event event, cl_int status, void *user)
{
	(void)event;
	tell(user, status);
}

static void CL_CALLBACK on_end_of_mem(cl_mem mem, void *user)
{
	(void)mem;
	tell(user, 0);
}

/* A callback that waits for commands of its own. */
static void CL_CALLBACK on_event_work(cl_event event, cl_int status, void *user)
{
	struct told *t = user;
	uint32_t word = 0;

	(void)event;
	t->result = cl.EnqueueFillBuffer(t->queue, t->mem, "\5\0\0\0", 4, 0, 4, 0, NULL, NULL);
	if (t->result == CL_SUCCESS)
		t->result = cl.EnqueueReadBuffer(t->queue, t->mem, CL_TRUE, 0, 4, &word, 0, NULL,
						 NULL);
	if (t->result == CL_SUCCESS && word != 5)
		t->result = -1;
	if (t->result == CL_SUCCESS)
		t->result = cl.Finish(t->queue);
	tell(t, status);
}

/* ---- */

static cl_int status_of(cl_event event)
{
	cl_int status = 99;

	must(cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status,
			     NULL),
	     "status");
	return status;
}

static uint32_t word_of(const struct world *w, cl_mem mem)
{
	uint32_t word = 0;

	must(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 0, 4, &word, 0, NULL, NULL), "read");
	return word;
}

static void fill(cl_command_queue q, cl_mem mem, uint32_t word, cl_uint n, const cl_event *list,
		 cl_event *event)
{
	must(cl.EnqueueFillBuffer(q, mem, &word, 4, 0, 4, n, list, event), "clEnqueueFillBuffer");
}

/* What waits for the program does not run before it is let go, in either kind of queue. */
static void probe_user_events(const struct world *w, cl_command_queue q, cl_mem mem)
{
	cl_int result;
	cl_event user = cl.CreateUserEvent(w->context, &result), filled, read;
	uint32_t word = 0;

	must(result, "clCreateUserEvent");
	fill(w->queue, mem, 1, 0, NULL, NULL);
	must(cl.Finish(w->queue), "clFinish");
	fill(q, mem, 2, 1, &user, &filled);
	must(cl.EnqueueReadBuffer(q, mem, CL_FALSE, 0, 4, &word, 1, &filled, &read), "read");
	show("before", word_of(w, mem));
	expect_true(status_of(filled) >= CL_SUBMITTED, "a command that waits has not begun");
	must(cl.SetUserEventStatus(user, CL_COMPLETE), "clSetUserEventStatus");
	must(cl.WaitForEvents(1, &read), "clWaitForEvents");
	show("after", word);
	expect(status_of(filled), CL_COMPLETE, "and then it has ended");
	expect(cl.SetUserEventStatus(user, CL_COMPLETE), CL_INVALID_OPERATION,
	       "a status is set once");
	must(cl.ReleaseEvent(user), "clReleaseEvent");
	must(cl.ReleaseEvent(filled), "clReleaseEvent");
	must(cl.ReleaseEvent(read), "clReleaseEvent");
}

/* A command without a wait list overtakes one that waits, out of order. */
static void probe_overtaking(const struct world *w, cl_command_queue q, cl_mem mem)
{
	cl_int result;
	cl_event user = cl.CreateUserEvent(w->context, &result), late, soon;

	must(result, "clCreateUserEvent");
	fill(q, mem, 11, 1, &user, &late);
	fill(q, mem, 12, 0, NULL, &soon);
	must(cl.WaitForEvents(1, &soon), "clWaitForEvents");
	show("overtaken", word_of(w, mem));
	must(cl.SetUserEventStatus(user, CL_COMPLETE), "clSetUserEventStatus");
	must(cl.Finish(q), "clFinish");
	show("then", word_of(w, mem));
	must(cl.ReleaseEvent(user), "clReleaseEvent");
	must(cl.ReleaseEvent(late), "clReleaseEvent");
	must(cl.ReleaseEvent(soon), "clReleaseEvent");
}

/* A barrier holds back what comes after it, a marker tells the end of what came before. */
static void probe_barriers(const struct world *w, cl_command_queue q, cl_mem mem)
{
	cl_int result;
	cl_event user = cl.CreateUserEvent(w->context, &result), marker;

	must(result, "clCreateUserEvent");
	fill(q, mem, 21, 1, &user, NULL);
	must(cl.EnqueueBarrierWithWaitList(q, 0, NULL, NULL), "clEnqueueBarrierWithWaitList");
	fill(q, mem, 22, 0, NULL, NULL);
	must(cl.EnqueueMarkerWithWaitList(q, 0, NULL, &marker), "clEnqueueMarkerWithWaitList");
	expect_true(status_of(marker) > CL_COMPLETE, "a marker waits for what came before");
	must(cl.SetUserEventStatus(user, CL_COMPLETE), "clSetUserEventStatus");
	must(cl.WaitForEvents(1, &marker), "clWaitForEvents");
	show("behind_barrier", word_of(w, mem));
	must(cl.ReleaseEvent(user), "clReleaseEvent");
	must(cl.ReleaseEvent(marker), "clReleaseEvent");
}

static void probe_failing_events(const struct world *w, cl_mem mem)
{
	cl_int result;
	cl_event user = cl.CreateUserEvent(w->context, &result), filled;

	must(result, "clCreateUserEvent");
	fill(w->queue, mem, 31, 0, NULL, NULL);
	fill(w->queue, mem, 32, 1, &user, &filled);
	must(cl.SetUserEventStatus(user, -5), "clSetUserEventStatus");
	expect(cl.WaitForEvents(1, &filled), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
	       "waiting for what an event has failed for");
	expect_true(status_of(filled) < 0, "its status says so");
	show("not_filled", word_of(w, mem));
	must(cl.ReleaseEvent(user), "clReleaseEvent");
	must(cl.ReleaseEvent(filled), "clReleaseEvent");
}

static void probe_callbacks(const struct world *w, cl_mem mem)
{
	struct told t;
	cl_event event;
	cl_int result;
	cl_mem other;

	told_init(&t);
	fill(w->queue, mem, 41, 0, NULL, &event);
	must(cl.SetEventCallback(event, CL_COMPLETE, on_event, &t), "clSetEventCallback");
	must(cl.SetEventCallback(event, CL_COMPLETE, on_event, &t), "clSetEventCallback");
	must(cl.Flush(w->queue), "clFlush");
	await(&t, 2);
	expect(t.status, CL_COMPLETE, "a callback is told the status");
	must(cl.ReleaseEvent(event), "clReleaseEvent");

	t.queue = w->queue;
	t.mem = mem;
	fill(w->queue, mem, 42, 0, NULL, &event);
	must(cl.SetEventCallback(event, CL_COMPLETE, on_event_work, &t), "clSetEventCallback");
	must(cl.Flush(w->queue), "clFlush");
	await(&t, 3);
	show("callback_word", word_of(w, mem));
	must(cl.ReleaseEvent(event), "clReleaseEvent");

	other = cl.CreateBuffer(w->context, 0, 64, NULL, &result);
	must(result, "clCreateBuffer");
	must(cl.SetMemObjectDestructorCallback(other, on_end_of_mem, &t),
	     "clSetMemObjectDestructorCallback");
	must(cl.ReleaseMemObject(other), "clReleaseMemObject");
	await(&t, 4);
	show("callbacks", t.n);
}

static cl_event spin(const struct world *w, cl_command_queue q, cl_mem mem, uint32_t turns)
{
	cl_kernel kernel = kernel_of(w, "spin");
	size_t one = 1;
	cl_event event;

	must(cl.SetKernelArg(kernel, 0, sizeof(mem), &mem), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 1, sizeof(turns), &turns), "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(q, kernel, 1, NULL, &one, &one, 0, NULL, &event),
	     "clEnqueueNDRangeKernel");
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	return event;
}

static uint64_t time_of(cl_event event, cl_profiling_info what)
{
	cl_ulong ns = 0;

	must(cl.GetEventProfilingInfo(event, what, sizeof(ns), &ns, NULL),
	     "clGetEventProfilingInfo");
	return ns;
}

/* A kernel of 200 million dependent multiplications takes 100 ms and more on any processor; it begins when the one before has ended. */
static void probe_durations(const struct world *w, cl_command_queue q, cl_mem mem)
{
	cl_event first = spin(w, q, mem, 200000000), second = spin(w, q, mem, 1);
	uint64_t end;

	must(cl.WaitForEvents(1, &second), "clWaitForEvents");
	end = time_of(first, CL_PROFILING_COMMAND_END);
	expect_true(end - time_of(first, CL_PROFILING_COMMAND_START) > 50000000,
		    "the time that a kernel took");
	expect_true(time_of(second, CL_PROFILING_COMMAND_START) >= end &&
			    time_of(second, CL_PROFILING_COMMAND_QUEUED) < end,
		    "a kernel begins when the one before it has ended");
	must(cl.ReleaseEvent(first), "clReleaseEvent");
	must(cl.ReleaseEvent(second), "clReleaseEvent");
}

static void probe_times(const struct world *w, cl_mem mem)
{
	cl_int result;
	cl_command_queue q = cl.CreateCommandQueue(w->context, w->device, CL_QUEUE_PROFILING_ENABLE,
						   &result);
	cl_ulong at[4] = { 0 };
	cl_event event;

	must(result, "clCreateCommandQueue");
	fill(q, mem, 51, 0, NULL, &event);
	must(cl.WaitForEvents(1, &event), "clWaitForEvents");
	for (cl_profiling_info i = 0; i < 4; i++)
		must(cl.GetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED + i, sizeof(at[i]),
					      &at[i], NULL),
		     "clGetEventProfilingInfo");
	expect_true(at[0] && at[0] <= at[1] && at[1] <= at[2] && at[2] <= at[3],
		    "times are in order");
	must(cl.ReleaseEvent(event), "clReleaseEvent");
	probe_durations(w, q, mem);
	must(cl.ReleaseCommandQueue(q), "clReleaseCommandQueue");
}

/* What does not block has not ended when it returns, behind a kernel of some hundred milliseconds. */
static void probe_not_blocking(const struct world *w, cl_command_queue q)
{
	const uint32_t seed = 1, other = 77;
	uint32_t word = 0;
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, CL_MEM_COPY_HOST_PTR, sizeof(seed),
				     (void *)(uintptr_t)&seed, &result);
	cl_event events[4];
	uint32_t *at;

	must(result, "clCreateBuffer");
	events[0] = spin(w, q, mem, 500000000);
	must(cl.EnqueueReadBuffer(q, mem, CL_FALSE, 0, 4, &word, 1, &events[0], &events[1]),
	     "clEnqueueReadBuffer");
	must(cl.EnqueueWriteBuffer(q, mem, CL_FALSE, 0, 4, &other, 1, &events[1], &events[2]),
	     "clEnqueueWriteBuffer");
	at = cl.EnqueueMapBuffer(q, mem, CL_FALSE, CL_MAP_READ, 0, 4, 1, &events[2], &events[3],
				 &result);
	must(result, "clEnqueueMapBuffer");
	for (int i = 1; i < 4; i++)
		expect_true(status_of(events[i]) != CL_COMPLETE, "a copy that does not block");
	must(cl.WaitForEvents(1, &events[3]), "clWaitForEvents");
	show("read_behind", word);
	show("mapped_behind", *at);
	must(cl.EnqueueUnmapMemObject(q, mem, at, 0, NULL, NULL), "clEnqueueUnmapMemObject");
	must(cl.Finish(q), "clFinish");
	for (int i = 0; i < 4; i++)
		must(cl.ReleaseEvent(events[i]), "clReleaseEvent");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}

/* Long ones are another thread's from the start. */
static void probe_long_copies(const struct world *w, cl_command_queue q)
{
	const size_t bytes = 8u << 20;
	unsigned char *from = malloc(bytes), *to = calloc(1, bytes);
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, 0, bytes, NULL, &result);

	must(result, "clCreateBuffer");
	for (size_t i = 0; i < bytes; i++)
		from[i] = (unsigned char)(i * 11 + (i >> 12));
	must(cl.EnqueueWriteBuffer(q, mem, CL_FALSE, 0, bytes, from, 0, NULL, NULL), "write");
	must(cl.EnqueueFillBuffer(q, mem, "\1\2", 2, 64, 64, 0, NULL, NULL), "fill");
	must(cl.EnqueueReadBuffer(q, mem, CL_FALSE, 0, bytes, to, 0, NULL, NULL), "read");
	must(cl.Flush(q), "clFlush");
	must(cl.Finish(q), "clFinish");
	show_bytes("long_copies", to, bytes);
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	free(from);
	free(to);
}

/* Two queues, each other's events. */
static void probe_two_queues(const struct world *w, cl_command_queue other, cl_mem mem)
{
	cl_event events[20];

	for (uint32_t i = 0; i < 20; i++)
		fill(i % 2 ? other : w->queue, mem, 60 + i, i > 0, i > 0 ? &events[i - 1] : NULL,
		     &events[i]);
	must(cl.WaitForEvents(1, &events[19]), "clWaitForEvents");
	show("ping_pong", word_of(w, mem));
	for (int i = 0; i < 20; i++)
		must(cl.ReleaseEvent(events[i]), "clReleaseEvent");
}

void probe_events(const struct world *w)
{
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, 0, 64, NULL, &result);
	cl_command_queue free_order, in_order;

	must(result, "clCreateBuffer");
	free_order = cl.CreateCommandQueue(w->context, w->device,
					   CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &result);
	must(result, "clCreateCommandQueue, out of order");
	in_order = cl.CreateCommandQueue(w->context, w->device, 0, &result);
	must(result, "clCreateCommandQueue");
	probe_user_events(w, in_order, mem);
	probe_user_events(w, free_order, mem);
	probe_overtaking(w, free_order, mem);
	probe_barriers(w, free_order, mem);
	probe_barriers(w, in_order, mem);
	probe_failing_events(w, mem);
	probe_callbacks(w, mem);
	probe_times(w, mem);
	probe_two_queues(w, in_order, mem);
	probe_not_blocking(w, in_order);
	probe_not_blocking(w, free_order);
	probe_long_copies(w, in_order);
	must(cl.ReleaseCommandQueue(free_order), "clReleaseCommandQueue");
	must(cl.ReleaseCommandQueue(in_order), "clReleaseCommandQueue");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}
