/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that a program lets go of while commands and callbacks still have them. Lines are the same on every platform. */
#include <pthread.h>

#include "tests/system/guests/opencl_probe.h"

#define MANY 300u /* more queues than a session may have */

/* ---- what a callback has seen ---- */

struct seen {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned n;
	cl_int result;
};

static void note(struct seen *seen, cl_int result)
{
	(void)pthread_mutex_lock(&seen->lock);
	seen->n++;
	seen->result = result;
	(void)pthread_cond_broadcast(&seen->cond);
	(void)pthread_mutex_unlock(&seen->lock);
}

static unsigned count_of(struct seen *seen, unsigned at_least)
{
	unsigned n;

	(void)pthread_mutex_lock(&seen->lock);
	while (seen->n < at_least)
		(void)pthread_cond_wait(&seen->cond, &seen->lock);
	n = seen->n;
	(void)pthread_mutex_unlock(&seen->lock);
	return n;
}

static void CL_CALLBACK ask_event(cl_event event, cl_int status, void *user)
{
	cl_int found = 99;
	cl_int result = cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(found),
					&found, NULL);

	note(user, result == CL_SUCCESS ? found - status : result);
}

static void CL_CALLBACK on_end(cl_mem mem, void *user)
{
	(void)mem;
	note(user, CL_SUCCESS);
}

/* ---- */

static cl_event user_event(const struct world *w)
{
	cl_int result;
	cl_event event = cl.CreateUserEvent(w->context, &result);

	must(result, "clCreateUserEvent");
	return event;
}

static void let_go(const struct world *w, cl_event event)
{
	must(cl.SetUserEventStatus(event, CL_COMPLETE), "clSetUserEventStatus");
	must(cl.ReleaseEvent(event), "clReleaseEvent");
	must(cl.Finish(w->queue), "clFinish");
}

/* A queue is gone with its program's last reference, also one that ends with a barrier. */
static void probe_queues(const struct world *w)
{
	cl_int result = CL_SUCCESS;

	for (unsigned i = 0; i < MANY && result == CL_SUCCESS; i++) {
		cl_command_queue q = cl.CreateCommandQueue(
			w->context, w->device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &result);

		if (result == CL_SUCCESS) {
			must(cl.EnqueueBarrierWithWaitList(q, 0, NULL, NULL), "barrier");
			must(cl.ReleaseCommandQueue(q), "clReleaseCommandQueue");
		}
	}
	expect(result, CL_SUCCESS, "queues that were released are gone");
}

static void probe_operands(const struct world *w)
{
	const int a[2] = { 5, 6 }, b[2] = { 70, 80 }, n = 2;
	const size_t global = 2;
	cl_kernel add = kernel_of(w, "add");
	cl_event user = user_event(w), ran;
	cl_mem mems[3];
	int sum[2] = { 0 };
	cl_int result;

	for (cl_uint i = 0; i < 3; i++) {
		mems[i] = cl.CreateBuffer(w->context, CL_MEM_COPY_HOST_PTR, sizeof(a),
					  (void *)(uintptr_t)(i == 1 ? b : a), &result);
		must(result, "clCreateBuffer");
		must(cl.SetKernelArg(add, i, sizeof(mems[i]), &mems[i]), "clSetKernelArg");
	}
	must(cl.SetKernelArg(add, 3, sizeof(n), &n), "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(w->queue, add, 1, NULL, &global, NULL, 1, &user, &ran),
	     "clEnqueueNDRangeKernel");
	must(cl.ReleaseKernel(add), "clReleaseKernel");
	must(cl.ReleaseMemObject(mems[0]), "clReleaseMemObject");
	must(cl.ReleaseMemObject(mems[1]), "clReleaseMemObject");
	let_go(w, user);
	expect(cl.WaitForEvents(1, &ran), CL_SUCCESS,
	       "a kernel runs whose buffers were released since");
	must(cl.ReleaseEvent(ran), "clReleaseEvent");
	must(cl.EnqueueReadBuffer(w->queue, mems[2], CL_TRUE, 0, sizeof(sum), sum, 0, NULL, NULL),
	     "clEnqueueReadBuffer");
	show("operands_released", (uint64_t)sum[0] * 1000 + (uint64_t)sum[1]);
	must(cl.ReleaseMemObject(mems[2]), "clReleaseMemObject");
}

/* A kernel that takes a while, so that what is put after it waits. */
static void occupy(const struct world *w, cl_mem mem)
{
	const cl_uint turns = 30000000;
	const size_t one = 1;
	cl_kernel spin = kernel_of(w, "spin");

	must(cl.SetKernelArg(spin, 0, sizeof(mem), &mem), "clSetKernelArg");
	must(cl.SetKernelArg(spin, 1, sizeof(turns), &turns), "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(w->queue, spin, 1, NULL, &one, &one, 0, NULL, NULL),
	     "clEnqueueNDRangeKernel");
	must(cl.ReleaseKernel(spin), "clReleaseKernel");
}

/* What has been enqueued runs with the kernel and the arguments of then. */
static void probe_kernels_in_use(const struct world *w)
{
	const int seven = 7;
	const size_t one = 1;
	cl_kernel maybe = kernel_of(w, "maybe");
	cl_mem mems[3];
	int out[2] = { 0 };
	cl_int result;

	for (cl_uint i = 0; i < 3; i++) {
		mems[i] = cl.CreateBuffer(w->context, CL_MEM_COPY_HOST_PTR, sizeof(seven),
					  (void *)(uintptr_t)&seven, &result);
		must(result, "clCreateBuffer");
	}
	occupy(w, mems[2]);
	must(cl.SetKernelArg(maybe, 0, sizeof(mems[0]), &mems[0]), "clSetKernelArg");
	must(cl.SetKernelArg(maybe, 1, sizeof(mems[2]), &mems[2]), "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(w->queue, maybe, 1, NULL, &one, NULL, 0, NULL, NULL),
	     "clEnqueueNDRangeKernel");
	must(cl.SetKernelArg(maybe, 0, sizeof(mems[1]), &mems[1]), "clSetKernelArg");
	must(cl.SetKernelArg(maybe, 1, sizeof(mems[2]), NULL), "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(w->queue, maybe, 1, NULL, &one, NULL, 0, NULL, NULL),
	     "clEnqueueNDRangeKernel");
	must(cl.ReleaseKernel(maybe), "clReleaseKernel");
	for (int i = 0; i < 2; i++)
		must(cl.EnqueueReadBuffer(w->queue, mems[i], CL_TRUE, 0, sizeof(out[i]), &out[i], 0,
					  NULL, NULL),
		     "clEnqueueReadBuffer");
	show("released_kernel_with_buffer", (uint32_t)out[0]);
	show("released_kernel_without", (uint32_t)out[1]);
	for (cl_uint i = 0; i < 3; i++)
		must(cl.ReleaseMemObject(mems[i]), "clReleaseMemObject");
}

static void probe_event_of_callback(const struct world *w, struct seen *seen)
{
	cl_event user = user_event(w), marker;

	must(cl.EnqueueMarkerWithWaitList(w->queue, 1, &user, &marker), "marker");
	must(cl.SetEventCallback(marker, CL_COMPLETE, ask_event, seen), "clSetEventCallback");
	must(cl.ReleaseEvent(marker), "clReleaseEvent");
	let_go(w, user);
	show("callbacks_of_released", count_of(seen, 1));
	expect(seen->result, CL_SUCCESS, "a callback may ask about an event that was released");
}

static void probe_end_of_mem(const struct world *w, struct seen *seen)
{
	cl_event user = user_event(w);
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, 0, 64, NULL, &result);

	must(result, "clCreateBuffer");
	must(cl.SetMemObjectDestructorCallback(mem, on_end, seen),
	     "clSetMemObjectDestructorCallback");
	must(cl.EnqueueFillBuffer(w->queue, mem, "abcd", 4, 0, 64, 1, &user, NULL), "fill");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	show("told_before_its_command", count_of(seen, 0));
	let_go(w, user);
	show("told_after_its_command", count_of(seen, 1));
}

void probe_lifetimes(const struct world *w)
{
	struct seen seen[2] = { 0 };

	for (int i = 0; i < 2; i++) {
		(void)pthread_mutex_init(&seen[i].lock, NULL);
		(void)pthread_cond_init(&seen[i].cond, NULL);
	}
	probe_queues(w);
	probe_operands(w);
	probe_kernels_in_use(w);
	probe_event_of_callback(w, &seen[0]);
	probe_end_of_mem(w, &seen[1]);
}
