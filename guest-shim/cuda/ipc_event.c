/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that other processes can wait for. Each has a slot (ipc_page.c) in device memory of its maker's: how often
 * it was recorded, written at once, and for the latest records a word that a task in their stream writes. Who waits in another process looks
 * there, from the host. Two records that share a word are kept in order.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/ipc.h"

#define MAGIC	0x31455049u /* "IPE1" */
#define LOOK_NS 50000l
/* So often a maker is asked for while its event does not come: its memory is mapped once more, and let go of. */
#define ALIVE_NS     (GANTRY_NS_PER_S / 2)
#define ALIVE_MAX_NS (8 * GANTRY_NS_PER_S)

struct cu_shared_event {
	struct cu_page *page; /* NULL: another process's */
	uint32_t index;
	struct cu_opened *opened;
	uint64_t off;
};

struct handle {
	uint32_t magic;
	uint32_t device;
	uint8_t token[GANTRY_DOOR_TOKEN];
	uint64_t off;
	uint64_t reserved[4];
};
static_assert(sizeof(struct handle) == sizeof(CUipcEventHandle), "a handle fills CUDA's");

CUresult cu_shared_event_new_locked(struct CUctx_st *ctx, struct CUevent_st *event)
{
	struct cu_shared_event *shared;
	CUresult result;

	if (cu_is_far())
		return cu_unsupported("events of other processes through a stream");
	shared = calloc(1, sizeof(*shared));
	if (!shared)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = cu_slot_take_locked(ctx->dev, &shared->page, &shared->index);
	if (result != CUDA_SUCCESS) {
		free(shared);
		return result;
	}
	event->shared = shared;
	return CUDA_SUCCESS;
}

void cu_shared_event_end_locked(struct CUevent_st *event)
{
	struct cu_shared_event *shared = event->shared;

	if (!shared)
		return;
	if (shared->opened)
		cu_ipc_put_locked(shared->opened);
	else
		cu_slot_put_locked(shared->page, shared->index);
	free(shared);
	event->shared = NULL;
}

/* ---- what its maker does ---- */

/* The record that had this word before comes first, on whatever stream and of whichever event of the slot it was. */
static int put_word(struct CUstream_st *stream, struct cu_shared_event *shared, uint32_t n,
		    gantry_ticket *ret_ticket)
{
	gantry_ticket before = shared->page->tickets[shared->index][n % CU_SLOT_LATEST];
	uint64_t off = cu_slot_off(shared->index) + offsetof(struct cu_slot, done) +
		       n % CU_SLOT_LATEST * sizeof(uint32_t);
	int r = 0;

	if (before && gantry_test(cu.session, before) == 0)
		do
			r = gantry_submit_wait(cu.session, stream->queue, &before, 1, NULL);
		while (r == GANTRY_E_AGAIN);
	if (r == 0)
		do
			r = gantry_submit_fill(cu.session, stream->queue, shared->page->buffer, off,
					       sizeof(n), n, sizeof(n), ret_ticket);
		while (r == GANTRY_E_AGAIN);
	return r;
}

CUresult cu_shared_event_record_locked(struct CUevent_st *event, struct CUstream_st *stream)
{
	struct cu_shared_event *shared = event->shared;
	struct cu_slot slot = { 0 };
	gantry_ticket ticket = 0;
	CUresult result;
	int r;

	if (shared->opened)
		return cu_unsupported("cuEventRecord of another process's event");
	result = cu_stream_begin_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
	slot.recorded = shared->page->recorded[shared->index] + 1;
	r = put_word(stream, shared, slot.recorded, &ticket);
	result = cu_stream_put_locked(stream, r, ticket);
	if (result != CUDA_SUCCESS)
		return result;
	shared->page->recorded[shared->index] = slot.recorded;
	shared->page->tickets[shared->index][slot.recorded % CU_SLOT_LATEST] = ticket;
	event->ticket = ticket;
	event->is_recorded = true;
	event->captured = 0;
	return cu_result(cu_slot_move(shared->page->device, shared->page->buffer,
				      cu_slot_off(shared->index), &slot, sizeof(slot.recorded),
				      true));
}

CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle *ret_handle, CUevent event)
{
	struct handle handle = { .magic = MAGIC };
	struct CUctx_st *ctx;
	CUresult result = ret_handle ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(event, CU_KIND_EVENT) || !event->shared || event->shared->opened)
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	handle.device = event->shared->page->device;
	handle.off = cu_slot_off(event->shared->index);
	result = cu_ipc_export_locked(event->shared->page->buffer, handle.token);
	if (result == CUDA_SUCCESS)
		memcpy(ret_handle, &handle, sizeof(handle));
	return cu_leave(result);
}

/* ---- what others do ---- */

static CUresult open(struct CUctx_st *ctx, const struct handle *handle, CUevent *ret_event)
{
	struct cu_shared_event *shared = calloc(1, sizeof(*shared));
	struct CUevent_st *event = calloc(1, sizeof(*event));
	CUresult result = shared && event ? cu_ipc_take_locked(handle->device, handle->token,
							       &shared->opened)
					  : CUDA_ERROR_OUT_OF_MEMORY;

	if (result == CUDA_SUCCESS &&
	    (handle->off % sizeof(struct cu_slot) ||
	     !gantry_range_inside(handle->off, sizeof(struct cu_slot), shared->opened->bytes)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result == CUDA_SUCCESS && !cu_handle_add_locked(event, CU_KIND_EVENT))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		if (shared && shared->opened)
			cu_ipc_put_locked(shared->opened);
		free(shared);
		free(event);
		return result;
	}
	shared->off = handle->off;
	event->ctx = ctx;
	event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
	event->shared = shared;
	*ret_event = event;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenEventHandle(CUevent *ret_event, CUipcEventHandle given)
{
	struct handle handle;
	struct CUctx_st *ctx;
	CUresult result = ret_event ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	memcpy(&handle, &given, sizeof(handle));
	if (handle.magic != MAGIC || handle.reserved[0] || handle.reserved[1] ||
	    handle.reserved[2] || handle.reserved[3])
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	return cu_leave(open(ctx, &handle, ret_event));
}

bool cu_event_is_anothers(const struct CUevent_st *event)
{
	return event->shared && event->shared->opened;
}

static CUresult look(const struct cu_shared_event *shared, struct cu_slot *ret_slot)
{
	int r = cu_slot_move(shared->opened->dev->index, shared->opened->buffer, shared->off,
			     ret_slot, sizeof(*ret_slot), false);

	return r == GANTRY_E_NOT_FOUND ? CUDA_ERROR_INVALID_HANDLE : cu_result(r);
}

/* A later record may have the word by now. */
static bool is_reached(const struct cu_slot *slot, uint32_t n)
{
	return n == 0 || (int32_t)(slot->done[n % CU_SLOT_LATEST] - n) >= 0;
}

CUresult cu_shared_event_query_locked(const struct CUevent_st *event)
{
	struct cu_slot slot;
	CUresult result = look(event->shared, &slot);

	if (result != CUDA_SUCCESS)
		return result;
	return is_reached(&slot, slot.recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* When a maker is asked for, and how long it is until then: longer each time. */
struct alive {
	uint64_t next_ns;
	uint64_t pause_ns;
};

static void ask_later(struct alive *alive)
{
	alive->pause_ns = alive->pause_ns ? GANTRY_MIN(2 * alive->pause_ns, ALIVE_MAX_NS)
					  : ALIVE_NS;
	alive->next_ns = gantry_now_ns() + alive->pause_ns;
}

/* Its maker's end is no end of the task, but nobody will write the word. */
static CUresult pause_locked(const struct cu_shared_event *shared, struct alive *alive)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint8_t token[GANTRY_DOOR_TOKEN];
	bool asks = gantry_now_ns() >= alive->next_ns, is_alive = true;

	memcpy(token, shared->opened->token, sizeof(token));
	(void)pthread_mutex_unlock(&cu.lock);
	if (asks)
		is_alive = cu_ipc_is_alive(token);
	else
		(void)nanosleep(&pause, NULL);
	(void)pthread_mutex_lock(&cu.lock);
	if (asks)
		ask_later(alive);
	return is_alive ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

CUresult cu_shared_event_wait_locked(struct CUevent_st *event)
{
	struct alive alive = { 0 };
	struct cu_slot slot;
	CUresult result = look(event->shared, &slot);
	uint32_t n = slot.recorded;

	ask_later(&alive);
	cu_output_due();
	while (result == CUDA_SUCCESS && !is_reached(&slot, n)) {
		result = pause_locked(event->shared, &alive);
		/* Another thread may have let go of it. */
		if (!cu_handle_is_locked(event, CU_KIND_EVENT))
			return CUDA_ERROR_INVALID_HANDLE;
		if (result == CUDA_SUCCESS)
			result = look(event->shared, &slot);
	}
	return result;
}
