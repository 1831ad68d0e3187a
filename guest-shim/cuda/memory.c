/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations, by address. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/cuda/graphmem.h"
#include "guest-shim/cuda/managed.h"
#include "guest-shim/session.h"

/* Sorted by address; no two overlap. */
static struct cu_alloc *allocs;
static uint32_t nallocs;
static uint32_t cap;

/* The first that ends past @address. */
static uint32_t after(CUdeviceptr address)
{
	uint32_t lo = 0, hi = nallocs;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (allocs[mid].address + allocs[mid].bytes > address)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

struct cu_alloc *cu_alloc_find_locked(CUdeviceptr address)
{
	uint32_t i = after(address);

	return i < nallocs && allocs[i].address <= address ? &allocs[i] : NULL;
}

struct cu_alloc *cu_alloc_span_locked(CUdeviceptr address, size_t bytes, uint64_t *ret_off)
{
	struct cu_alloc *alloc = cu_alloc_find_locked(address);

	if (!alloc || !gantry_range_inside(address - alloc->address, bytes, alloc->bytes))
		return NULL;
	*ret_off = alloc->off + (address - alloc->address);
	return alloc;
}

bool cu_alloc_touches_locked(CUdeviceptr address, size_t bytes)
{
	uint32_t i = after(address);

	return i < nallocs && allocs[i].address < address + bytes;
}

CUresult cu_alloc_add_locked(const struct cu_alloc *alloc)
{
	uint32_t i = after(alloc->address);

	if (nallocs == cap) {
		uint32_t more = cap ? 2 * cap : 64;
		struct cu_alloc *grown = realloc(allocs, more * sizeof(*grown));

		if (!grown)
			return CUDA_ERROR_OUT_OF_MEMORY;
		allocs = grown;
		cap = more;
	}
	memmove(&allocs[i + 1], &allocs[i], (nallocs++ - i) * sizeof(*allocs));
	allocs[i] = *alloc;
	allocs[i].id = ++cu.next_id;
	return CUDA_SUCCESS;
}

static void remove_at(uint32_t i)
{
	memmove(&allocs[i], &allocs[i + 1], (--nallocs - i) * sizeof(*allocs));
}

void cu_alloc_forget_locked(CUdeviceptr address)
{
	struct cu_alloc *alloc = cu_alloc_find_locked(address);

	if (alloc)
		remove_at((uint32_t)(alloc - allocs));
}

/* ---- device memory ---- */

static CUresult buffer_new(const struct cu_device *dev, size_t bytes, unsigned int flags,
			   gantry_buffer *ret_buffer, CUdeviceptr *ret_address)
{
	struct gantry_reply_address answer;
	gantry_buffer buffer;
	int r = gantry_alloc(cu.session, bytes, flags, &buffer);

	if (r < 0)
		return r == GANTRY_E_TIMEOUT ? CUDA_ERROR_OUT_OF_MEMORY : cu_result(r);
	r = gantry_device_ask(cu.session, GANTRY_ASK_ADDRESS, dev->index, buffer,
			      (struct gantry_ask_numbers){ { 0 } }, &answer, sizeof(answer));
	if (r != sizeof(answer)) {
		(void)gantry_free(cu.session, buffer); /* the first failure is the one to tell */
		return r == GANTRY_E_TIMEOUT ? CUDA_ERROR_OUT_OF_MEMORY
					     : cu_result(r < 0 ? r : GANTRY_E_INTERNAL);
	}
	*ret_buffer = buffer;
	*ret_address = answer.address;
	return CUDA_SUCCESS;
}

/* What graphs keep for their next launch makes room for what is wanted now. */
CUresult cu_buffer_new_locked(const struct cu_device *dev, size_t bytes, unsigned int flags,
			      gantry_buffer *ret_buffer, CUdeviceptr *ret_address)
{
	CUresult result = buffer_new(dev, bytes, flags, ret_buffer, ret_address);

	if (result == CUDA_ERROR_OUT_OF_MEMORY && (flags & GANTRY_ALLOC_DEVICE) &&
	    cu_backing_trim_locked(dev))
		result = buffer_new(dev, bytes, flags, ret_buffer, ret_address);
	return result;
}

static void give_back(const struct cu_alloc *alloc)
{
	if (cu_alloc_is_far(alloc)) {
		(void)munmap(alloc->host, alloc->bytes); /* a mapping of ours, which no task uses */
		return;
	}
	if (alloc->pool)
		cu_mempool_put_locked(alloc->pool, alloc->bytes);
	if (alloc->chunk)
		cu_pool_put_locked(alloc);
	else
		/* Its memory goes when what was submitted before has finished. */
		(void)gantry_free(cu.session, alloc->buffer);
}

static CUresult take_device(struct CUctx_st *ctx, size_t bytes, struct cu_alloc *alloc)
{
	return bytes <= CU_POOL_MAX ? cu_pool_take_locked(ctx, bytes, alloc)
				    : cu_buffer_new_locked(ctx->dev, bytes,
							   GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED,
							   &alloc->buffer, &alloc->address);
}

/* What graphs that run give back at their ends is waited for before there is no memory. */
static CUresult take_device_in_time(struct CUctx_st *ctx, size_t bytes,
				    const struct CUmemPoolHandle_st *pool, struct cu_alloc *alloc)
{
	uint64_t deadline_ns = gantry_deadline_ns(GANTRY_CALL_TIMEOUT_NS);
	CUresult result;

	while ((result = take_device(ctx, bytes, alloc)) == CUDA_ERROR_OUT_OF_MEMORY &&
	       cu_backing_wait_locked(ctx->dev, deadline_ns)) {
		if (!cu_handle_is_locked(ctx, CU_KIND_CTX))
			return CUDA_ERROR_CONTEXT_IS_DESTROYED;
		if (pool && !cu_handle_is_locked(pool, CU_KIND_POOL))
			return CUDA_ERROR_INVALID_VALUE;
	}
	return result;
}

CUresult cu_alloc_device_locked(struct CUctx_st *ctx, size_t bytes, struct CUmemPoolHandle_st *pool,
				CUdeviceptr *ret_address)
{
	struct cu_alloc alloc = {
		.bytes = bytes, .kind = CU_MEMORY_DEVICE, .ctx = ctx, .device = ctx->dev->index
	};
	CUresult result;

	if (bytes == 0 || bytes > GANTRY_MAX_BUFFER_BYTES)
		return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	cu_alloc_reap_locked();
	result = take_device_in_time(ctx, bytes, pool, &alloc);
	if (result != CUDA_SUCCESS)
		return result;
	result = pool ? cu_mempool_take_locked(pool, bytes) : CUDA_SUCCESS;
	if (result == CUDA_SUCCESS)
		alloc.pool = pool;
	if (result == CUDA_SUCCESS)
		result = cu_alloc_add_locked(&alloc);
	if (result != CUDA_SUCCESS)
		give_back(&alloc);
	else
		*ret_address = alloc.address;
	return result;
}

static void end(const struct cu_alloc *alloc)
{
	struct cu_alloc copy = *alloc;

	remove_at((uint32_t)(alloc - allocs));
	if (copy.chunk)
		cu_ipc_freed_locked(copy.id);
	if (copy.kind == CU_MEMORY_MANAGED)
		cu_managed_forget_locked(copy.address, copy.bytes);
	give_back(&copy);
}

/* What a program may free as device memory. */
static struct cu_alloc *find_device(CUdeviceptr address)
{
	struct cu_alloc *alloc = cu_alloc_find_locked(address);

	return alloc && alloc->address == address &&
			       (alloc->kind == CU_MEMORY_DEVICE ||
				alloc->kind == CU_MEMORY_MANAGED || alloc->kind == CU_MEMORY_GRAPH)
		       ? alloc
		       : NULL;
}

CUresult cu_free_device_locked(CUdeviceptr address)
{
	struct cu_alloc *alloc;
	CUresult result = CUDA_SUCCESS;

	if (address == 0)
		return CUDA_SUCCESS;
	alloc = find_device(address);
	if (!alloc)
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc->kind == CU_MEMORY_GRAPH)
		return cu_spot_free_now_locked(address);
	/* Whoever gets a small piece next may use it on another stream at once. */
	if (alloc->chunk) {
		uint64_t id = alloc->id;

		result = cu_ctx_wait_locked(alloc->ctx);
		alloc = cu_alloc_find_locked(address);
		if (!alloc || alloc->id != id)
			return CUDA_ERROR_INVALID_VALUE; /* freed twice at the same time */
	}
	end(alloc);
	return result;
}

/* ---- freed in the order of a stream ---- */

struct late {
	struct late *next;
	struct cu_alloc alloc;
	gantry_ticket ticket;
};
static struct late *lates;

CUresult cu_free_behind_locked(CUdeviceptr address, const struct CUstream_st *stream)
{
	struct cu_alloc *alloc;
	struct late *late;

	if (address == 0)
		return CUDA_SUCCESS;
	alloc = find_device(address);
	if (!alloc)
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc->kind == CU_MEMORY_GRAPH)
		return cu_spot_free_locked(alloc->spot, stream);
	if (!alloc->chunk || !stream->last || gantry_test(cu.session, stream->last) != 0) {
		end(alloc);
		return CUDA_SUCCESS;
	}
	late = calloc(1, sizeof(*late));
	if (!late)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*late = (struct late){ .next = lates, .alloc = *alloc, .ticket = stream->last };
	lates = late;
	cu_ipc_freed_locked(alloc->id);
	remove_at((uint32_t)(alloc - allocs));
	return CUDA_SUCCESS;
}

static void reap(const struct CUctx_st *ctx)
{
	struct late **at = &lates;

	while (*at) {
		struct late *late = *at;

		if (late->alloc.ctx != ctx && gantry_test(cu.session, late->ticket) == 0) {
			at = &late->next;
			continue;
		}
		*at = late->next;
		give_back(&late->alloc);
		free(late);
	}
}

void cu_alloc_reap_locked(void)
{
	reap(NULL);
}

/* ---- pinned memory ---- */

/* Behind a stream: the program's own memory, which every copy has left, or filled, by the time it returns. */
static CUresult alloc_far(struct cu_alloc *alloc)
{
	void *host;

	if (alloc->kind == CU_MEMORY_MANAGED)
		return cu_unsupported("managed memory through a stream");
	host = mmap(NULL, alloc->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (host == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	alloc->host = host;
	alloc->address = (CUdeviceptr)(uintptr_t)host;
	return CUDA_SUCCESS;
}

static CUresult alloc_near(struct cu_alloc *alloc)
{
	CUresult result = cu_buffer_new_locked(alloc->ctx->dev, alloc->bytes, GANTRY_ALLOC_HOST,
					       &alloc->buffer, &alloc->address);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_result(gantry_map(cu.session, alloc->buffer, 0, alloc->bytes, GANTRY_RW,
				      GANTRY_FOREVER, &alloc->host));
	if (result == CUDA_SUCCESS && (CUdeviceptr)(uintptr_t)alloc->host != alloc->address)
		/* One pointer for both is what programs count on. */
		result = CUDA_ERROR_NOT_SUPPORTED;
	if (result != CUDA_SUCCESS)
		give_back(alloc);
	return result;
}

CUresult cu_alloc_host_locked(struct CUctx_st *ctx, size_t bytes, enum cu_memory kind,
			      unsigned int flags, void **ret_host)
{
	struct cu_alloc alloc = {
		.bytes = bytes, .kind = kind, .ctx = ctx, .device = ctx->dev->index, .flags = flags
	};
	CUresult result;

	if (bytes == 0 || bytes > GANTRY_MAX_BUFFER_BYTES)
		return bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	result = cu_is_far() ? alloc_far(&alloc) : alloc_near(&alloc);
	if (result != CUDA_SUCCESS)
		return result;
	result = cu_alloc_add_locked(&alloc);
	if (result != CUDA_SUCCESS) {
		give_back(&alloc);
		return result;
	}
	*ret_host = alloc.host;
	return CUDA_SUCCESS;
}

CUresult cu_free_host_locked(void *host)
{
	struct cu_alloc *alloc = cu_alloc_find_locked((CUdeviceptr)(uintptr_t)host);

	if (!alloc || alloc->host != host || alloc->kind != CU_MEMORY_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	end(alloc);
	return CUDA_SUCCESS;
}

void cu_free_all_locked(const struct CUctx_st *ctx)
{
	reap(ctx); /* all of it has finished */
	cu_unregister_all_locked(ctx);
	cu_ipc_close_all_locked(ctx);
	for (uint32_t i = 0; i < nallocs;)
		if (allocs[i].ctx != ctx || allocs[i].kind == CU_MEMORY_REGISTERED) {
			i++;
		} else if (allocs[i].kind == CU_MEMORY_VARIABLE) {
			allocs[i++].ctx = NULL; /* it stays as long as its image */
		} else {
			end(&allocs[i]);
		}
}
