/* SPDX-License-Identifier: Apache-2.0 */
/* The process: its session, its devices, and what statuses of Gantry are to CUDA. */
#include "guest-shim/cuda/core.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "guest-shim/cuda/vmm.h"
#include "guest-shim/session.h"

/*
 * Programs run ahead of the device by so many calls as NVIDIA's driver lets them: what they lag behind in one part of a step, in short
 * kernels mostly, is hidden by the lead from another.
 */
#define RING_SLOTS 1024u

struct cu cu = { .lock = PTHREAD_MUTEX_INITIALIZER };
_Thread_local bool cu_in_callback;

/* ---- what is not there ---- */

/* Without a lock: a child of fork() may come here with any lock held. A name has its place for good. */
#define NUNSUPPORTED 512u
static struct {
	const char *name; /* atomic; static text */
	uint64_t count;	  /* atomic */
} unsupported[NUNSUPPORTED];

static void tell(const char *name, uint64_t count)
{
	/* Acquire: pairs with the release in start_locked(). */
	if (gantry_load_acquire(&cu.ready))
		(void)gantry_session_missing(cu.session, name, count); /* nothing comes of it */
}

CUresult cu_unsupported(const char *name)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < NUNSUPPORTED && !count; i++) {
		const char *there = NULL;

		if (!gantry_cas(&unsupported[i].name, &there, name) && there != name &&
		    strcmp(there, name) != 0)
			continue;
		count = gantry_fetch_add(&unsupported[i].count, (uint64_t)1) + 1;
	}
	/* The first time, and then ever more seldom. */
	if (count && (count & (count - 1)) == 0)
		tell(name, count);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* What was called before there was anyone to tell. */
static void tell_all(void)
{
	for (uint32_t i = 0; i < NUNSUPPORTED; i++) {
		const char *name = gantry_load_acquire(&unsupported[i].name);

		if (!name)
			break;
		tell(name, gantry_load_relaxed(&unsupported[i].count));
	}
}

/* ---- statuses ---- */

/* After these nothing that the device held can be relied on: the program has to be started again. */
static CUresult lasting(int status)
{
	switch (status) {
	case GANTRY_E_DEVICE_FAULT:
		return cu_output_fault();
	case GANTRY_E_IN_DOUBT:
	case GANTRY_E_INTERRUPTED:
		return CUDA_ERROR_LAUNCH_FAILED;
	case GANTRY_E_DEADLINE:
		return CUDA_ERROR_LAUNCH_TIMEOUT;
	case GANTRY_E_DEVICE_LOST:
	case GANTRY_E_PROTOCOL:
	case GANTRY_E_DETACHED:
	case GANTRY_E_CLOSED:
	case GANTRY_E_MOVED:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	default:
		return CUDA_SUCCESS;
	}
}

static CUresult passing(int status)
{
	switch (status) {
	case GANTRY_E_ARG:
	case GANTRY_E_SPAN:
	case GANTRY_E_SIGNATURE:
	case GANTRY_E_ACCESS:
		return CUDA_ERROR_INVALID_VALUE;
	case GANTRY_E_HANDLE:
		return CUDA_ERROR_INVALID_HANDLE;
	case GANTRY_E_NO_KERNEL:
	case GANTRY_E_NOT_FOUND:
		return CUDA_ERROR_NOT_FOUND;
	case GANTRY_E_IMAGE:
		return CUDA_ERROR_INVALID_IMAGE;
	case GANTRY_E_LIMIT:
	case GANTRY_E_NO_MEMORY:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case GANTRY_E_UNSUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	case GANTRY_E_NO_DEVICE:
	case GANTRY_E_NO_AGENT:
		return CUDA_ERROR_NO_DEVICE;
	case GANTRY_E_DENIED:
		return CUDA_ERROR_NOT_PERMITTED;
	case GANTRY_E_FULL:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	case GANTRY_E_VERSION:
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	case GANTRY_E_FORKED:
		return CUDA_ERROR_NOT_INITIALIZED;
	case GANTRY_E_TIMEOUT:
	case GANTRY_E_AGAIN:
		return CUDA_ERROR_TIMEOUT;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

CUresult cu_result(int status)
{
	CUresult result;

	if (status >= 0)
		return CUDA_SUCCESS;
	result = lasting(status);
	if (result == CUDA_SUCCESS)
		return passing(status);
	if (gantry_load_relaxed(&cu.sticky) == CUDA_SUCCESS)
		gantry_store_relaxed(&cu.sticky, (uint32_t)result);
	return (CUresult)gantry_load_relaxed(&cu.sticky);
}

/* ---- devices ---- */

/* What a guest cannot have here, whatever its device can. */
static const CUdevice_attribute lacking[] = {
	CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
	CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
	CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
	CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
	CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES,
	CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1,
	CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1,
	CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1,
	CU_DEVICE_ATTRIBUTE_TCC_DRIVER,
	CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD,
	CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
	CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
	CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
};

bool cu_is_far(void)
{
	return cu.session->transport->is_pumped;
}

static void mend_attributes(struct cu_device *dev)
{
	for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++)
		dev->attributes[lacking[i]] = 0;
	dev->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = (int32_t)cu_device_ordinal(dev) + 1;
	dev->granule = cu_granule(dev);
	dev->attributes[CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED] = dev->granule !=
										   0;
	dev->attributes[CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED] = dev->granule != 0 &&
								   !cu_is_far();
	dev->attributes[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1;
	dev->attributes[CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY] = !cu_is_far();
	dev->attributes[CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED] = 1;
	dev->attributes[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY] = !cu_is_far();
	dev->attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS] = !cu_is_far();
	dev->attributes[CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR] = !cu_is_far();
	dev->attributes[CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED] = 1;
}

static int take_attributes(struct cu_device *dev)
{
	for (uint64_t first = 1; first < CU_DEVICE_ATTRIBUTE_MAX;) {
		int n = gantry_device_ask(cu.session, GANTRY_ASK_ATTRIBUTES, dev->index, 0,
					  (struct gantry_ask_numbers){ { first } },
					  &dev->attributes[first],
					  (CU_DEVICE_ATTRIBUTE_MAX - first) * sizeof(int32_t));

		if (n < 0)
			return n;
		/* An older toolkit on the host knows fewer. */
		if (n < (int)sizeof(int32_t))
			break;
		first += (uint64_t)n / sizeof(int32_t);
	}
	mend_attributes(dev);
	return 0;
}

static int take_devices(void)
{
	for (uint32_t i = 0; cu.ndevices < CU_MAX_DEVICES; i++) {
		struct cu_device *dev = &cu.devices[cu.ndevices];
		int r = gantry_device_ask(cu.session, GANTRY_ASK_DEVICE, i, 0,
					  (struct gantry_ask_numbers){ { 0 } }, &dev->info,
					  sizeof(dev->info));

		if (r == GANTRY_E_NO_DEVICE && i < cu.props.ndevices + CU_MAX_DEVICES)
			/* One that the tenant may not use, or the end: there are no more than 64. */
			if (i < 64)
				continue;
		if (r == GANTRY_E_NO_DEVICE)
			break;
		if (r < 0)
			return r;
		if (dev->info.kind != GANTRY_KIND_CUDA)
			continue;
		dev->index = i;
		cu.ndevices++;
		r = take_attributes(dev);
		if (r < 0)
			return r;
		if (cu.ndevices == cu.props.ndevices)
			break;
	}
	return cu.ndevices ? 0 : GANTRY_E_NO_DEVICE;
}

static CUresult start_locked(void)
{
	const struct gantry_limits ask = { .nslots = RING_SLOTS };
	int r = gantry_open(NULL, &ask, &cu.session);

	if (r == 0)
		r = gantry_props_get(cu.session, GANTRY_KIND_CUDA, &cu.props);
	if (r == 0)
		r = take_devices();
	if (r == 0) {
		gantry_store_release(&cu.ready, 1u);
		tell_all();
		return CUDA_SUCCESS;
	}
	gantry_close(cu.session);
	cu.session = NULL;
	cu.ndevices = 0;
	return passing(r);
}

CUresult cu_start(unsigned int flags)
{
	CUresult result = CUDA_SUCCESS;

	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (gantry_load_acquire(&cu.ready))
		return cu_check();
	(void)pthread_mutex_lock(&cu.lock);
	if (!gantry_load_relaxed(&cu.ready))
		result = start_locked();
	(void)pthread_mutex_unlock(&cu.lock);
	return result;
}

/* ---- calls ---- */

CUresult cu_check(void)
{
	/* Acquire: pairs with the release in start_locked(). */
	if (!gantry_load_acquire(&cu.ready) || gantry_session_enter(cu.session) < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (cu_in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	return (CUresult)gantry_load_relaxed(&cu.sticky);
}

CUresult cu_enter(struct CUctx_st **ret_ctx)
{
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	result = cu_ctx_current_locked(ret_ctx);
	if (result != CUDA_SUCCESS)
		(void)pthread_mutex_unlock(&cu.lock);
	return result;
}

CUresult cu_leave(CUresult result)
{
	(void)pthread_mutex_unlock(&cu.lock);
	cu_output_leave();
	return result;
}
