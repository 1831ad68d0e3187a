/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small pieces of device memory, cut out of buffers of 2 MiB: a buffer of its own for each would take a page and two calls.
 * One bit for each 512 bytes, which is how device pointers are aligned.
 */
#include <stdlib.h>

#include "guest-shim/cuda/core.h"

#define CHUNK_BYTES (2u << 20)
#define UNIT	    512u
#define NUNITS	    (CHUNK_BYTES / UNIT)

struct cu_chunk {
	struct cu_chunk *next;
	struct CUctx_st *ctx;
	gantry_buffer buffer;
	CUdeviceptr address;
	uint32_t nfree;
	uint64_t taken[NUNITS / 64];
};

static struct cu_chunk *chunks;

static bool is_taken(const struct cu_chunk *chunk, uint32_t i)
{
	return chunk->taken[i / 64] >> (i % 64) & 1;
}

static void mark(struct cu_chunk *chunk, uint32_t first, uint32_t n, bool taken)
{
	for (uint32_t i = first; i < first + n; i++)
		if (taken)
			chunk->taken[i / 64] |= 1ull << (i % 64);
		else
			chunk->taken[i / 64] &= ~(1ull << (i % 64));
	chunk->nfree = taken ? chunk->nfree - n : chunk->nfree + n;
}

/* The first run of @n free units; NUNITS: there is none. */
static uint32_t find_run(const struct cu_chunk *chunk, uint32_t n)
{
	uint32_t run = 0;

	for (uint32_t i = 0; i < NUNITS; i++) {
		if (run == 0 && i % 64 == 0 && chunk->taken[i / 64] == UINT64_MAX) {
			i += 63;
			continue;
		}
		run = is_taken(chunk, i) ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return NUNITS;
}

static CUresult chunk_new(struct CUctx_st *ctx, struct cu_chunk **ret_chunk)
{
	struct cu_chunk *chunk = calloc(1, sizeof(*chunk));
	CUresult result;

	if (!chunk)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = cu_buffer_new_locked(ctx->dev, CHUNK_BYTES,
				      GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED, &chunk->buffer,
				      &chunk->address);
	if (result != CUDA_SUCCESS) {
		free(chunk);
		return result;
	}
	chunk->ctx = ctx;
	chunk->nfree = NUNITS;
	chunk->next = chunks;
	chunks = chunk;
	*ret_chunk = chunk;
	return CUDA_SUCCESS;
}

CUresult cu_pool_take_locked(struct CUctx_st *ctx, size_t bytes, struct cu_alloc *ret_alloc)
{
	uint32_t n = (uint32_t)((bytes + UNIT - 1) / UNIT);
	struct cu_chunk *chunk;
	uint32_t first = NUNITS;
	CUresult result;

	for (chunk = chunks; chunk; chunk = chunk->next) {
		if (chunk->ctx != ctx || chunk->nfree < n)
			continue;
		first = find_run(chunk, n);
		if (first < NUNITS)
			break;
	}
	if (!chunk) {
		result = chunk_new(ctx, &chunk);
		if (result != CUDA_SUCCESS)
			return result;
		first = 0;
	}
	mark(chunk, first, n, true);
	ret_alloc->chunk = chunk;
	ret_alloc->buffer = chunk->buffer;
	ret_alloc->off = (uint64_t)first * UNIT;
	ret_alloc->address = chunk->address + ret_alloc->off;
	return CUDA_SUCCESS;
}

static void chunk_end(struct cu_chunk *chunk)
{
	struct cu_chunk **at = &chunks;

	while (*at != chunk)
		at = &(*at)->next;
	*at = chunk->next;
	(void)gantry_free(cu.session, chunk->buffer);
	free(chunk);
}

static bool is_only(const struct cu_chunk *chunk)
{
	for (const struct cu_chunk *c = chunks; c; c = c->next)
		if (c != chunk && c->ctx == chunk->ctx)
			return false;
	return true;
}

void cu_pool_put_locked(const struct cu_alloc *alloc)
{
	struct cu_chunk *chunk = alloc->chunk;

	mark(chunk, (uint32_t)(alloc->off / UNIT), (uint32_t)((alloc->bytes + UNIT - 1) / UNIT),
	     false);
	/* One stays for the next. */
	if (chunk->nfree == NUNITS && !is_only(chunk))
		chunk_end(chunk);
}

void cu_pool_forget_locked(const struct CUctx_st *ctx)
{
	struct cu_chunk *next;

	for (struct cu_chunk *chunk = chunks; chunk; chunk = next) {
		next = chunk->next;
		if (chunk->ctx == ctx)
			chunk_end(chunk);
	}
}
