/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the program's own that it registers. Whole pages of it become the session's heap, under their own addresses, if they can
 * (pages.h): copies of them are as those of pinned memory, and the device has an address for them. The rest is copied as pageable
 * memory is: an asynchronous copy of it reads at the call, and has written when it returns.
 */
#include <stdlib.h>

#include "base/checked.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/pages.h"
#include "guest-shim/session.h"

static struct cu_registered *registrations;

struct cu_registered *cu_registered_find_locked(CUdeviceptr address)
{
	struct cu_registered *r = registrations;

	while (r && address - r->host >= r->bytes)
		r = r->next;
	return r;
}

static bool overlaps(CUdeviceptr host, size_t bytes)
{
	for (const struct cu_registered *r = registrations; r; r = r->next)
		if (host < r->host + r->bytes && r->host < host + bytes)
			return true;
	return false;
}

/* The pages get pinned memory's, and are found by their addresses from now on. */
static CUresult share(struct cu_registered *r)
{
	struct cu_alloc *behind, alias;
	uint64_t skipped, off;
	void *heap;
	CUresult result;

	/* Of memory that is not the guest's own kind, mapped by a device, there is no second name; none reaches far memory. */
	if (cu.session->heap_is_loose || cu_is_far())
		return CUDA_ERROR_NOT_SUPPORTED;
	result = cu_alloc_host_locked(r->ctx, r->shared_bytes + CU_PAGE, CU_MEMORY_PINNED, 0,
				      &heap);
	if (result != CUDA_SUCCESS)
		return result;
	skipped = -(uintptr_t)heap % CU_PAGE;
	r->heap = (CUdeviceptr)(uintptr_t)heap;
	r->device = r->heap + skipped;
	behind = cu_alloc_span_locked(r->device, r->shared_bytes, &off);
	alias = *behind;
	alias.address = r->shared;
	alias.bytes = r->shared_bytes;
	alias.off = off;
	alias.kind = CU_MEMORY_REGISTERED;
	alias.host = (void *)(uintptr_t)r->shared;
	result = cu_alloc_add_locked(&alias);
	if (result == CUDA_SUCCESS &&
	    cu_pages_share(alias.host, (void *)(uintptr_t)r->device, r->shared_bytes) < 0) {
		cu_alloc_forget_locked(r->shared);
		result = CUDA_ERROR_NOT_SUPPORTED;
	}
	if (result != CUDA_SUCCESS)
		(void)cu_free_host_locked(heap);
	return result;
}

CUresult cu_register_locked(struct CUctx_st *ctx, void *host, size_t bytes, unsigned int flags)
{
	CUdeviceptr begin = (CUdeviceptr)(uintptr_t)host;
	uint64_t first, end;
	struct cu_registered *r;

	if (gantry_add_u64(begin, bytes, &end) < 0 || gantry_align_up(begin, CU_PAGE, &first) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (overlaps(begin, bytes) || cu_alloc_touches_locked(begin, bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (cu_pages_are_there(host, bytes) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = calloc(1, sizeof(*r));
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*r = (struct cu_registered){
		.next = registrations, .ctx = ctx, .host = begin, .bytes = bytes, .flags = flags
	};
	end -= end % CU_PAGE;
	if (first < end) {
		r->shared = first;
		r->shared_bytes = end - first;
		if (share(r) != CUDA_SUCCESS)
			r->shared_bytes = 0;
	}
	registrations = r;
	return CUDA_SUCCESS;
}

/* Nothing of its context's is under way. */
static CUresult end(struct cu_registered **at)
{
	struct cu_registered *r = *at;

	if (r->shared_bytes) {
		if (cu_pages_unshare((void *)(uintptr_t)r->shared) < 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		cu_alloc_forget_locked(r->shared);
		(void)cu_free_host_locked((void *)(uintptr_t)r->heap);
	}
	*at = r->next;
	free(r);
	return CUDA_SUCCESS;
}

CUresult cu_unregister_locked(void *host)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)host;
	struct cu_registered **at = &registrations, *found = cu_registered_find_locked(address);
	CUresult result;

	if (!found || found->host != address)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	result = cu_ctx_wait_locked(found->ctx);
	/* The lock was given up meanwhile. */
	while (*at && *at != found)
		at = &(*at)->next;
	if (!*at)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	return result == CUDA_SUCCESS ? end(at) : result;
}

/* Without memory for pages of its own the program keeps those it has, which outlive their context and are nobody else's. */
static void leave(struct cu_registered **at)
{
	struct cu_registered *r = *at;
	struct cu_alloc *behind = cu_alloc_find_locked(r->heap);

	if (behind)
		behind->ctx = NULL;
	cu_alloc_forget_locked(r->shared);
	*at = r->next;
	free(r);
}

void cu_unregister_all_locked(const struct CUctx_st *ctx)
{
	for (struct cu_registered **at = &registrations; *at;)
		if ((*at)->ctx != ctx)
			at = &(*at)->next;
		else if (end(at) != CUDA_SUCCESS)
			leave(at);
}

CUresult cu_registered_device_locked(const struct cu_registered *r, CUdeviceptr host,
				     CUdeviceptr *ret_address)
{
	if (r->shared_bytes != r->bytes)
		return cu_unsupported(
			"device addresses of registered memory that is not whole pages");
	*ret_address = r->device + (host - r->shared);
	return CUDA_SUCCESS;
}

size_t cu_registered_part_locked(CUdeviceptr address, size_t bytes)
{
	for (const struct cu_registered *r = registrations; r; r = r->next) {
		CUdeviceptr end = r->shared + r->shared_bytes;

		if (!r->shared_bytes || address >= end || address + bytes <= r->shared)
			continue;
		if (address < r->shared)
			bytes = r->shared - address;
		else if (address + bytes > end)
			bytes = end - address;
	}
	return bytes;
}
