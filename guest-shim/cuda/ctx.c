/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts. All of a process are of one session: they differ in what ends with them, and in their default stream. */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cuda/array.h"

/* What the thread has pushed; a context may have ended meanwhile, so they are looked up. */
static _Thread_local struct {
	struct CUctx_st *ctx[CU_MAX_STACK];
	uint32_t n;
} stack;

CUresult cu_ctx_current_locked(struct CUctx_st **ret_ctx)
{
	struct CUctx_st *ctx = stack.n ? stack.ctx[stack.n - 1] : NULL;

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!cu_handle_is_locked(ctx, CU_KIND_CTX))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_ctx = ctx;
	return CUDA_SUCCESS;
}

CUresult cu_ctx_set_locked(struct CUctx_st *ctx)
{
	if (ctx && !cu_handle_is_locked(ctx, CU_KIND_CTX))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack.n == 0 && ctx)
		stack.n = 1;
	if (stack.n > 0 && ctx)
		stack.ctx[stack.n - 1] = ctx;
	else if (stack.n > 0)
		stack.n--;
	return CUDA_SUCCESS;
}

CUresult cu_ctx_push_locked(struct CUctx_st *ctx)
{
	if (!cu_handle_is_locked(ctx, CU_KIND_CTX))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack.n == CU_MAX_STACK)
		return CUDA_ERROR_INVALID_VALUE;
	stack.ctx[stack.n++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cu_ctx_pop_locked(struct CUctx_st **ret_ctx)
{
	if (stack.n == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_ctx = stack.ctx[--stack.n];
	return CUDA_SUCCESS;
}

static void set_limits(struct CUctx_st *ctx)
{
	ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
	ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

CUresult cu_ctx_new_locked(struct cu_device *dev, unsigned int flags, struct CUctx_st **ret_ctx)
{
	struct CUctx_st *ctx = calloc(1, sizeof(*ctx));
	CUresult result;

	if (!ctx)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->dev = dev;
	ctx->flags = flags;
	ctx->id = ++cu.next_id;
	set_limits(ctx);
	result = cu_stream_new_locked(ctx, CU_STREAM_DEFAULT, 0, &ctx->legacy);
	if (result == CUDA_SUCCESS && !cu_handle_add_locked(ctx, CU_KIND_CTX)) {
		cu_stream_end_locked(ctx->legacy);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(ctx);
		return result;
	}
	*ret_ctx = ctx;
	return CUDA_SUCCESS;
}

void cu_ctx_end_locked(struct CUctx_st *ctx)
{
	/* From now on nobody finds it; what it had is finished first, well or not. */
	cu_handle_remove_locked(ctx);
	(void)cu_ctx_wait_locked(ctx);
	cu_event_end_all_locked(ctx);
	while (ctx->streams)
		cu_stream_end_locked(ctx->streams);
	cu_array_end_all_locked(ctx);
	while (ctx->modules)
		cu_module_end_locked(ctx->modules);
	cu_free_all_locked(ctx);
	cu_pool_forget_locked(ctx);
	free(ctx);
}

CUresult cu_device_get(CUdevice ordinal, struct cu_device **ret_dev)
{
	if (ordinal < 0 || (uint32_t)ordinal >= cu.ndevices)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_dev = &cu.devices[ordinal];
	return CUDA_SUCCESS;
}

uint32_t cu_device_ordinal(const struct cu_device *dev)
{
	return (uint32_t)(dev - cu.devices);
}
