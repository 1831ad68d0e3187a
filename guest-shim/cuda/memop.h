/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on words of memory in a stream: written, or waited for. memop.c has them, await.c the waiting, streams_memop.c what is
 * exported; nodes of graphs are in api_node.c.
 *
 * A word is written by a fill or a copy. What waits for one is a task that waits for this process, which looks at the word: where the memory is
 * pinned, as it lies there; else by copying it here. So nothing waits on a device, nor on the host but this stream.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_MEMOP_H
#define GANTRY_GUEST_SHIM_CUDA_MEMOP_H

#include "guest-shim/cuda/graph.h"

#define CU_MEMOPS_MAX 255u

/* INVALID_VALUE, NOT_SUPPORTED: as the API documents. Addresses are looked at when it is put into a stream. */
CUresult cu_memops_check(const CUstreamBatchMemOpParams *ops, unsigned int n, unsigned int flags);
/* Of checked ones; becomes a node where @stream is captured. */
CUresult cu_memops_put_locked(struct CUstream_st *stream, const CUstreamBatchMemOpParams *ops,
			      unsigned int n);

/* ---- await.c ---- */
struct cu_word {
	const void *host;     /* NULL: it is the device's */
	gantry_buffer buffer; /* that it lies in, then */
	uint64_t off;
	const struct cu_device *dev;
	bool is_wide; /* 64 bits, or 32 */
};
/* What follows in @stream waits until the word and @value are as @flags say: enum CUstreamWaitValue_flags. */
CUresult cu_await_put_locked(struct CUstream_st *stream, const struct cu_word *word, uint64_t value,
			     unsigned int flags);

#endif
