/* SPDX-License-Identifier: Apache-2.0 */
/* What the files begin with that are compiled twice, the second time with a default stream for each thread. */
#ifndef GANTRY_GUEST_SHIM_CUDA_STREAMS_H
#define GANTRY_GUEST_SHIM_CUDA_STREAMS_H

#include "guest-shim/cuda/core.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define PER_THREAD true
#else
#define PER_THREAD false
#endif

/* With the lock on success. */
static inline CUresult enter(CUstream handle, struct CUstream_st **ret_stream)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_stream_get_locked(ctx, handle, PER_THREAD, ret_stream);
	return result == CUDA_SUCCESS ? result : cu_leave(result);
}

/* The same, and there is room for what the call puts, unless it is captured. The lock may have been given up: handles are looked at behind it. */
static inline CUresult enter_to_put(CUstream handle, struct CUstream_st **ret_stream)
{
	CUresult result = enter(handle, ret_stream);

	if (result != CUDA_SUCCESS || (*ret_stream)->capture)
		return result;
	result = cu_stream_room_locked(*ret_stream);
	return result == CUDA_SUCCESS ? result : cu_leave(result);
}

#endif
