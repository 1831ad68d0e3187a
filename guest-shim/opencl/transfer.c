/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that move bytes between the program and buffers, and between buffers. */
#include <string.h>

#include "guest-shim/opencl/transfer.h"

struct gantry_session *icd_transfer_session(const struct _cl_event *event)
{
	return event->context->host->session;
}

/* ---- what all have in common ---- */

cl_int icd_transfer_check_any(cl_command_queue handle, cl_mem mem_handle,
			      const struct icd_waits *waits, struct _cl_command_queue **ret_q,
			      struct _cl_mem **ret_mem)
{
	*ret_q = icd_object_get(handle, ICD_QUEUE);
	if (!*ret_q)
		return CL_INVALID_COMMAND_QUEUE;
	*ret_mem = icd_object_get(mem_handle, ICD_MEM);
	if (!*ret_mem)
		return CL_INVALID_MEM_OBJECT;
	if ((*ret_mem)->context != (*ret_q)->context)
		return CL_INVALID_CONTEXT;
	return icd_waits_check(waits, (*ret_q)->context);
}

cl_int icd_transfer_check(cl_command_queue handle, cl_mem mem_handle, const struct icd_waits *waits,
			  struct _cl_command_queue **ret_q, struct _cl_mem **ret_mem)
{
	cl_int result = icd_transfer_check_any(handle, mem_handle, waits, ret_q, ret_mem);

	return result == CL_SUCCESS && (*ret_mem)->image.type ? CL_INVALID_MEM_OBJECT : result;
}

cl_int icd_transfer_check_range(const struct _cl_mem *mem, size_t off, size_t bytes)
{
	return bytes == 0 || off > mem->bytes || bytes > mem->bytes - off ? CL_INVALID_VALUE
									  : CL_SUCCESS;
}

void icd_transfer_use(struct icd_work *work, struct _cl_mem *mem, struct _cl_mem *other)
{
	work->mem = mem;
	work->other = other;
	icd_object_hold(mem);
	if (other)
		icd_object_hold(other);
}

bool icd_transfer_host_may(const struct _cl_mem *mem, cl_mem_flags against)
{
	return !(mem->flags & (against | CL_MEM_HOST_NO_ACCESS));
}

/* ---- reading and writing ---- */

static cl_int run_read(struct _cl_event *event, struct icd_work *work)
{
	return icd_status(gantry_read(icd_transfer_session(event), work->mem->buffer,
				      work->mem->origin + work->off, work->ptr, work->bytes));
}

static cl_int run_write(struct _cl_event *event, struct icd_work *work)
{
	return icd_status(gantry_write(icd_transfer_session(event), work->mem->buffer,
				       work->mem->origin + work->off, work->ptr, work->bytes));
}

static cl_int transfer_bytes(cl_command_queue handle, cl_mem mem_handle, bool is_blocking,
			     bool is_write, size_t off, size_t bytes, void *ptr,
			     const struct icd_waits *waits, cl_event *ret_event)
{
	struct icd_work work = {
		.on_host = is_write ? run_write : run_read, .off = off, .bytes = bytes, .ptr = ptr
	};
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	cl_int result;

	icd_gate_lock();
	result = icd_transfer_check(handle, mem_handle, waits, &q, &mem);
	if (result == CL_SUCCESS)
		result = ptr ? icd_transfer_check_range(mem, off, bytes) : CL_INVALID_VALUE;
	if (result == CL_SUCCESS &&
	    !icd_transfer_host_may(mem, is_write ? CL_MEM_HOST_READ_ONLY : CL_MEM_HOST_WRITE_ONLY))
		result = CL_INVALID_OPERATION;
	if (result == CL_SUCCESS) {
		icd_transfer_use(&work, mem, NULL);
		result = icd_enqueue(q, is_write ? CL_COMMAND_WRITE_BUFFER : CL_COMMAND_READ_BUFFER,
				     &work, is_blocking, waits, ret_event);
	}
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clEnqueueReadBuffer(cl_command_queue q, cl_mem mem, cl_bool is_blocking,
					   size_t off, size_t bytes, void *ptr, cl_uint n,
					   const cl_event *list, cl_event *ret_event)
{
	return transfer_bytes(q, mem, is_blocking, false, off, bytes, ptr,
			      &(struct icd_waits){ n, list }, ret_event);
}

cl_int CL_API_CALL icd_clEnqueueWriteBuffer(cl_command_queue q, cl_mem mem, cl_bool is_blocking,
					    size_t off, size_t bytes, const void *ptr, cl_uint n,
					    const cl_event *list, cl_event *ret_event)
{
	return transfer_bytes(q, mem, is_blocking, true, off, bytes, (void *)(uintptr_t)ptr,
			      &(struct icd_waits){ n, list }, ret_event);
}

/* ---- boxes ---- */

/* Of a box in one memory: pitches that were left 0 become what they mean; where its first byte is, and how many from there. */
static cl_int box_of(const size_t *origin, const size_t *region, size_t row, size_t slice,
		     size_t ret_pitch[2], uint64_t *ret_off, uint64_t *ret_bytes)
{
	uint64_t least, a, b, c, d;

	if (!origin || !region || region[0] == 0 || region[1] == 0 || region[2] == 0)
		return CL_INVALID_VALUE;
	row = row ? row : region[0];
	if (row < region[0] || __builtin_mul_overflow((uint64_t)row, region[1], &least))
		return CL_INVALID_VALUE;
	slice = slice ? slice : least;
	if (slice < least || slice % row != 0)
		return CL_INVALID_VALUE;
	if (__builtin_mul_overflow((uint64_t)origin[2], slice, &a) ||
	    __builtin_mul_overflow((uint64_t)origin[1], row, &b) ||
	    __builtin_add_overflow(a, b, &a) || __builtin_add_overflow(a, origin[0], &a) ||
	    __builtin_mul_overflow((uint64_t)region[2] - 1, slice, &c) ||
	    __builtin_mul_overflow((uint64_t)region[1] - 1, row, &d) ||
	    __builtin_add_overflow(c, d, &c) || __builtin_add_overflow(c, region[0], &c) ||
	    __builtin_add_overflow(a, c, &d))
		return CL_INVALID_VALUE;
	ret_pitch[0] = row;
	ret_pitch[1] = slice;
	*ret_off = a;
	*ret_bytes = c;
	return CL_SUCCESS;
}

static void copy_box(char *to, const size_t to_pitch[2], const char *from,
		     const size_t from_pitch[2], const size_t region[3])
{
	for (size_t z = 0; z < region[2]; z++)
		for (size_t y = 0; y < region[1]; y++)
			memcpy(to + z * to_pitch[1] + y * to_pitch[0],
			       from + z * from_pitch[1] + y * from_pitch[0], region[0]);
}

void icd_transfer_merge(size_t region[3], const size_t pitch[2], const size_t other_pitch[2])
{
	for (int i = 0; i < 2; i++) {
		if (region[1 + i] == 1)
			continue;
		if (region[0] != pitch[i] || region[0] != other_pitch[i] || (i && region[1] != 1))
			return;
		region[0] *= region[1 + i];
		region[1 + i] = 1;
	}
}

int icd_transfer_box(struct gantry_session *session, gantry_buffer buffer,
		     const struct icd_mapped *what, bool is_write, char *host,
		     const size_t host_pitch[2])
{
	size_t region[3];
	void *at;
	int r;

	memcpy(region, what->region, sizeof(region));
	icd_transfer_merge(region, what->pitch, host_pitch);
	if (region[1] == 1 && region[2] == 1)
		return is_write ? gantry_write(session, buffer, what->off, host, region[0])
				: gantry_read(session, buffer, what->off, host, region[0]);
	r = gantry_map(session, buffer, what->off, what->bytes, is_write ? GANTRY_RW : GANTRY_R,
		       GANTRY_FOREVER, &at);
	if (r < 0)
		return r;
	if (is_write)
		copy_box(at, what->pitch, host, host_pitch, region);
	else
		copy_box(host, host_pitch, at, what->pitch, region);
	return gantry_unmap(session, at);
}

static cl_int run_box(struct _cl_event *event, struct icd_work *work, bool is_write)
{
	struct icd_mapped what = { .off = work->mem->origin + work->off, .bytes = work->bytes };

	memcpy(what.region, work->region, sizeof(what.region));
	memcpy(what.pitch, work->pitch, sizeof(what.pitch));
	return icd_status(icd_transfer_box(icd_transfer_session(event), work->mem->buffer, &what,
					   is_write, (char *)work->ptr + work->other_off,
					   work->other_pitch));
}

cl_int icd_transfer_read_box(struct _cl_event *event, struct icd_work *work)
{
	return run_box(event, work, false);
}

cl_int icd_transfer_write_box(struct _cl_event *event, struct icd_work *work)
{
	return run_box(event, work, true);
}

/* Where a box lies: in a buffer, and in the program's memory or another buffer. */
struct boxes {
	const size_t *origin, *other_origin, *region;
	size_t row, slice, other_row, other_slice;
};

static cl_int take_boxes(struct icd_work *work, const struct boxes *boxes,
			 uint64_t *ret_other_bytes)
{
	cl_int result = box_of(boxes->origin, boxes->region, boxes->row, boxes->slice, work->pitch,
			       &work->off, &work->bytes);

	if (result == CL_SUCCESS)
		result = box_of(boxes->other_origin, boxes->region, boxes->other_row,
				boxes->other_slice, work->other_pitch, &work->other_off,
				ret_other_bytes);
	if (result == CL_SUCCESS)
		memcpy(work->region, boxes->region, sizeof(work->region));
	return result;
}

static cl_int transfer_box(cl_command_queue handle, cl_mem mem_handle, bool is_blocking,
			   bool is_write, const struct boxes *boxes, void *ptr,
			   const struct icd_waits *waits, cl_event *ret_event)
{
	struct icd_work work = { .on_host = is_write ? icd_transfer_write_box
						     : icd_transfer_read_box,
				 .ptr = ptr };
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	uint64_t other_bytes;
	cl_int result;

	icd_gate_lock();
	result = icd_transfer_check(handle, mem_handle, waits, &q, &mem);
	if (result == CL_SUCCESS)
		result = ptr ? take_boxes(&work, boxes, &other_bytes) : CL_INVALID_VALUE;
	if (result == CL_SUCCESS)
		result = icd_transfer_check_range(mem, work.off, work.bytes);
	if (result == CL_SUCCESS &&
	    !icd_transfer_host_may(mem, is_write ? CL_MEM_HOST_READ_ONLY : CL_MEM_HOST_WRITE_ONLY))
		result = CL_INVALID_OPERATION;
	if (result == CL_SUCCESS) {
		icd_transfer_use(&work, mem, NULL);
		result = icd_enqueue(
			q, is_write ? CL_COMMAND_WRITE_BUFFER_RECT : CL_COMMAND_READ_BUFFER_RECT,
			&work, is_blocking, waits, ret_event);
	}
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clEnqueueReadBufferRect(cl_command_queue q, cl_mem mem, cl_bool is_blocking,
					       const size_t *origin, const size_t *host_origin,
					       const size_t *region, size_t row, size_t slice,
					       size_t host_row, size_t host_slice, void *ptr,
					       cl_uint n, const cl_event *list, cl_event *ret_event)
{
	const struct boxes boxes = {
		origin, host_origin, region, row, slice, host_row, host_slice
	};

	return transfer_box(q, mem, is_blocking, false, &boxes, ptr, &(struct icd_waits){ n, list },
			    ret_event);
}

cl_int CL_API_CALL icd_clEnqueueWriteBufferRect(cl_command_queue q, cl_mem mem, cl_bool is_blocking,
						const size_t *origin, const size_t *host_origin,
						const size_t *region, size_t row, size_t slice,
						size_t host_row, size_t host_slice, const void *ptr,
						cl_uint n, const cl_event *list,
						cl_event *ret_event)
{
	const struct boxes boxes = {
		origin, host_origin, region, row, slice, host_row, host_slice
	};

	return transfer_box(q, mem, is_blocking, true, &boxes, (void *)(uintptr_t)ptr,
			    &(struct icd_waits){ n, list }, ret_event);
}

/* ---- from buffer to buffer ---- */

/* What a task comes after, where the call that puts it has no list of its own. */
int icd_transfer_wait(const struct _cl_event *event, const gantry_ticket *after, unsigned nafter)
{
	return nafter ? gantry_submit_wait(icd_transfer_session(event), event->queue->line->queue,
					   after, nafter, NULL)
		      : 0;
}

static int run_copy(struct _cl_event *event, struct icd_work *work, const gantry_ticket *after,
		    unsigned nafter, gantry_ticket *ret_ticket)
{
	int r = icd_transfer_wait(event, after, nafter);

	return r < 0 ? r
		     : gantry_submit_copy(icd_transfer_session(event), event->queue->line->queue,
					  work->other->buffer,
					  work->other->origin + work->other_off, work->mem->buffer,
					  work->mem->origin + work->off, work->bytes, ret_ticket);
}

int icd_transfer_copy_box(struct _cl_event *event, struct icd_work *work,
			  const gantry_ticket *after, unsigned nafter, gantry_ticket *ret_ticket)
{
	int r = icd_transfer_wait(event, after, nafter);

	icd_transfer_merge(work->region, work->pitch, work->other_pitch);
	for (size_t z = 0; z < work->region[2]; z++)
		for (size_t y = 0; y < work->region[1] && r >= 0; y++)
			r = gantry_submit_copy(icd_transfer_session(event),
					       event->queue->line->queue, work->other->buffer,
					       work->other->origin + work->other_off +
						       z * work->other_pitch[1] +
						       y * work->other_pitch[0],
					       work->mem->buffer,
					       work->mem->origin + work->off + z * work->pitch[1] +
						       y * work->pitch[0],
					       work->region[0], ret_ticket);
	return r;
}

static cl_int check_copy(cl_command_queue handle, cl_mem from_handle, cl_mem to_handle,
			 const struct icd_waits *waits, struct _cl_command_queue **ret_q,
			 struct icd_work *work)
{
	cl_int result = icd_transfer_check(handle, from_handle, waits, ret_q, &work->mem);

	if (result == CL_SUCCESS)
		result = icd_transfer_check(handle, to_handle, waits, ret_q, &work->other);
	return result;
}

static bool same_memory(const struct icd_work *work)
{
	return work->mem->buffer == work->other->buffer;
}

static cl_int put_copy(struct _cl_command_queue *q, cl_command_type command, struct icd_work *work,
		       const struct icd_waits *waits, cl_event *ret_event)
{
	icd_transfer_use(work, work->mem, work->other);
	return icd_enqueue(q, command, work, false, waits, ret_event);
}

cl_int CL_API_CALL icd_clEnqueueCopyBuffer(cl_command_queue handle, cl_mem from, cl_mem to,
					   size_t from_off, size_t to_off, size_t bytes, cl_uint n,
					   const cl_event *list, cl_event *ret_event)
{
	const struct icd_waits waits = { n, list };
	struct icd_work work = {
		.on_device = run_copy, .off = from_off, .other_off = to_off, .bytes = bytes
	};
	struct _cl_command_queue *q;
	uint64_t a, b;
	cl_int result;

	icd_gate_lock();
	result = check_copy(handle, from, to, &waits, &q, &work);
	if (result == CL_SUCCESS)
		result = icd_transfer_check_range(work.mem, from_off, bytes);
	if (result == CL_SUCCESS)
		result = icd_transfer_check_range(work.other, to_off, bytes);
	if (result == CL_SUCCESS) {
		a = work.mem->origin + from_off;
		b = work.other->origin + to_off;
		if (same_memory(&work) && a < b + bytes && b < a + bytes)
			result = CL_MEM_COPY_OVERLAP;
	}
	if (result == CL_SUCCESS)
		result = put_copy(q, CL_COMMAND_COPY_BUFFER, &work, &waits, ret_event);
	icd_gate_unlock();
	return result;
}

/* Whether a place lies in a gap of the other's, modulo @period. */
static bool apart(uint64_t a, uint64_t b, uint64_t bytes, uint64_t period)
{
	return (b >= a + bytes && b + bytes <= a + period) ||
	       (a >= b + bytes && a + bytes <= b + period);
}

/* As appendix E of the standard has it, with places in the buffer that both are in. */
static bool boxes_overlap(const struct icd_work *work)
{
	uint64_t row = work->pitch[0], slice = work->pitch[1];
	uint64_t plane = (work->region[1] - 1) * row + work->region[0];
	uint64_t a = work->mem->origin + work->off, b = work->other->origin + work->other_off;

	if (b + work->bytes <= a || a + work->bytes <= b)
		return false;
	return !apart(a % row, b % row, work->region[0], row) &&
	       !apart(a % slice, b % slice, plane, slice);
}

cl_int CL_API_CALL icd_clEnqueueCopyBufferRect(cl_command_queue handle, cl_mem from, cl_mem to,
					       const size_t *origin, const size_t *to_origin,
					       const size_t *region, size_t row, size_t slice,
					       size_t to_row, size_t to_slice, cl_uint n,
					       const cl_event *list, cl_event *ret_event)
{
	const struct boxes boxes = { origin, to_origin, region, row, slice, to_row, to_slice };
	const struct icd_waits waits = { n, list };
	struct icd_work work = { .on_device = icd_transfer_copy_box };
	struct _cl_command_queue *q;
	uint64_t to_bytes = 0;
	cl_int result;

	icd_gate_lock();
	result = check_copy(handle, from, to, &waits, &q, &work);
	if (result == CL_SUCCESS)
		result = take_boxes(&work, &boxes, &to_bytes);
	if (result == CL_SUCCESS)
		result = icd_transfer_check_range(work.mem, work.off, work.bytes);
	if (result == CL_SUCCESS)
		result = icd_transfer_check_range(work.other, work.other_off, to_bytes);
	if (result == CL_SUCCESS && same_memory(&work)) {
		if (memcmp(work.pitch, work.other_pitch, sizeof(work.pitch)) != 0)
			result = CL_INVALID_VALUE;
		else if (boxes_overlap(&work))
			result = CL_MEM_COPY_OVERLAP;
	}
	if (result == CL_SUCCESS)
		result = put_copy(q, CL_COMMAND_COPY_BUFFER_RECT, &work, &waits, ret_event);
	icd_gate_unlock();
	return result;
}
