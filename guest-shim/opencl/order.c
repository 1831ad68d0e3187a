/* SPDX-License-Identifier: Apache-2.0 */
/* Filling; and commands that only order others. */
#include <string.h>

#include "guest-shim/opencl/transfer.h"

#define PATTERN_ON_DEVICE 8u

/* ---- filling ---- */

static int run_fill(struct _cl_event *event, struct icd_work *work, const gantry_ticket *after,
		    unsigned nafter, gantry_ticket *ret_ticket)
{
	int r = icd_transfer_wait(event, after, nafter);

	return r < 0 ? r
		     : gantry_submit_fill(icd_transfer_session(event), event->queue->line->queue,
					  work->mem->buffer, work->mem->origin + work->off,
					  work->bytes, work->pattern[0], work->pattern_bytes,
					  ret_ticket);
}

/* Patterns that are longer than a task's. */
static cl_int run_long_fill(struct _cl_event *event, struct icd_work *work)
{
	struct gantry_session *session = icd_transfer_session(event);
	void *at;
	int r = gantry_map(session, work->mem->buffer, work->mem->origin + work->off, work->bytes,
			   GANTRY_W, GANTRY_FOREVER, &at);

	if (r < 0)
		return icd_status(r);
	for (uint64_t done = 0; done < work->bytes; done += work->pattern_bytes)
		memcpy((char *)at + done, work->pattern, work->pattern_bytes);
	return icd_status(gantry_unmap(session, at));
}

static cl_int check_fill(const struct _cl_mem *mem, const void *pattern, size_t pattern_bytes,
			 size_t off, size_t bytes)
{
	if (!pattern || pattern_bytes == 0 ||
	    pattern_bytes > sizeof(((struct icd_work *)0)->pattern) ||
	    (pattern_bytes & (pattern_bytes - 1)) || off % pattern_bytes || bytes % pattern_bytes)
		return CL_INVALID_VALUE;
	return icd_transfer_check_range(mem, off, bytes);
}

cl_int CL_API_CALL icd_clEnqueueFillBuffer(cl_command_queue handle, cl_mem mem_handle,
					   const void *pattern, size_t pattern_bytes, size_t off,
					   size_t bytes, cl_uint n, const cl_event *list,
					   cl_event *ret_event)
{
	const struct icd_waits waits = { n, list };
	struct icd_work work = { .off = off, .bytes = bytes };
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	cl_int result;

	icd_gate_lock();
	result = icd_transfer_check(handle, mem_handle, &waits, &q, &mem);
	if (result == CL_SUCCESS)
		result = check_fill(mem, pattern, pattern_bytes, off, bytes);
	if (result == CL_SUCCESS) {
		if (pattern_bytes <= PATTERN_ON_DEVICE)
			work.on_device = run_fill;
		else
			work.on_host = run_long_fill;
		memcpy(work.pattern, pattern, pattern_bytes);
		work.pattern_bytes = (uint32_t)pattern_bytes;
		icd_transfer_use(&work, mem, NULL);
		result = icd_enqueue(q, CL_COMMAND_FILL_BUFFER, &work, false, &waits, ret_event);
	}
	icd_gate_unlock();
	return result;
}

/* ---- order only ---- */

static int run_marker(struct _cl_event *event, struct icd_work *work, const gantry_ticket *after,
		      unsigned nafter, gantry_ticket *ret_ticket)
{
	int r = icd_transfer_wait(event, after, nafter);

	(void)work;
	return r < 0 ? r
		     : gantry_submit_marker(icd_transfer_session(event), event->queue->line->queue,
					    ret_ticket);
}

static cl_int order(cl_command_queue handle, cl_command_type command, const struct icd_waits *waits,
		    cl_event *ret_event)
{
	struct icd_work work = { .on_device = run_marker };
	struct _cl_command_queue *q;
	cl_int result = CL_INVALID_COMMAND_QUEUE;

	icd_gate_lock();
	q = icd_object_get(handle, ICD_QUEUE);
	if (q)
		result = icd_waits_check(waits, q->context);
	if (result == CL_SUCCESS)
		result = icd_enqueue(q, command, &work, false, waits, ret_event);
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clEnqueueMarkerWithWaitList(cl_command_queue q, cl_uint n,
						   const cl_event *list, cl_event *ret_event)
{
	return order(q, CL_COMMAND_MARKER, &(struct icd_waits){ n, list }, ret_event);
}

cl_int CL_API_CALL icd_clEnqueueBarrierWithWaitList(cl_command_queue q, cl_uint n,
						    const cl_event *list, cl_event *ret_event)
{
	return order(q, CL_COMMAND_BARRIER, &(struct icd_waits){ n, list }, ret_event);
}

cl_int CL_API_CALL icd_clEnqueueMarker(cl_command_queue q, cl_event *ret_event)
{
	if (!ret_event)
		return CL_INVALID_VALUE;
	return order(q, CL_COMMAND_MARKER, &(struct icd_waits){ 0 }, ret_event);
}

cl_int CL_API_CALL icd_clEnqueueBarrier(cl_command_queue q)
{
	return order(q, CL_COMMAND_BARRIER, &(struct icd_waits){ 0 }, NULL);
}

cl_int CL_API_CALL icd_clEnqueueWaitForEvents(cl_command_queue q, cl_uint n, const cl_event *list)
{
	cl_int result = n && list
				? order(q, CL_COMMAND_BARRIER, &(struct icd_waits){ n, list }, NULL)
				: CL_INVALID_VALUE;

	return result == CL_INVALID_EVENT_WAIT_LIST ? CL_INVALID_EVENT : result;
}

cl_int CL_API_CALL icd_clEnqueueMigrateMemObjects(cl_command_queue handle, cl_uint nmems,
						  const cl_mem *mems, cl_mem_migration_flags flags,
						  cl_uint n, const cl_event *list,
						  cl_event *ret_event)
{
	const struct icd_waits waits = { n, list };
	struct icd_work work = { .on_device = run_marker };
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	cl_int result = CL_SUCCESS;

	icd_gate_lock();
	q = icd_object_get(handle, ICD_QUEUE);
	if (!q)
		result = CL_INVALID_COMMAND_QUEUE;
	else if (nmems == 0 || !mems ||
		 (flags & ~(cl_mem_migration_flags)(CL_MIGRATE_MEM_OBJECT_HOST |
						    CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED)))
		result = CL_INVALID_VALUE;
	for (cl_uint i = 0; result == CL_SUCCESS && i < nmems; i++)
		result = icd_transfer_check_any(handle, mems[i], &waits, &q, &mem);
	/* Gantry brings memory to where it is used. */
	if (result == CL_SUCCESS)
		result = icd_enqueue(q, CL_COMMAND_MIGRATE_MEM_OBJECTS, &work, false, &waits,
				     ret_event);
	icd_gate_unlock();
	return result;
}
