/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory behind the addresses of graphs. A launch takes what lies there already, else what nobody has, or what an earlier graph of the same
 * stream is done with, which is waited for: then it lies elsewhere; else new memory. Streams do not take it away from each other, so
 * graphs that may run at the same time have memory of their own, unless there is no other.
 */
#include <stdlib.h>

#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/cuda/graphmem.h"
#include "guest-shim/cuda/vmm.h"
#include "guest-shim/session.h"

static struct cu_backing *backings;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static struct {
	uint64_t used;
	uint64_t reserved;
} high[CU_MAX_DEVICES];

/* ---- how much there is ---- */

/* Of graphs that there are, or at all. */
static uint64_t count(const struct cu_device *dev, bool of_graphs)
{
	uint64_t bytes = 0;

	for (const struct cu_backing *b = backings; b; b = b->next)
		if (b->dev == dev && (!of_graphs || (b->extent && b->extent->memory)))
			bytes += b->bytes;
	return bytes;
}

static void raise_high(const struct cu_device *dev)
{
	uint32_t i = cu_device_ordinal(dev);

	high[i].used = GANTRY_MAX(high[i].used, count(dev, true));
	high[i].reserved = GANTRY_MAX(high[i].reserved, count(dev, false));
}

uint64_t cu_backing_bytes(const struct cu_device *dev, CUgraphMem_attribute attribute)
{
	switch (attribute) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		return count(dev, true);
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		return high[cu_device_ordinal(dev)].used;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		return count(dev, false);
	default:
		return high[cu_device_ordinal(dev)].reserved;
	}
}

void cu_backing_reset_high(const struct cu_device *dev, CUgraphMem_attribute attribute)
{
	if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		high[cu_device_ordinal(dev)].used = 0;
	else
		high[cu_device_ordinal(dev)].reserved = 0;
	raise_high(dev);
}

/* ---- who uses it ---- */

static bool is_done(gantry_ticket ticket)
{
	return ticket == 0 || gantry_test(cu.session, ticket) != 0;
}

static void forget_done(struct cu_backing *backing)
{
	for (uint32_t i = 0; i < backing->nlasts;)
		if (is_done(backing->lasts[i]))
			backing->lasts[i] = backing->lasts[--backing->nlasts];
		else
			i++;
}

void cu_backing_used_locked(struct cu_backing *backing, const struct CUstream_st *stream)
{
	gantry_ticket last = stream->last;
	gantry_ticket *grown;

	backing->stream = stream->id;
	forget_done(backing);
	if (is_done(last))
		return;
	for (uint32_t i = 0; i < backing->nlasts; i++)
		if (GANTRY_TICKET_QUEUE(backing->lasts[i]) == GANTRY_TICKET_QUEUE(last)) {
			backing->lasts[i] = GANTRY_MAX(backing->lasts[i], last);
			return;
		}
	grown = realloc(backing->lasts, (backing->nlasts + 1) * sizeof(*grown));
	if (!grown) {
		/* What cannot be noted is over first. */
		(void)cu_ticket_wait_locked(last);
		return;
	}
	backing->lasts = grown;
	backing->lasts[backing->nlasts++] = last;
}

CUresult cu_backing_await_locked(const struct cu_backing *backing, struct CUstream_st *stream)
{
	int r = 0;

	for (uint32_t i = 0; i < backing->nlasts && r == 0; i++)
		if (!is_done(backing->lasts[i]))
			do
				r = gantry_submit_wait(cu.session, stream->queue,
						       &backing->lasts[i], 1, NULL);
			while (r == GANTRY_E_AGAIN);
	return cu_result(r);
}

/* As far as what was submitted goes. */
static bool is_free(const struct cu_backing *backing)
{
	return backing->nlive == 0 && !backing->is_moving &&
	       (!backing->extent || backing->extent->nusers == 0);
}

static bool is_idle(struct cu_backing *backing)
{
	forget_done(backing);
	return is_free(backing) && backing->nlasts == 0;
}

/* ---- where it lies ---- */

static CUresult lay(struct cu_backing *backing, struct cu_extent *extent)
{
	int r = cu_map_tell(backing->dev, backing->buffer, GANTRY_MAP_MAP, extent->range, 0, 0);

	if (r == 0) {
		r = cu_map_tell(backing->dev, backing->buffer, GANTRY_MAP_RIGHTS, 0, 0, GANTRY_RW);
		if (r < 0) /* the first failure is the one to tell */
			(void)cu_map_tell(backing->dev, backing->buffer, GANTRY_MAP_UNMAP, 0, 0, 0);
	}
	if (r < 0)
		return cu_result(r);
	backing->extent = extent;
	cu_extent_lies_locked(extent, backing);
	return CUDA_SUCCESS;
}

/* Nothing of the device's uses it any more. */
static CUresult take_away(struct cu_backing *backing)
{
	struct cu_extent *extent = backing->extent;
	int r;

	if (!extent)
		return CUDA_SUCCESS;
	r = cu_map_tell(backing->dev, backing->buffer, GANTRY_MAP_UNMAP, 0, 0, 0);
	if (r < 0)
		return cu_result(r);
	backing->extent = NULL;
	cu_extent_lies_locked(extent, NULL);
	if (!extent->memory)
		cu_extent_end_locked(extent);
	return CUDA_SUCCESS;
}

/* ---- finding some ---- */

static bool fits(const struct cu_backing *backing, const struct cu_extent *extent)
{
	return backing->dev == extent->dev && backing->bytes >= extent->bytes &&
	       backing->bytes <= extent->reserved && is_free(backing);
}

/* What lies nowhere, or where no graph is, before what another graph will want again. */
static struct cu_backing *find(const struct cu_extent *extent, const struct CUstream_st *stream)
{
	struct cu_backing *lying = NULL;

	for (struct cu_backing *b = backings; b; b = b->next) {
		if (!fits(b, extent))
			continue;
		if (!b->extent || (!b->extent->memory && is_idle(b)))
			return b;
		if (b->stream == stream->id)
			lying = b;
	}
	return lying;
}

/* Waits until nothing uses it where it lies, with the lock given up. */
static CUresult move(struct cu_backing *backing, struct cu_extent *extent)
{
	CUresult result = CUDA_SUCCESS;

	backing->is_moving = true;
	for (forget_done(backing); result == CUDA_SUCCESS && backing->nlasts; forget_done(backing))
		result = cu_ticket_wait_locked(backing->lasts[0]);
	if (result == CUDA_SUCCESS)
		result = take_away(backing);
	backing->is_moving = false;
	(void)pthread_cond_broadcast(&moved);
	return result == CUDA_SUCCESS ? lay(backing, extent) : result;
}

static CUresult make(struct cu_extent *extent)
{
	struct cu_backing *new = calloc(1, sizeof(*new));
	CUdeviceptr home;
	CUresult result;

	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*new = (struct cu_backing){ .dev = extent->dev, .bytes = extent->bytes };
	result = cu_buffer_new_locked(extent->dev, extent->bytes,
				      GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED | GANTRY_ALLOC_WHOLE,
				      &new->buffer, &home);
	if (result != CUDA_SUCCESS) {
		free(new);
		return result;
	}
	new->next = backings;
	backings = new;
	return lay(new, extent); /* where that fails it is there for the next */
}

static CUresult want(struct cu_extent *extent, const struct CUstream_st *stream)
{
	struct cu_backing *found;
	CUresult result;

	while (extent->backing && extent->backing->is_moving)
		(void)pthread_cond_wait(&moved, &cu.lock);
	if (extent->backing)
		return CUDA_SUCCESS;
	/* The lock was given up meanwhile. */
	if (!cu_handle_is_locked(stream, CU_KIND_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	found = find(extent, stream);
	result = found ? move(found, extent) : make(extent);
	raise_high(extent->dev);
	return result;
}

CUresult cu_backing_want_locked(struct cu_extent *extent, const struct CUstream_st *stream)
{
	uint64_t deadline_ns = gantry_deadline_ns(GANTRY_CALL_TIMEOUT_NS);
	CUresult result;

	do
		result = want(extent, stream);
	while (result == CUDA_ERROR_OUT_OF_MEMORY &&
	       cu_backing_wait_locked(extent->dev, deadline_ns) &&
	       cu_handle_is_locked(stream, CU_KIND_STREAM));
	return result;
}

/* ---- giving back ---- */

static void end(struct cu_backing **at)
{
	struct cu_backing *backing = *at;

	*at = backing->next;
	(void)gantry_free(cu.session, backing->buffer);
	free(backing->lasts);
	free(backing);
}

bool cu_backing_trim_locked(const struct cu_device *dev)
{
	struct cu_backing **at = &backings;
	bool some = false;

	while (*at)
		if ((*at)->dev == dev && is_idle(*at) && take_away(*at) == CUDA_SUCCESS) {
			end(at);
			some = true;
		} else {
			at = &(*at)->next;
		}
	return some;
}

/* Given up by the last launch that had it, which has not ended. */
static struct cu_backing *find_ending(const struct cu_device *dev)
{
	for (struct cu_backing *b = backings; b; b = b->next) {
		forget_done(b);
		if (b->dev == dev && is_free(b) && b->nlasts)
			return b;
	}
	return NULL;
}

bool cu_backing_wait_locked(const struct cu_device *dev, uint64_t deadline_ns)
{
	struct cu_backing *backing = find_ending(dev);
	bool is_over = true;

	if (!backing)
		return false;
	backing->is_moving = true;
	while (backing->nlasts && is_over) {
		gantry_ticket last = backing->lasts[0];

		(void)pthread_mutex_unlock(&cu.lock);
		/* A task that failed has ended too; what has not is found out behind it. */
		(void)gantry_wait(cu.session, &last, 1,
				  (int64_t)gantry_deadline_left_ns(deadline_ns));
		(void)pthread_mutex_lock(&cu.lock);
		is_over = is_done(last);
		forget_done(backing);
	}
	backing->is_moving = false;
	(void)pthread_cond_broadcast(&moved);
	return is_over;
}
