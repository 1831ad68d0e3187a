/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of pinned memory that copies of pageable memory go through: several, so that the program's own copying and the
 * device's go on at the same time.
 */
#include "base/checked.h"
#include "guest-shim/cuda/core.h"

#define PIECE_MAX (1u << 20)
#define PIECE_MIN (64u << 10)
#define NPIECES	  8u

static struct cu_piece pieces[NPIECES];
static uint32_t npieces; /* 0: not made yet */
static uint32_t next;
static pthread_cond_t put = PTHREAD_COND_INITIALIZER;

/* As large as the heap has room for. */
static CUresult make(void)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	gantry_buffer buffer;
	void *host;

	for (uint32_t bytes = PIECE_MAX; bytes >= PIECE_MIN; bytes /= 2) {
		int r = gantry_alloc(cu.session, NPIECES * bytes, GANTRY_ALLOC_HOST, &buffer);

		if (r == 0)
			r = gantry_map(cu.session, buffer, 0, NPIECES * bytes, GANTRY_RW,
				       GANTRY_FOREVER, &host);
		result = cu_result(r);
		if (r < 0)
			continue;
		for (npieces = 0; npieces < NPIECES; npieces++)
			pieces[npieces] = (struct cu_piece){
				.buffer = buffer,
				.off = (uint64_t)npieces * bytes,
				.host = (uint8_t *)host + (size_t)npieces * bytes,
				.bytes = bytes,
			};
		return CUDA_SUCCESS;
	}
	return result;
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
