/* SPDX-License-Identifier: Apache-2.0 */
/* Events as objects; words of the session's memory that the host writes device clocks to, or waits for. */
#include <stdlib.h>

#include "guest-shim/cuda/core.h"
#include "guest-shim/cuda/ipc.h"
#include "guest-shim/ranges.h"

#define PER_RANGE 512u

struct cu_cell {
	struct cu_cell *next; /* free, or given back */
	struct gantry_range *range;
	uint64_t off;
	gantry_ticket ticket;
};

static struct cu_cell *free_cells;
static struct cu_cell *put_cells; /* oldest first */
static struct cu_cell **put_end = &put_cells;

/* One page for many; they stay as long as the process. */
static bool make(void)
{
	struct cu_cell *cells = calloc(PER_RANGE, sizeof(*cells));
	struct gantry_range *range;

	if (!cells)
		return false;
	if (gantry_range_take(cu.session, PER_RANGE * sizeof(uint64_t), GANTRY_LINE, 0, &range) <
	    0) {
		free(cells);
		return false;
	}
	for (uint32_t i = 0; i < PER_RANGE; i++) {
		cells[i] = (struct cu_cell){ .next = free_cells,
					     .range = range,
					     .off = i * sizeof(uint64_t) };
		free_cells = &cells[i];
	}
	return true;
}

/* Those that nothing writes to any more. */
static void reap(void)
{
	while (put_cells &&
	       (!put_cells->ticket || gantry_test(cu.session, put_cells->ticket) != 0)) {
		struct cu_cell *cell = put_cells;

		put_cells = cell->next;
		if (!put_cells)
			put_end = &put_cells;
		cell->next = free_cells;
		free_cells = cell;
	}
}

struct cu_cell *cu_cell_take_locked(void)
{
	struct cu_cell *cell;

	reap();
	if (!free_cells && !make())
		return NULL;
	cell = free_cells;
	free_cells = cell->next;
	cell->ticket = 0;
	*cu_cell_word(cell) = 0;
	return cell;
}

void cu_cell_put_locked(struct cu_cell *cell, gantry_ticket ticket)
{
	if (!cell)
		return;
	cell->ticket = ticket;
	cell->next = NULL;
	*put_end = cell;
	put_end = &cell->next;
}

uint64_t cu_cell_off(const struct cu_cell *cell)
{
	return cell->range->off + cell->off;
}

uint64_t *cu_cell_word(const struct cu_cell *cell)
{
	return (uint64_t *)((uint8_t *)gantry_range_ptr(cu.session, cell->range) + cell->off);
}

/* A record of it that is under way, perhaps on another stream, writes elsewhere. */
static CUresult renew(struct CUevent_st *event)
{
	struct cu_cell *cell;

	if (!event->cell || !event->ticket || gantry_test(cu.session, event->ticket) != 0)
		return CUDA_SUCCESS;
	cell = cu_cell_take_locked();
	if (!cell)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cu_cell_put_locked(event->cell, event->ticket);
	event->cell = cell;
	return CUDA_SUCCESS;
}

CUresult cu_event_record_locked(struct CUevent_st *event, struct CUstream_st *stream)
{
	gantry_ticket ticket = 0;
	CUresult result;
	int r;

	if (event->shared)
		return cu_shared_event_record_locked(event, stream);
	result = cu_stream_begin_locked(stream);
	if (result == CUDA_SUCCESS)
		result = renew(event);
	if (result != CUDA_SUCCESS)
		return result;
	do
		r = event->cell ? gantry_submit_stamp(cu.session, stream->queue,
						      cu_cell_off(event->cell), &ticket)
				: gantry_submit_marker(cu.session, stream->queue, &ticket);
	while (r == GANTRY_E_AGAIN);
	result = cu_stream_put_locked(stream, r, ticket);
	if (result == CUDA_SUCCESS) {
		event->ticket = ticket;
		event->is_recorded = true;
		event->captured = 0;
	}
	return result;
}

CUresult cu_event_await_locked(struct CUevent_st *event, struct CUstream_st *stream)
{
	gantry_ticket ticket = 0;
	int r;

	/* What follows comes after it, whatever waits: this call does. */
	if (cu_event_is_anothers(event))
		return cu_shared_event_wait_locked(event);
	if (!event->ticket)
		return CUDA_SUCCESS;
	do
		r = gantry_submit_wait(cu.session, stream->queue, &event->ticket, 1, NULL);
	while (r == GANTRY_E_AGAIN);
	/* An event behind the wait has to be behind what it waits for: a task that is known stands for it. */
	if (r == 0)
		do
			r = gantry_submit_marker(cu.session, stream->queue, &ticket);
		while (r == GANTRY_E_AGAIN);
	return cu_stream_put_locked(stream, r, ticket);
}

void cu_event_end_locked(struct CUevent_st *event)
{
	cu_handle_remove_locked(event);
	cu_shared_event_end_locked(event);
	cu_cell_put_locked(event->cell, event->ticket);
	free(event->tips.node);
	free(event);
}

void cu_event_end_all_locked(const struct CUctx_st *ctx)
{
	struct CUevent_st *event;
	uint32_t at = 0;

	while ((event = (struct CUevent_st *)(uintptr_t)cu_handle_next_locked(CU_KIND_EVENT, &at)))
		if (event->ctx == ctx)
			cu_event_end_locked(event);
}
