/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the forwarding libraries of the toolkit (guest-shim/cudalibs) want of this one: the process's session, the queues
 * of its streams, and what is device memory. They find it by its name, and use nothing else of ours.
 */
#include "guest-shim/cudalibs/road.h"

#include "guest-shim/cuda/graph.h"
#include "guest-shim/session.h"

/* What the thread puts a call into. */
static _Thread_local struct CUstream_st *held;

static struct gantry_session *the_session(void)
{
	return cu_start(0) == CUDA_SUCCESS && cu_check() == CUDA_SUCCESS ? cu.session : NULL;
}

/* A thread that has no context yet gets the first device's, as from the runtime. */
static CUresult enter(struct CUctx_st **ret_ctx)
{
	CUresult result = cu_enter(ret_ctx);
	CUcontext primary;

	if (result != CUDA_ERROR_INVALID_CONTEXT)
		return result;
	result = cuDevicePrimaryCtxRetain(&primary, 0);
	if (result == CUDA_SUCCESS)
		result = cuCtxSetCurrent(primary);
	return result == CUDA_SUCCESS ? cu_enter(ret_ctx) : result;
}

static int begin(void *handle, bool holds, gantry_queue *ret_queue, gantry_queue *ret_apart)
{
	struct CUstream_st *stream;
	struct CUctx_st *ctx;
	CUresult result = enter(&ctx);

	if (result != CUDA_SUCCESS)
		return GANTRY_E_HANDLE;
	result = cu_stream_get_locked(ctx, handle, false, &stream);
	if (result == CUDA_SUCCESS && !stream->capture)
		result = cu_stream_room_locked(stream);
	if (result == CUDA_SUCCESS)
		result = cu_stream_begin_locked(stream);
	if (result == CUDA_SUCCESS && holds) {
		cu_stream_hold_locked(stream);
		held = stream;
	}
	if (result == CUDA_SUCCESS) {
		*ret_queue = stream->queue;
		*ret_apart = stream->ctx->legacy->queue;
	}
	return cu_leave(result) == CUDA_SUCCESS ? 0 : GANTRY_E_HANDLE;
}

static int queue_of(void *handle, gantry_queue *ret_queue)
{
	gantry_queue apart;

	return begin(handle, false, ret_queue, &apart);
}

static int hold(void *handle, gantry_queue *ret_queue, gantry_queue *ret_apart)
{
	return begin(handle, true, ret_queue, ret_apart);
}

static int place(void *handle, gantry_queue *ret_queue, gantry_queue *ret_apart)
{
	struct CUstream_st *stream;
	struct CUctx_st *ctx;
	CUresult result = enter(&ctx);

	if (result != CUDA_SUCCESS)
		return GANTRY_E_HANDLE;
	result = cu_stream_get_locked(ctx, handle, false, &stream);
	if (result == CUDA_SUCCESS) {
		*ret_queue = stream->queue;
		*ret_apart = stream->ctx->legacy->queue;
	}
	return cu_leave(result) == CUDA_SUCCESS ? 0 : GANTRY_E_HANDLE;
}

/* Whatever has become of the thread's context meanwhile; where the stream is gone, who waits finds that out. */
static void let_go_locked(void)
{
	if (held)
		cu_stream_let_go_locked(held);
	held = NULL;
}

static void let_go(void *handle)
{
	(void)handle; /* a thread puts one call at a time */
	(void)pthread_mutex_lock(&cu.lock);
	let_go_locked();
	(void)pthread_mutex_unlock(&cu.lock);
}

/* Whoever waits for the stream waits for this too. Where it was not held another thread may have put something behind it meanwhile. */
static void put(void *handle, gantry_ticket ticket)
{
	struct CUstream_st *stream;
	struct CUctx_st *ctx;

	if (cu_enter(&ctx) != CUDA_SUCCESS) {
		let_go(handle);
		return;
	}
	if (cu_stream_get_locked(ctx, handle, false, &stream) == CUDA_SUCCESS &&
	    GANTRY_TICKET_SEQ(ticket) > GANTRY_TICKET_SEQ(stream->last))
		stream->last = ticket;
	let_go_locked();
	(void)cu_leave(CUDA_SUCCESS);
}

static int is_device(const void *address)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)address;
	const struct cu_alloc *alloc;
	int side;

	(void)pthread_mutex_lock(&cu.lock);
	alloc = cu_alloc_find_locked(at);
	if (!alloc || cu_alloc_is_far(alloc) || alloc->kind == CU_MEMORY_REGISTERED)
		side = 0; /* no device reaches it, or by another address */
	else
		side = alloc->host ? 2 : 1;
	(void)pthread_mutex_unlock(&cu.lock);
	return side;
}

/* 1, with the lock: the stream is captured. */
static int enter_captured(void *handle, struct CUstream_st **ret_stream)
{
	struct CUctx_st *ctx;
	CUresult result = enter(&ctx);

	if (result != CUDA_SUCCESS)
		return GANTRY_E_HANDLE;
	result = cu_stream_get_locked(ctx, handle, false, ret_stream);
	if (result == CUDA_SUCCESS && (*ret_stream)->capture)
		return 1;
	return cu_leave(result) == CUDA_SUCCESS ? 0 : GANTRY_E_HANDLE;
}

static int capture(void *handle, const struct gantry_cuda_road_node *node)
{
	gantry_ticket after[GANTRY_CUDA_ROAD_AFTER];
	struct cu_work work = {
		.type = CU_GRAPH_NODE_TYPE_KERNEL,
		.is_library = true,
		.library = { .kernel = node->kernel,
			     .message = (uint8_t *)(uintptr_t)node->message,
			     .bytes = node->bytes,
			     .room = node->room,
			     .answers = (struct gantry_cuda_road_answer *)(uintptr_t)node->answers,
			     .nanswers = node->nanswers,
			     .after = after },
	};
	struct CUstream_st *stream;
	CUresult result;
	int r = enter_captured(handle, &stream);

	if (r == 1 && node->behind && !node->waits) {
		(void)cu_leave(CUDA_SUCCESS);
		work.library.nafter = node->behind(node->cookie, after);
		r = enter_captured(handle, &stream); /* which may have ended since */
	}
	if (r != 1)
		return r;
	result = cu_leave(cu_capture_work_locked(stream, &work, node->waits));
	return result == CUDA_SUCCESS ? 1 : GANTRY_E_UNSUPPORTED;
}

static int stats(struct gantry_stats *ret_stats)
{
	return cu_check() == CUDA_SUCCESS ? gantry_stats_get(cu.session, ret_stats)
					  : GANTRY_E_HANDLE;
}

static void unsupported(const char *name)
{
	(void)cu_unsupported(name); /* what it answers is the caller's affair */
}

static void order(void)
{
	if (cu.session)
		gantry_session_order(cu.session);
}

static int device(void)
{
	struct CUctx_st *ctx;
	int ordinal;

	if (enter(&ctx) != CUDA_SUCCESS)
		return -1;
	ordinal = (int)cu_device_ordinal(ctx->dev);
	(void)cu_leave(CUDA_SUCCESS);
	return ordinal;
}

/* The primary context lives on as long as anybody has it, and nobody need have had it before. */
static int enter_device(int number)
{
	CUcontext primary;

	if (number < 0 || cuDevicePrimaryCtxRetain(&primary, (CUdevice)number) != CUDA_SUCCESS)
		return GANTRY_E_HANDLE;
	if (cuCtxPushCurrent(primary) == CUDA_SUCCESS)
		return 0;
	(void)cuDevicePrimaryCtxRelease((CUdevice)number); /* it was retained just now */
	return GANTRY_E_HANDLE;
}

static void leave_device(int number)
{
	CUcontext primary;

	(void)cuCtxPopCurrent(&primary);		   /* it was pushed */
	(void)cuDevicePrimaryCtxRelease((CUdevice)number); /* and retained */
}

static int apart(gantry_queue *ret_queue)
{
	struct CUctx_st *ctx;

	if (enter(&ctx) != CUDA_SUCCESS)
		return GANTRY_E_HANDLE;
	*ret_queue = ctx->legacy->queue;
	(void)cu_leave(CUDA_SUCCESS);
	return 0;
}

static int captures(void *handle)
{
	struct CUstream_st *stream;
	struct CUctx_st *ctx;
	int is = 0;

	if (enter(&ctx) != CUDA_SUCCESS)
		return 0;
	if (cu_stream_get_locked(ctx, handle, false, &stream) == CUDA_SUCCESS)
		is = stream->capture != NULL;
	(void)cu_leave(CUDA_SUCCESS);
	return is;
}

static int is_far(void)
{
	return cu_is_far();
}

static int mem_alloc(uint64_t bytes, uint64_t *ret_address)
{
	struct CUctx_st *ctx;
	CUdeviceptr address;

	/* A thread without a context has one then. */
	if (enter(&ctx) != CUDA_SUCCESS)
		return GANTRY_E_HANDLE;
	(void)cu_leave(CUDA_SUCCESS);
	if (cuMemAlloc(&address, bytes) != CUDA_SUCCESS)
		return GANTRY_E_NO_MEMORY;
	*ret_address = address;
	return 0;
}

static int mem_free(uint64_t address)
{
	return cuMemFree(address) == CUDA_SUCCESS ? 0 : GANTRY_E_HANDLE;
}

extern const struct gantry_cuda_road gantry_cuda_road;
const struct gantry_cuda_road gantry_cuda_road = {
	.size = sizeof(gantry_cuda_road),
	.version = GANTRY_CUDA_ROAD_VERSION,
	.calls = GANTRY_CUDA_ROAD_CALLS,
	.session = the_session,
	.queue = queue_of,
	.is_device = is_device,
	.put = put,
	.capture = capture,
	.stats = stats,
	.unsupported = unsupported,
	.order = order,
	.device = device,
	.apart = apart,
	.captures = captures,
	.is_far = is_far,
	.place = place,
	.hold = hold,
	.let_go = let_go,
	.mem_alloc = mem_alloc,
	.mem_free = mem_free,
	.enter_device = enter_device,
	.leave_device = leave_device,
};
