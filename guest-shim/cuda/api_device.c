/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: the process, devices, contexts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/graph.h"

CUresult CUDAAPI cuInit(unsigned int flags)
{
	return cu_start(flags);
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CU_DRIVER_VERSION;
	return CUDA_SUCCESS;
}

/* ---- devices ---- */

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)cu.ndevices;
	return CUDA_SUCCESS;
}

/* What most of them begin with. */
static CUresult device(CUdevice ordinal, const void *output, struct cu_device **ret_dev)
{
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	return output ? cu_device_get(ordinal, ret_dev) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *dev, int ordinal)
{
	struct cu_device *found;
	CUresult result = device(ordinal, dev, &found);

	if (result == CUDA_SUCCESS)
		*dev = ordinal;
	return result;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev)
{
	struct cu_device *d;
	CUresult result = device(dev, name, &d);

	if (result != CUDA_SUCCESS)
		return result;
	if (len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	(void)snprintf(name, (size_t)len, "%.47s", d->info.name);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	struct cu_device *d;
	CUresult result = device(dev, uuid, &d);

	if (result == CUDA_SUCCESS)
		memcpy(uuid->bytes, d->info.uuid, sizeof(uuid->bytes));
	return result;
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *bytes, CUdevice dev)
{
	struct cu_device *d;
	CUresult result = device(dev, bytes, &d);

	if (result == CUDA_SUCCESS)
		*bytes = d->info.mem_bytes;
	return result;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	struct cu_device *d;
	CUresult result = device(dev, value, &d);

	if (result != CUDA_SUCCESS)
		return result;
	if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = d->attributes[attribute];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	struct cu_device *d;
	CUresult result = device(dev, major && minor ? major : NULL, &d);

	if (result != CUDA_SUCCESS)
		return result;
	*major = d->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
	*minor = d->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	struct cu_device *d;
	CUresult result = device(dev, prop, &d);
	const int32_t *a;

	if (result != CUDA_SUCCESS)
		return result;
	a = d->attributes;
	*prop = (CUdevprop){
		.maxThreadsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
		.sharedMemPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK],
		.totalConstantMemory = a[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY],
		.SIMDWidth = a[CU_DEVICE_ATTRIBUTE_WARP_SIZE],
		.memPitch = a[CU_DEVICE_ATTRIBUTE_MAX_PITCH],
		.regsPerBlock = a[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK],
		.clockRate = a[CU_DEVICE_ATTRIBUTE_CLOCK_RATE],
		.textureAlign = a[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT],
	};
	for (int i = 0; i < 3; i++) {
		prop->maxThreadsDim[i] = a[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i];
		prop->maxGridSize[i] = a[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i];
	}
	return CUDA_SUCCESS;
}

/* Windows of one session see each other where their devices do, without being asked. */
CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	struct cu_device *a, *b;
	CUresult result = device(dev, can, &a);

	if (result == CUDA_SUCCESS)
		result = device(peer, can, &b);
	if (result == CUDA_SUCCESS)
		*can = a != b &&
		       a->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] ==
			       b->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
	return result;
}

/* What is not known of a connection (how fast it is, whether atomics cross it) is not there. */
CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute which, CUdevice dev,
					 CUdevice peer)
{
	CUresult result;
	int can = 0;

	if (!value || which < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
	    which > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED)
		return CUDA_ERROR_INVALID_VALUE;
	result = cuDeviceCanAccessPeer(&can, dev, peer);
	if (result == CUDA_SUCCESS && dev == peer)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (result == CUDA_SUCCESS)
		*value = which == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED && can;
	return result;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	struct cu_device *d;
	CUresult result = device(dev, id, &d);

	if (result != CUDA_SUCCESS)
		return result;
	if (len < 13)
		return CUDA_ERROR_INVALID_VALUE;
	(void)snprintf(id, (size_t)len, "0000:%02x:00.0",
		       (unsigned int)d->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID]);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *dev, const char *id)
{
	unsigned int domain = 0, bus = 0, slot = 0;
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	if (!dev || !id)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
	    (domain = 0, sscanf(id, "%x:%x", &bus, &slot) != 2))
		return CUDA_ERROR_INVALID_VALUE;
	if (domain || slot || bus == 0 || bus > cu.ndevices)
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = (CUdevice)bus - 1;
	return CUDA_SUCCESS;
}

/* ---- primary contexts ---- */

static CUresult device_enter(CUdevice ordinal, struct cu_device **ret_dev)
{
	CUresult result = cu_check();

	if (result == CUDA_SUCCESS)
		result = cu_device_get(ordinal, ret_dev);
	if (result == CUDA_SUCCESS)
		(void)pthread_mutex_lock(&cu.lock);
	return result;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice ordinal)
{
	struct cu_device *dev;
	CUresult result = ctx ? device_enter(ordinal, &dev) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (!dev->primary)
		result = cu_ctx_new_locked(dev, dev->primary_flags, &dev->primary);
	if (result == CUDA_SUCCESS) {
		dev->nprimary++;
		*ctx = dev->primary;
	}
	return cu_leave(result);
}

static void primary_end_locked(struct cu_device *dev)
{
	struct CUctx_st *ctx = dev->primary;

	dev->primary = NULL;
	dev->nprimary = 0;
	if (ctx)
		cu_ctx_end_locked(ctx);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
	struct cu_device *dev;
	CUresult result = device_enter(ordinal, &dev);

	if (result != CUDA_SUCCESS)
		return result;
	if (dev->nprimary == 0)
		return cu_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (--dev->nprimary == 0)
		primary_end_locked(dev);
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice ordinal)
{
	struct cu_device *dev;
	CUresult result = device_enter(ordinal, &dev);

	if (result != CUDA_SUCCESS)
		return result;
	primary_end_locked(dev);
	return cu_leave(CUDA_SUCCESS);
}

#define CTX_FLAGS (CU_CTX_FLAGS_MASK)

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags)
{
	struct cu_device *dev;
	CUresult result = flags & ~CTX_FLAGS ? CUDA_ERROR_INVALID_VALUE
					     : device_enter(ordinal, &dev);

	if (result != CUDA_SUCCESS)
		return result;
	dev->primary_flags = flags;
	if (dev->primary)
		dev->primary->flags = flags;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
	struct cu_device *dev;
	CUresult result = flags && active ? device_enter(ordinal, &dev) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*flags = dev->primary_flags;
	*active = dev->primary != NULL;
	return cu_leave(CUDA_SUCCESS);
}

/* ---- contexts ---- */

static CUresult create(CUcontext *ctx, unsigned int flags, CUdevice ordinal)
{
	struct cu_device *dev;
	CUresult result = !ctx || (flags & ~CTX_FLAGS) ? CUDA_ERROR_INVALID_VALUE
						       : device_enter(ordinal, &dev);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_ctx_new_locked(dev, flags, ctx);
	if (result == CUDA_SUCCESS)
		result = cu_ctx_push_locked(*ctx);
	return cu_leave(result);
}

/* Without parameters only: execution affinity and CIG are the host's to decide. */
CUresult CUDAAPI cuCtxCreate(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags,
			     CUdevice dev)
{
	if (params && (params->numExecAffinityParams || params->cigParams))
		return cu_unsupported("cuCtxCreate_v4 with parameters");
	return create(ctx, flags, dev);
}

#undef cuCtxCreate
CUresult CUDAAPI cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev);
CUresult CUDAAPI cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	return create(ctx, flags, dev);
}
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	return create(ctx, flags, dev);
}

CUresult CUDAAPI cuCtxDestroy(CUcontext ctx)
{
	CUresult result = cu_check();
	struct CUctx_st *top;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	if (!cu_handle_is_locked(ctx, CU_KIND_CTX) || ctx == ctx->dev->primary)
		return cu_leave(CUDA_ERROR_INVALID_CONTEXT);
	/* Where it is the caller's current one it is popped. */
	if (cu_ctx_current_locked(&top) == CUDA_SUCCESS && top == ctx)
		(void)cu_ctx_pop_locked(&top);
	cu_ctx_end_locked(ctx);
	return cu_leave(CUDA_SUCCESS);
}

static CUresult locked(CUresult (*fn)(struct CUctx_st *ctx), struct CUctx_st *ctx)
{
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	return cu_leave(fn(ctx));
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext ctx)
{
	return locked(cu_ctx_push_locked, ctx);
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx)
{
	return locked(cu_ctx_set_locked, ctx);
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *ctx)
{
	struct CUctx_st *top;
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	result = cu_ctx_pop_locked(&top);
	if (result == CUDA_SUCCESS && ctx)
		*ctx = top;
	return cu_leave(result);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ctx)
{
	struct CUctx_st *top;
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&cu.lock);
	*ctx = cu_ctx_current_locked(&top) == CUDA_SUCCESS ? top : NULL;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *dev)
{
	struct CUctx_st *ctx;
	CUresult result = dev ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*dev = (CUdevice)cu_device_ordinal(ctx->dev);
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags)
{
	struct CUctx_st *ctx;
	CUresult result = flags ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*flags = ctx->flags;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult result = flags & ~CTX_FLAGS ? CUDA_ERROR_INVALID_VALUE : cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	ctx->flags = flags;
	return cu_leave(CUDA_SUCCESS);
}

/* The current one, or @ctx; with the lock. */
static CUresult enter_ctx(CUcontext ctx, struct CUctx_st **ret_ctx)
{
	CUresult result;

	if (!ctx)
		return cu_enter(ret_ctx);
	result = cu_check();
	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	*ret_ctx = ctx;
	if (cu_handle_is_locked(ctx, CU_KIND_CTX))
		return CUDA_SUCCESS;
	return cu_leave(CUDA_ERROR_INVALID_CONTEXT);
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *dev, CUcontext ctx)
{
	struct CUctx_st *found;
	CUresult result = dev ? enter_ctx(ctx, &found) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*dev = (CUdevice)cu_device_ordinal(found->dev);
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	struct CUctx_st *found;
	CUresult result = id ? enter_ctx(ctx, &found) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*id = found->id;
	return cu_leave(CUDA_SUCCESS);
}

/* Nothing here makes profiles: there is nothing to begin or end. */
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStart(void)
{
	return cu_check();
}

CUresult CUDAAPI cuProfilerStop(void);
CUresult CUDAAPI cuProfilerStop(void)
{
	return cu_check();
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	struct CUctx_st *found;
	CUresult result = version ? enter_ctx(ctx, &found) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*version = 3020;
	return cu_leave(CUDA_SUCCESS);
}

/* Lets go of the lock. */
static CUresult synchronize(struct CUctx_st *ctx)
{
	CUresult result = CUDA_SUCCESS;

	/* What is captured never ends. */
	for (struct CUstream_st *s = ctx->streams; s; s = s->next)
		if (s->capture)
			result = cu_capture_refuse_locked(s);
	return cu_leave(result == CUDA_SUCCESS ? cu_ctx_wait_locked(ctx) : result);
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	return result == CUDA_SUCCESS ? synchronize(ctx) : result;
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx)
{
	struct CUctx_st *found;
	CUresult result = enter_ctx(ctx, &found);

	return result == CUDA_SUCCESS ? synchronize(found) : result;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUresult result = mode && (unsigned int)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED
				  ? cu_check()
				  : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*mode = cu_capture_mode_exchange(*mode);
	return result;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	if (least)
		*least = 0;
	if (greatest) /* of the tenant's, with CUDA's sign */
		*greatest = -cu.props.priority_max;
	return cu_leave(CUDA_SUCCESS);
}

/* How much of its cache a device keeps for what is asked for: a hint, noted so that a program reads what it has set. */
static CUresult note_hint(struct CUctx_st *ctx, CUlimit limit, size_t value)
{
	size_t most =
		limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY
			? 128
			: (size_t)ctx->dev
				  ->attributes[CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE];

	if (most == 0)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > most)
		return CUDA_ERROR_INVALID_VALUE;
	ctx->limits[limit] = GANTRY_MIN(value, most);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct CUctx_st *ctx;
	uint64_t now;
	CUresult result = cu_enter(&ctx);
	int r;

	if (result != CUDA_SUCCESS)
		return result;
	if (limit >= CU_LIMIT_MAX)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY ||
	    limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
		return cu_leave(note_hint(ctx, limit, value));
	if (limit != CU_LIMIT_STACK_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE &&
	    limit != CU_LIMIT_MALLOC_HEAP_SIZE)
		return cu_leave(cu_unsupported("cuCtxSetLimit of launches by kernels"));
	r = gantry_device_ask(cu.session, GANTRY_ASK_LIMIT, ctx->dev->index, 0,
			      (struct gantry_ask_numbers){ { limit, value } }, &now, sizeof(now));
	if (r == sizeof(now))
		ctx->limits[limit] = now;
	return cu_leave(r < 0 ? cu_result(r) : CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetLimit(size_t *value, CUlimit limit)
{
	struct CUctx_st *ctx;
	CUresult result = value ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (limit >= CU_LIMIT_MAX)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if (ctx->limits[limit] == 0 && limit != CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
		return cu_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
	*value = ctx->limits[limit];
	return cu_leave(CUDA_SUCCESS);
}

/* Tenants share the cache, so no window that a program has said is given lines to keep: there are none to take back. */
CUresult CUDAAPI cuCtxResetPersistingL2Cache(void)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	return result == CUDA_SUCCESS ? cu_leave(CUDA_SUCCESS) : result;
}

/* A hint, and not ours to give. */
CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *config)
{
	struct CUctx_st *ctx;
	CUresult result = config ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*config = CU_FUNC_CACHE_PREFER_NONE;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	(void)config; /* CUDA: "a preference" */
	return result == CUDA_SUCCESS ? cu_leave(CUDA_SUCCESS) : result;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);
	int can = 0;

	if (result != CUDA_SUCCESS)
		return result;
	if (flags)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if (!cu_handle_is_locked(peer, CU_KIND_CTX))
		return cu_leave(CUDA_ERROR_INVALID_CONTEXT);
	result = cuDeviceCanAccessPeer(&can, (CUdevice)cu_device_ordinal(ctx->dev),
				       (CUdevice)cu_device_ordinal(peer->dev));
	if (result == CUDA_SUCCESS && !can)
		result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (result == CUDA_SUCCESS && (ctx->peers >> peer->dev->index & 1))
		result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	if (result == CUDA_SUCCESS)
		ctx->peers |= 1ull << peer->dev->index;
	return cu_leave(result);
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(peer, CU_KIND_CTX))
		return cu_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!(ctx->peers >> peer->dev->index & 1))
		return cu_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	ctx->peers &= ~(1ull << peer->dev->index);
	return cu_leave(CUDA_SUCCESS);
}

/* Undocumented tables are not offered: docs/cuda.md. */
CUresult CUDAAPI cuGetExportTable(const void **table, const CUuuid *id)
{
	(void)table;
	(void)id;
	return cu_unsupported("cuGetExportTable");
}
