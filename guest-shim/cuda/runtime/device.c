/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, the thread's device and last error, versions. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "guest-shim/cuda/runtime/rt.h"
#include "guest-shim/cudalibs/road.h"

extern const struct gantry_cuda_road gantry_cuda_road; /* of libcuda.so.1 */

#define MAX_DEVICES	16
#define RUNTIME_VERSION 13000

static _Thread_local cudaError_t last;
static _Thread_local int device;  /* 1 + the thread's; 0: it has chosen none */
static _Thread_local int entered; /* 1 + the device whose context this thread had last */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[MAX_DEVICES];
static int first; /* the device of threads that have chosen none */

static CUresult retain(int ordinal, CUcontext *ret_ctx)
{
	CUresult result = CUDA_SUCCESS;

	(void)pthread_mutex_lock(&lock);
	if (!primary[ordinal])
		result = cuDevicePrimaryCtxRetain(&primary[ordinal], ordinal);
	*ret_ctx = primary[ordinal];
	(void)pthread_mutex_unlock(&lock);
	return result;
}

/* A program that has made a context of its own current goes on with that. */
static CUresult enter(void)
{
	CUcontext now = NULL, mine;
	CUresult result = cuCtxGetCurrent(&now);

	if (result == CUDA_ERROR_NOT_INITIALIZED) {
		result = cuInit(0);
		if (result == CUDA_SUCCESS)
			result = cuCtxGetCurrent(&now);
	}
	if (result != CUDA_SUCCESS || (now && !entered))
		return result;
	if (now && entered == rt_device() + 1)
		return CUDA_SUCCESS;
	result = retain(rt_device(), &mine);
	if (result == CUDA_SUCCESS && now != mine)
		result = cuCtxSetCurrent(mine);
	if (result == CUDA_SUCCESS)
		entered = rt_device() + 1;
	return result;
}

cudaError_t rt_enter(void)
{
	CUresult result = enter();

	return result == CUDA_SUCCESS ? cudaSuccess : rt_leave(result);
}

cudaError_t rt_leave(CUresult result)
{
	/* Where there is no agent, or no device behind it. */
	if (result == CUDA_ERROR_NOT_INITIALIZED)
		result = (CUresult)cudaErrorInitializationError;
	if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
		last = (cudaError_t)result;
	return (cudaError_t)result;
}

int rt_device(void)
{
	return device ? device - 1 : gantry_load_relaxed(&first);
}

int rt_unsupported(const char *name);
int rt_unsupported(const char *name)
{
	if (gantry_cuda_road.size >= sizeof(gantry_cuda_road) && gantry_cuda_road.unsupported)
		gantry_cuda_road.unsupported(name);
	return rt_leave(CUDA_ERROR_NOT_SUPPORTED);
}

/* ---- errors ---- */

struct rt_error {
	int code;
	const char *name;
};
extern const struct rt_error rt_errors[]; /* made by tools/gen-cuda */

const char *CUDARTAPI cudaGetErrorName(cudaError_t error)
{
	for (const struct rt_error *e = rt_errors; e->name; e++)
		if (e->code == (int)error)
			return e->name;
	return "unrecognized error code";
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	if (cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS && text)
		return text;
	return cudaGetErrorName(error);
}

cudaError_t CUDARTAPI cudaPeekAtLastError(void)
{
	return last;
}

/* What the device cannot go on after is there again at the next call that asks it. */
cudaError_t CUDARTAPI cudaGetLastError(void)
{
	cudaError_t was = last;

	last = cudaSuccess;
	return was;
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return rt_leave(CUDA_ERROR_INVALID_VALUE);
	*version = RUNTIME_VERSION;
	return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int *version)
{
	return rt_leave(cuDriverGetVersion(version));
}

/* ---- devices ---- */

static CUresult start(void)
{
	return cuInit(0);
}

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count)
{
	CUresult result = start();

	if (result == CUDA_SUCCESS)
		result = cuDeviceGetCount(count);
	return rt_leave(result);
}

static CUresult check(int ordinal)
{
	int n = 0;
	CUresult result = start();

	if (result == CUDA_SUCCESS)
		result = cuDeviceGetCount(&n);
	if (result == CUDA_SUCCESS && (ordinal < 0 || ordinal >= n || ordinal >= MAX_DEVICES))
		result = CUDA_ERROR_INVALID_DEVICE;
	return result;
}

cudaError_t CUDARTAPI cudaSetDevice(int ordinal)
{
	CUresult result = check(ordinal);
	CUcontext ctx;

	if (result == CUDA_SUCCESS)
		result = retain(ordinal, &ctx);
	if (result == CUDA_SUCCESS)
		result = cuCtxSetCurrent(ctx);
	if (result == CUDA_SUCCESS) {
		device = ordinal + 1;
		entered = ordinal + 1;
	}
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaGetDevice(int *ordinal)
{
	if (!ordinal)
		return rt_leave(CUDA_ERROR_INVALID_VALUE);
	*ordinal = rt_device();
	return cudaSuccess;
}

/* Any of them works, so the first is the one; threads that have chosen theirs keep it. */
cudaError_t CUDARTAPI cudaSetValidDevices(int *devices, int n)
{
	int count = 0;
	CUresult result = start();

	if (result == CUDA_SUCCESS)
		result = cuDeviceGetCount(&count);
	if (result == CUDA_SUCCESS && (n < 0 || n > count || (n && !devices)))
		result = CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < n && result == CUDA_SUCCESS; i++)
		result = check(devices[i]);
	if (result == CUDA_SUCCESS)
		gantry_store_relaxed(&first, n ? devices[0] : 0);
	return rt_leave(result);
}

/* How much of what @prop asks for device @ordinal has: its architecture counts most. */
static int suits(int ordinal, const struct cudaDeviceProp *prop)
{
	struct cudaDeviceProp own;

	if (cudaGetDeviceProperties(&own, ordinal) != cudaSuccess)
		return -1;
	return 4 * (own.major > prop->major ||
		    (own.major == prop->major && own.minor >= prop->minor)) +
	       2 * (own.totalGlobalMem >= prop->totalGlobalMem) +
	       (own.multiProcessorCount >= prop->multiProcessorCount);
}

cudaError_t CUDARTAPI cudaChooseDevice(int *ordinal, const struct cudaDeviceProp *prop)
{
	int count = 0, best = -1;
	CUresult result = ordinal && prop ? start() : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		result = cuDeviceGetCount(&count);
	for (int i = 0; i < count && i < MAX_DEVICES && result == CUDA_SUCCESS; i++) {
		int now = suits(i, prop);

		if (now > best) {
			best = now;
			*ordinal = i;
		}
	}
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuCtxSynchronize()) : error;
}

cudaError_t CUDARTAPI cudaDeviceReset(void)
{
	CUresult result = start();

	if (result != CUDA_SUCCESS)
		return rt_leave(result);
	(void)pthread_mutex_lock(&lock);
	if (primary[rt_device()]) {
		result = cuDevicePrimaryCtxReset(rt_device());
		primary[rt_device()] = NULL;
	}
	(void)pthread_mutex_unlock(&lock);
	(void)cuCtxSetCurrent(NULL); /* the next call finds the new one */
	entered = 0;
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int ordinal)
{
	CUresult result = check(ordinal);

	/* The numbers are the same. */
	if (result == CUDA_SUCCESS)
		result = cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, ordinal);
	return rt_leave(result);
}

static int32_t attribute(int ordinal, CUdevice_attribute which)
{
	int value = 0;

	(void)cuDeviceGetAttribute(&value, which, ordinal); /* 0: it has none of it */
	return value;
}

static void fill_limits(struct cudaDeviceProp *prop, int d)
{
	for (int i = 0; i < 3; i++) {
		prop->maxThreadsDim[i] = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
		prop->maxGridSize[i] = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
	}
	prop->sharedMemPerBlock =
		(size_t)attribute(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
	prop->sharedMemPerBlockOptin =
		(size_t)attribute(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	prop->sharedMemPerMultiprocessor =
		(size_t)attribute(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	prop->reservedSharedMemPerBlock =
		(size_t)attribute(d, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
	prop->totalConstMem = (size_t)attribute(d, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
	prop->memPitch = (size_t)attribute(d, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
	prop->textureAlignment = (size_t)attribute(d, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
	prop->texturePitchAlignment =
		(size_t)attribute(d, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
	prop->surfaceAlignment = (size_t)attribute(d, CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT);
	prop->regsPerBlock = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
	prop->regsPerMultiprocessor =
		attribute(d, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
	prop->warpSize = attribute(d, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
	prop->maxThreadsPerBlock = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	prop->maxThreadsPerMultiProcessor =
		attribute(d, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
	prop->maxBlocksPerMultiProcessor =
		attribute(d, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
}

static void fill_abilities(struct cudaDeviceProp *prop, int d)
{
	prop->major = attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	prop->minor = attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	prop->multiProcessorCount = attribute(d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	prop->canMapHostMemory = attribute(d, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
	prop->concurrentKernels = attribute(d, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
	prop->ECCEnabled = attribute(d, CU_DEVICE_ATTRIBUTE_ECC_ENABLED);
	prop->pciBusID = attribute(d, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
	prop->asyncEngineCount = attribute(d, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
	prop->unifiedAddressing = attribute(d, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
	prop->memoryBusWidth = attribute(d, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
	prop->l2CacheSize = attribute(d, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
	prop->persistingL2CacheMaxSize =
		attribute(d, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE);
	prop->accessPolicyMaxWindowSize =
		attribute(d, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE);
	prop->streamPrioritiesSupported =
		attribute(d, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
	prop->globalL1CacheSupported = attribute(d, CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED);
	prop->localL1CacheSupported = attribute(d, CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED);
	prop->managedMemory = attribute(d, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
	prop->hostNativeAtomicSupported =
		attribute(d, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED);
	prop->computePreemptionSupported =
		attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED);
	prop->cooperativeLaunch = attribute(d, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *prop, int ordinal)
{
	CUresult result = check(ordinal);

	if (result == CUDA_SUCCESS && !prop)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return rt_leave(result);
	memset(prop, 0, sizeof(*prop));
	result = cuDeviceGetName(prop->name, sizeof(prop->name), ordinal);
	if (result == CUDA_SUCCESS)
		result = cuDeviceGetUuid((CUuuid *)&prop->uuid, ordinal);
	if (result == CUDA_SUCCESS)
		result = cuDeviceTotalMem(&prop->totalGlobalMem, ordinal);
	fill_limits(prop, ordinal);
	fill_abilities(prop, ordinal);
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char *id, int len, int ordinal)
{
	CUresult result = check(ordinal);

	return rt_leave(result == CUDA_SUCCESS ? cuDeviceGetPCIBusId(id, len, ordinal) : result);
}

cudaError_t CUDARTAPI cudaDeviceGetByPCIBusId(int *ordinal, const char *id)
{
	CUresult result = start();

	return rt_leave(result == CUDA_SUCCESS ? cuDeviceGetByPCIBusId(ordinal, id) : result);
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuCtxGetStreamPriorityRange(least, greatest))
				    : error;
}

cudaError_t CUDARTAPI cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuCtxGetLimit(value, (CUlimit)limit)) : error;
}

cudaError_t CUDARTAPI cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuCtxSetLimit((CUlimit)limit, value)) : error;
}

cudaError_t CUDARTAPI cudaCtxResetPersistingL2Cache(void)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuCtxResetPersistingL2Cache()) : error;
}

cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned int flags)
{
	CUresult result = start();

	return rt_leave(result == CUDA_SUCCESS
				? cuDevicePrimaryCtxSetFlags(
					  rt_device(), flags & ~(unsigned int)cudaDeviceMapHost)
				: result);
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int *can, int ordinal, int peer)
{
	CUresult result = check(ordinal);

	return rt_leave(result == CUDA_SUCCESS ? cuDeviceCanAccessPeer(can, ordinal, peer)
					       : result);
}

static cudaError_t with_peer(int peer, CUresult (*change)(CUcontext ctx))
{
	cudaError_t error = rt_enter();
	CUresult result;
	CUcontext ctx;

	if (error != cudaSuccess)
		return error;
	result = check(peer);
	if (result == CUDA_SUCCESS)
		result = retain(peer, &ctx);
	return rt_leave(result == CUDA_SUCCESS ? change(ctx) : result);
}

cudaError_t CUDARTAPI cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr which,
						int ordinal, int peer)
{
	CUresult result = check(ordinal);

	/* The numbers are the same. */
	return rt_leave(result == CUDA_SUCCESS
				? cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)which,
							  ordinal, peer)
				: result);
}

static CUresult enable(CUcontext ctx)
{
	return cuCtxEnablePeerAccess(ctx, 0);
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	return flags ? rt_leave(CUDA_ERROR_INVALID_VALUE) : with_peer(peer, enable);
}

cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peer)
{
	return with_peer(peer, cuCtxDisablePeerAccess);
}

cudaError_t CUDARTAPI cudaInitDevice(int ordinal, unsigned int flags, unsigned int other)
{
	CUresult result = other & ~(unsigned int)cudaInitDeviceFlagsAreValid
				  ? CUDA_ERROR_INVALID_VALUE
				  : check(ordinal);
	CUcontext ctx;

	if (result == CUDA_SUCCESS && (other & cudaInitDeviceFlagsAreValid))
		result = cuDevicePrimaryCtxSetFlags(ordinal,
						    flags & ~(unsigned int)cudaDeviceMapHost);
	return rt_leave(result == CUDA_SUCCESS ? retain(ordinal, &ctx) : result);
}

cudaError_t CUDARTAPI cudaGetDeviceFlags(unsigned int *flags)
{
	unsigned int found = 0;
	int active;
	CUresult result = flags ? start() : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		result = cuDevicePrimaryCtxGetState(rt_device(), &found, &active);
	if (result == CUDA_SUCCESS)
		*flags = found | cudaDeviceMapHost;
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
	return RT(cuCtxGetCacheConfig((CUfunc_cache *)config));
}

cudaError_t CUDARTAPI cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
	return RT(cuCtxSetCacheConfig((CUfunc_cache)config));
}

/* Banks of four bytes, as all devices have that the toolkit still knows: there a program's choice changes nothing. */
cudaError_t CUDARTAPI cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config)
{
	cudaError_t error = config ? rt_enter() : rt_leave(CUDA_ERROR_INVALID_VALUE);

	if (error == cudaSuccess)
		*config = cudaSharedMemBankSizeFourByte;
	return error;
}

static CUresult check_banks(enum cudaSharedMemConfig config)
{
	return (unsigned int)config <= cudaSharedMemBankSizeEightByte ? CUDA_SUCCESS
								      : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t CUDARTAPI cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
	return RT(check_banks(config));
}

cudaError_t CUDARTAPI cudaFuncSetSharedMemConfig(const void *func, enum cudaSharedMemConfig config)
{
	CUfunction function;
	cudaError_t error = RT(check_banks(config));

	return error == cudaSuccess ? RT((CUresult)rt_function(func, &function)) : error;
}

/* Nothing here makes profiles: there is nothing to begin or end. */
cudaError_t CUDARTAPI cudaProfilerStart(void);
cudaError_t CUDARTAPI cudaProfilerStart(void)
{
	return RT(CUDA_SUCCESS);
}

cudaError_t CUDARTAPI cudaProfilerStop(void);
cudaError_t CUDARTAPI cudaProfilerStop(void)
{
	return RT(CUDA_SUCCESS);
}
