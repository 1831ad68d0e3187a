/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of pinned memory that copies of pageable memory go through: several, so that the program's own copying and the
 * device's go on at the same time.
 */
#include "base/checked.h"
#include "guest-shim/cuda/core.h"
#include "guest-shim/ranges.h"

#define PIECE_MAX (1u << 20)
#define PIECE_MIN (64u << 10)
#define NPIECES	  8u

static struct cu_piece pieces[NPIECES];
static uint32_t npieces; /* 0: not made yet */
static uint32_t next;
static pthread_cond_t put = PTHREAD_COND_INITIALIZER;

/* All of them in one: a buffer that is mapped, or a part of the heap. */
static int make_whole(size_t bytes, struct cu_piece *ret_whole)
{
	struct gantry_range *range;
	void *host;
	int r;

	*ret_whole = (struct cu_piece){ .bytes = bytes };
	if (cu_is_far()) {
		r = gantry_range_take(cu.session, bytes, GANTRY_PAGE, 0, &range);
		if (r < 0)
			return r;
		ret_whole->off = range->off;
		ret_whole->host = gantry_range_ptr(cu.session, range);
		return 0;
	}
	r = gantry_alloc(cu.session, bytes, GANTRY_ALLOC_HOST, &ret_whole->buffer);
	if (r == 0)
		r = gantry_map(cu.session, ret_whole->buffer, 0, bytes, GANTRY_RW, GANTRY_FOREVER,
			       &host);
	if (r == 0)
		ret_whole->host = host;
	else if (ret_whole->buffer)
		(void)gantry_free(cu.session, ret_whole->buffer); /* nothing uses it */
	return r;
}

/* As large as the heap has room for. */
static CUresult make(void)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	struct cu_piece whole;

	for (size_t bytes = PIECE_MAX; bytes >= PIECE_MIN; bytes /= 2) {
		int r = make_whole(NPIECES * bytes, &whole);

		result = cu_result(r);
		if (r < 0)
			continue;
		for (npieces = 0; npieces < NPIECES; npieces++)
			pieces[npieces] = (struct cu_piece){
				.buffer = whole.buffer,
				.off = whole.off + npieces * bytes,
				.host = whole.host + npieces * bytes,
				.bytes = bytes,
			};
		return CUDA_SUCCESS;
	}
	return result;
}

int cu_stage_submit(const struct CUstream_st *stream, const struct cu_piece *piece, bool is_write,
		    gantry_buffer buffer, uint64_t off, size_t bytes, gantry_ticket *ret_ticket)
{
	if (!piece->buffer)
		return gantry_submit_transfer(cu.session, stream->queue, is_write, buffer, off,
					      piece->off, bytes, ret_ticket);
	return is_write ? gantry_submit_copy(cu.session, stream->queue, buffer, off, piece->buffer,
					     piece->off, bytes, ret_ticket)
			: gantry_submit_copy(cu.session, stream->queue, piece->buffer, piece->off,
					     buffer, off, bytes, ret_ticket);
}

static bool is_idle(const struct cu_piece *piece)
{
	return !piece->ticket || gantry_test(cu.session, piece->ticket) != 0;
}

struct cu_piece *cu_stage_try_locked(void)
{
	for (uint32_t i = 0; i < npieces; i++) {
		struct cu_piece *piece = &pieces[(next + i) % npieces];

		if (piece->is_taken || !is_idle(piece))
			continue;
		next = (uint32_t)(piece - pieces) + 1;
		piece->is_taken = true;
		piece->ticket = 0;
		return piece;
	}
	return NULL;
}

/* The one that nobody has and that was used longest ago. */
static struct cu_piece *oldest(void)
{
	for (uint32_t i = 0; i < npieces; i++)
		if (!pieces[(next + i) % npieces].is_taken)
			return &pieces[(next + i) % npieces];
	return NULL;
}

CUresult cu_stage_take_locked(struct cu_piece **ret_piece)
{
	CUresult result = npieces ? CUDA_SUCCESS : make();
	struct cu_piece *piece;

	if (result != CUDA_SUCCESS)
		return result;
	piece = cu_stage_try_locked();
	while (!piece) {
		piece = oldest();
		if (!piece)
			(void)pthread_cond_wait(&put, &cu.lock);
	}
	next = (uint32_t)(piece - pieces) + 1;
	piece->is_taken = true;
	if (piece->ticket) {
		result = cu_ticket_wait_locked(piece->ticket);
		piece->ticket = 0;
	}
	/* What it was used for has failed: that is not this copy's affair, unless nothing goes any more. */
	if (cu_check() != CUDA_SUCCESS) {
		cu_stage_put_locked(piece);
		return result != CUDA_SUCCESS ? result : cu_check();
	}
	*ret_piece = piece;
	return CUDA_SUCCESS;
}

void cu_stage_put_locked(struct cu_piece *piece)
{
	piece->is_taken = false;
	(void)pthread_cond_signal(&put);
}
