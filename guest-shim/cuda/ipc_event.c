/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that other processes can wait for. Each has a slot in device memory of its maker's, which others open as they open any: how often
 * it was recorded, written at once, and for the latest records a word that a task in their stream writes. Who waits in another process looks
 * there, from the host. Two records that share a word are kept in order.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/cuda/aside.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/ipc.h"

#define MAGIC	   0x31455049u /* "IPE1" */
#define PAGE_BYTES (64u << 10)
#define LATEST	   8u
#define NSLOTS	   (PAGE_BYTES / sizeof(struct slot))
#define LOOK_NS	   50000l
/* So often a maker is asked for while its event does not come: its memory is mapped once more, and let go of. */
#define ALIVE_NS     (GANTRY_NS_PER_S / 2)
#define ALIVE_MAX_NS (8 * GANTRY_NS_PER_S)

struct slot {
	uint32_t recorded;
	uint32_t reserved[7];
	uint32_t done[LATEST]; /* [n % LATEST]: record n has been reached */
};
static_assert(sizeof(struct slot) == 64, "slots fill a page");

struct page {
	struct page *next;
	gantry_buffer buffer;
	uint32_t device;
	bool is_taken[NSLOTS];
	uint32_t recorded[NSLOTS]; /* goes on where a slot has another event */
	gantry_ticket tickets[NSLOTS]
			     [LATEST]; /* and so does the order of those that share a word */
};
static struct page *pages;

struct cu_shared_event {
	struct page *page; /* NULL: another process's */
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

static uint64_t off_of(uint32_t index)
{
	return (uint64_t)index * sizeof(struct slot);
}

/* ---- slots ---- */

static int move_slot(uint32_t device, gantry_buffer buffer, uint64_t off, struct slot *slot,
		     size_t bytes, bool to_device)
{
	int r;

	cu_aside_enter();
	r = cu_aside_open(device);
	if (r == 0 && to_device)
		memcpy(cu_aside_piece(), slot, bytes);
	if (r == 0)
		r = cu_aside_copy(device, buffer, off, bytes, to_device);
	if (r == 0 && !to_device)
		memcpy(slot, cu_aside_piece(), bytes);
	cu_aside_leave();
	return r;
}

static CUresult new_page(struct CUctx_st *ctx, struct page **ret_page)
{
	struct page *page = calloc(1, sizeof(*page));
	struct slot none = { 0 };
	CUdeviceptr address;
	CUresult result;

	if (!page)
		return CUDA_ERROR_OUT_OF_MEMORY;
	page->device = ctx->dev->index;
	result = cu_buffer_new_locked(ctx->dev, PAGE_BYTES,
				      GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED, &page->buffer,
				      &address);
	for (uint32_t i = 0; i < NSLOTS && result == CUDA_SUCCESS; i++)
		result = cu_result(move_slot(page->device, page->buffer, off_of(i), &none,
					     sizeof(none), true));
	if (result != CUDA_SUCCESS) {
		if (page->buffer)
			(void)gantry_free(cu.session, page->buffer);
		free(page);
		return result;
	}
	page->next = pages;
	*ret_page = pages = page;
	return CUDA_SUCCESS;
}

static bool take_slot(const struct CUctx_st *ctx, struct cu_shared_event *shared)
{
	for (struct page *page = pages; page; page = page->next)
		for (uint32_t i = 0; i < NSLOTS && page->device == ctx->dev->index; i++)
			if (!page->is_taken[i]) {
				page->is_taken[i] = true;
				shared->page = page;
				shared->index = i;
				return true;
			}
	return false;
}

CUresult cu_shared_event_new_locked(struct CUctx_st *ctx, struct CUevent_st *event)
{
	struct cu_shared_event *shared = calloc(1, sizeof(*shared));
	CUresult result = CUDA_SUCCESS;
	struct page *page;

	if (!shared)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!take_slot(ctx, shared))
		result = new_page(ctx, &page);
	if (result == CUDA_SUCCESS && !shared->page && !take_slot(ctx, shared))
		result = CUDA_ERROR_OUT_OF_MEMORY;
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
		shared->page->is_taken[shared->index] = false;
	free(shared);
	event->shared = NULL;
}

/* ---- what its maker does ---- */

/* The record that had this word before comes first, on whatever stream and of whichever event of the slot it was. */
static int put_word(struct CUstream_st *stream, struct cu_shared_event *shared, uint32_t n,
		    gantry_ticket *ret_ticket)
{
	gantry_ticket before = shared->page->tickets[shared->index][n % LATEST];
	uint64_t off = off_of(shared->index) + offsetof(struct slot, done) +
		       n % LATEST * sizeof(uint32_t);
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
	struct slot slot = { 0 };
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
	shared->page->tickets[shared->index][slot.recorded % LATEST] = ticket;
	event->ticket = ticket;
	event->is_recorded = true;
	event->captured = 0;
	return cu_result(move_slot(shared->page->device, shared->page->buffer,
				   off_of(shared->index), &slot, sizeof(slot.recorded), true));
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
	handle.off = off_of(event->shared->index);
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
	    (handle->off % sizeof(struct slot) ||
	     !gantry_range_inside(handle->off, sizeof(struct slot), shared->opened->bytes)))
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

static CUresult look(const struct cu_shared_event *shared, struct slot *ret_slot)
{
	int r = move_slot(shared->opened->dev->index, shared->opened->buffer, shared->off, ret_slot,
			  sizeof(*ret_slot), false);

	return r == GANTRY_E_NOT_FOUND ? CUDA_ERROR_INVALID_HANDLE : cu_result(r);
}

/* A later record may have the word by now. */
static bool is_reached(const struct slot *slot, uint32_t n)
{
	return n == 0 || (int32_t)(slot->done[n % LATEST] - n) >= 0;
}

CUresult cu_shared_event_query_locked(const struct CUevent_st *event)
{
	struct slot slot;
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
	struct slot slot;
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
