/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: virtual memory management. None of it needs a context; a reservation is of the current one's device, or else of the first. */
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/vmm.h"

static CUresult enter(void)
{
	CUresult result = cu_check();

	if (result == CUDA_SUCCESS)
		(void)pthread_mutex_lock(&cu.lock);
	return result;
}

/* Whose memory @prop is about, if it can be had here at all. */
static CUresult check_prop(const CUmemAllocationProp *prop, struct cu_device **ret_dev)
{
	CUresult result;

	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->win32HandleMetaData)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST ||
	    prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
	    prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return cu_unsupported("cuMemCreate of host memory");
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	result = cu_device_get(prop->location.id, ret_dev);
	if (result == CUDA_SUCCESS && !(*ret_dev)->granule)
		result = cu_unsupported("virtual memory management on this host");
	return result;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
					       CUmemAllocationGranularity_flags option)
{
	struct cu_device *dev;
	CUresult result = granularity && (option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
					  option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
				  ? cu_check()
				  : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		result = check_prop(prop, &dev);
	if (result == CUDA_SUCCESS)
		*granularity = dev->granule;
	return result;
}

/* Where nobody has a context the first device is as good as any. */
static struct cu_device *current_device_locked(void)
{
	struct CUctx_st *ctx;

	return cu_ctx_current_locked(&ctx) == CUDA_SUCCESS ? ctx->dev : &cu.devices[0];
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
				     CUdeviceptr wish, unsigned long long flags)
{
	const size_t page = 4096;
	struct cu_device *dev;
	CUresult result = address && bytes && bytes % page == 0 && wish % page == 0 &&
					  (alignment & (alignment - 1)) == 0 && flags == 0
				  ? enter()
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	dev = current_device_locked();
	return cu_leave(dev->granule ? cu_reserve_locked(dev, bytes, alignment, wish, address)
				     : cu_unsupported("virtual memory management on this host"));
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
	CUresult result = enter();

	return result == CUDA_SUCCESS ? cu_leave(cu_unreserve_locked(address, bytes)) : result;
}

/*
 * A program that asks for a descriptor may never want it: it gets its memory, and hears from cuMemExportToShareableHandle() that there is
 * none. Compression is a wish that the properties afterwards do not confirm.
 */
CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
			     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct cu_physical *physical;
	struct cu_device *dev = NULL;
	CUmemAllocationProp granted;
	CUresult result = handle && flags == 0 ? enter() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	result = check_prop(prop, &dev);
	if (result == CUDA_SUCCESS &&
	    (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
		result = cu_unsupported("cuMemCreate for handles other than descriptors");
	if (result == CUDA_SUCCESS &&
	    (prop->allocFlags.gpuDirectRDMACapable || prop->allocFlags.usage))
		result = cu_unsupported("cuMemCreate for RDMA or for tiles");
	if (result != CUDA_SUCCESS)
		return cu_leave(result);
	granted = *prop;
	memset(&granted.allocFlags, 0, sizeof(granted.allocFlags));
	result = cu_physical_new_locked(dev, bytes, &granted, &physical);
	if (result == CUDA_SUCCESS)
		*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return cu_leave(result);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct cu_physical *physical;
	CUresult result = enter();

	if (result != CUDA_SUCCESS)
		return result;
	physical = cu_physical_of_locked(handle);
	if (!physical)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	cu_physical_release_locked(physical);
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
			  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct cu_physical *physical;
	CUresult result = offset == 0 && flags == 0 ? enter() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	physical = cu_physical_of_locked(handle);
	return cu_leave(physical ? cu_map_locked(address, bytes, physical)
				 : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes)
{
	CUresult result = enter();

	return result == CUDA_SUCCESS ? cu_leave(cu_unmap_locked(address, bytes)) : result;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc,
				size_t count)
{
	CUresult result = desc && count ? enter() : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(cu_set_access_locked(address, bytes, desc, count))
				      : result;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
				CUdeviceptr address)
{
	struct cu_device *dev;
	CUresult result = flags && location ? enter() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return cu_leave(cu_unsupported("cuMemGetAccess of the host"));
	result = cu_device_get(location->id, &dev);
	if (result == CUDA_SUCCESS)
		result = cu_get_access_locked(address, cu_device_ordinal(dev), flags);
	return cu_leave(result);
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
							CUmemGenericAllocationHandle handle)
{
	const struct cu_physical *physical;
	CUresult result = prop ? enter() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	physical = cu_physical_of_locked(handle);
	if (physical)
		*prop = physical->prop;
	return cu_leave(physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	struct cu_physical *physical;
	CUresult result = handle ? enter() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	physical = cu_physical_at_locked((CUdeviceptr)(uintptr_t)address);
	if (!physical)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	physical->nrefs++;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
	return cu_leave(CUDA_SUCCESS);
}
