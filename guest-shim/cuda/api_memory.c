/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: memory, but for what goes into streams. */
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/managed.h"

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
	struct CUctx_st *ctx;
	CUresult result = address ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		result = cu_capture_unsafe_locked();
	else
		return result;
	return cu_leave(result == CUDA_SUCCESS ? cu_alloc_device_locked(ctx, bytes, NULL, address)
					       : result);
}

CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
				 unsigned int element)
{
	uint64_t rounded, bytes;
	CUresult result;

	if (!pitch || (element != 4 && element != 8 && element != 16) || width == 0 || height == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (gantry_align_up(width, 512, &rounded) < 0 ||
	    gantry_mul_u64(rounded, height, &bytes) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = cuMemAlloc(address, bytes);
	if (result == CUDA_SUCCESS)
		*pitch = rounded;
	return result;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result == CUDA_SUCCESS)
		result = cu_capture_unsafe_locked();
	else
		return result;
	return cu_leave(result == CUDA_SUCCESS ? cu_free_device_locked(address) : result);
}

CUresult CUDAAPI cuMemGetInfo(size_t *ret_free, size_t *ret_total)
{
	struct gantry_stats stats;
	struct CUctx_st *ctx;
	uint64_t total;
	CUresult result = ret_free && ret_total ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	total = ctx->dev->info.mem_bytes;
	result = cu_result(gantry_stats_get(cu.session, &stats));
	if (result == CUDA_SUCCESS) {
		*ret_total = total;
		*ret_free = stats.resident_bytes < total ? total - stats.resident_bytes : 0;
	}
	return cu_leave(result);
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
	struct cu_alloc *alloc;
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	alloc = cu_alloc_find_locked(address);
	if (!alloc)
		return cu_leave(CUDA_ERROR_NOT_FOUND);
	if (base)
		*base = alloc->address;
	if (bytes)
		*bytes = alloc->bytes;
	return cu_leave(CUDA_SUCCESS);
}

/* ---- pinned and managed ---- */

CUresult CUDAAPI cuMemHostAlloc(void **host, size_t bytes, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
				   CU_MEMHOSTALLOC_WRITECOMBINED;
	struct CUctx_st *ctx;
	CUresult result = host && !(flags & ~known) ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	return cu_leave(cu_alloc_host_locked(ctx, bytes, CU_MEMORY_PINNED, flags, host));
}

CUresult CUDAAPI cuMemAllocHost(void **host, size_t bytes)
{
	return cuMemHostAlloc(host, bytes, 0);
}

/*
 * The device reaches it where it lies, in pinned memory: right, and as slow as the bus. It does not move to the device,
 * which the attributes say (no concurrent access).
 */
CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
	struct CUctx_st *ctx;
	void *host = NULL;
	CUresult result = address && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST)
				  ? cu_enter(&ctx)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_alloc_host_locked(ctx, bytes, CU_MEMORY_MANAGED, flags, &host);
	if (result == CUDA_SUCCESS)
		*address = (CUdeviceptr)(uintptr_t)host;
	return cu_leave(result);
}

CUresult CUDAAPI cuMemFreeHost(void *host)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	return result == CUDA_SUCCESS ? cu_leave(cu_free_host_locked(host)) : result;
}

CUresult CUDAAPI cuMemHostRegister(void *host, size_t bytes, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct CUctx_st *ctx;
	CUresult result = host && bytes ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY))
		result = cu_unsupported(
			"cuMemHostRegister of a device's memory, or to be read only");
	else if (flags & ~known)
		result = CUDA_ERROR_INVALID_VALUE;
	else
		result = cu_register_locked(ctx, host, bytes, flags);
	return cu_leave(result);
}

CUresult CUDAAPI cuMemHostUnregister(void *host)
{
	struct CUctx_st *ctx;
	CUresult result = host ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(cu_unregister_locked(host)) : result;
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned int flags)
{
	const struct cu_registered *registered;
	struct CUctx_st *ctx;
	struct cu_alloc *alloc;
	CUresult result = address && flags == 0 ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	registered = cu_registered_find_locked((CUdeviceptr)(uintptr_t)host);
	if (registered)
		return cu_leave(cu_registered_device_locked(registered,
							    (CUdeviceptr)(uintptr_t)host, address));
	alloc = cu_alloc_find_locked((CUdeviceptr)(uintptr_t)host);
	if (!alloc || !alloc->host)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if (cu_alloc_is_far(alloc))
		return cu_leave(
			cu_unsupported("device addresses of pinned memory through a stream"));
	*address = (CUdeviceptr)(uintptr_t)host;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *flags, void *host)
{
	struct CUctx_st *ctx;
	struct cu_alloc *alloc;
	CUresult result = flags ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	alloc = cu_alloc_find_locked((CUdeviceptr)(uintptr_t)host);
	if (!alloc || alloc->kind != CU_MEMORY_PINNED)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = alloc->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return cu_leave(CUDA_SUCCESS);
}

/* Advice changes nothing that a program can see but what it reads back. */
CUresult CUDAAPI cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice,
			     CUmemLocation location)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	return result == CUDA_SUCCESS
		       ? cu_leave(cu_managed_advise_locked(address, bytes, advice, &location))
		       : result;
}

CUresult CUDAAPI cuMemRangeGetAttribute(void *data, size_t data_bytes,
					CUmem_range_attribute attribute, CUdeviceptr address,
					size_t bytes)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	return result == CUDA_SUCCESS ? cu_leave(cu_managed_get_locked(data, data_bytes, attribute,
								       address, bytes))
				      : result;
}

CUresult CUDAAPI cuMemRangeGetAttributes(void **data, size_t *data_bytes,
					 CUmem_range_attribute *attributes, size_t n,
					 CUdeviceptr address, size_t bytes)
{
	struct CUctx_st *ctx;
	CUresult result = data && data_bytes && attributes && n ? cu_enter(&ctx)
								: CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++)
		result = cu_managed_get_locked(data[i], data_bytes[i], attributes[i], address,
					       bytes);
	return cu_leave(result);
}

/* ---- what is known of a pointer ---- */

static int ordinal_of(const struct cu_alloc *alloc)
{
	for (uint32_t i = 0; i < cu.ndevices; i++)
		if (cu.devices[i].index == alloc->device)
			return (int)i;
	return -2; /* as of what is no memory of CUDA's */
}

/* The allocation around @address, or what was registered there as one (@registered); NULL: neither. */
static const struct cu_alloc *about(CUdeviceptr address, struct cu_alloc *registered)
{
	const struct cu_registered *r = cu_registered_find_locked(address);

	if (!r)
		return cu_alloc_find_locked(address);
	*registered = (struct cu_alloc){ .address = r->host,
					 .bytes = r->bytes,
					 .kind = CU_MEMORY_REGISTERED,
					 .ctx = r->ctx,
					 .device = r->ctx->dev->index,
					 .host = (void *)(uintptr_t)r->host,
					 .flags = r->flags };
	return registered;
}

/* The device's address; 0: it has none. */
static CUdeviceptr device_address(const struct cu_alloc *alloc, CUdeviceptr address)
{
	const struct cu_registered *r = alloc->kind == CU_MEMORY_REGISTERED
						? cu_registered_find_locked(address)
						: NULL;

	if (!r)
		return cu_alloc_is_far(alloc) ? 0 : address;
	return r->shared_bytes == r->bytes ? r->device + (address - r->shared) : 0;
}

static CUresult attribute_of(const struct cu_alloc *alloc, CUdeviceptr address,
			     CUpointer_attribute attribute, void *data)
{
	bool is_host = alloc->kind == CU_MEMORY_PINNED || alloc->kind == CU_MEMORY_REGISTERED;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = alloc->ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = device_address(alloc, address);
		return device_address(alloc, address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!alloc->host)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)(uintptr_t)address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = alloc->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = cu_alloc_is_managed(alloc);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = ordinal_of(alloc);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = alloc->address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = alloc->bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = alloc->pool;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)data = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)data = cu_ipc_is_capable(alloc);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(int *)data = 0;
		return CUDA_SUCCESS;
	default:
		return cu_unsupported("cuPointerGetAttribute of another attribute");
	}
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
				       CUdeviceptr address)
{
	const struct cu_alloc *alloc;
	struct cu_alloc registered;
	struct CUctx_st *ctx;
	CUresult result = data ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	alloc = about(address, &registered);
	return cu_leave(alloc ? attribute_of(alloc, address, attribute, data)
			      : CUDA_ERROR_INVALID_VALUE);
}

/* What is no memory of CUDA's has no type, context or ordinal; that is no error here. */
static void attribute_of_none(CUpointer_attribute attribute, void *data)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		memset(data, 0, sizeof(uint64_t));
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = -2;
		break;
	default:
		memset(data, 0, sizeof(uint32_t));
	}
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes,
					void **data, CUdeviceptr address)
{
	const struct cu_alloc *alloc;
	struct cu_alloc registered;
	struct CUctx_st *ctx;
	CUresult result = attributes && data ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	alloc = about(address, &registered);
	for (unsigned int i = 0; i < n && result == CUDA_SUCCESS; i++) {
		if (!data[i])
			result = CUDA_ERROR_INVALID_VALUE;
		else if (!alloc)
			attribute_of_none(attributes[i], data[i]);
		else if (attribute_of(alloc, address, attributes[i], data[i]) != CUDA_SUCCESS)
			attribute_of_none(attributes[i], data[i]);
	}
	return cu_leave(result);
}
