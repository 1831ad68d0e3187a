/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events as objects; functions and what limits them. */
#include <string.h>

#include "guest-shim/cuda/runtime/rt.h"

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t *stream)
{
	return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags,
						   int priority)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamCreateWithPriority(stream, flags, priority))
				    : error;
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamDestroy(stream)) : error;
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuEventCreate(event, flags)) : error;
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuEventDestroy(event)) : error;
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuEventQuery(event)) : error;
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuEventSynchronize(event)) : error;
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuEventElapsedTime(ms, start, end)) : error;
}

/* ---- functions ---- */

static cudaError_t enter_function(const void *host, CUfunction *ret_function)
{
	cudaError_t error = rt_enter();

	if (error == cudaSuccess)
		error = rt_function(host, ret_function);
	return error;
}

cudaError_t CUDARTAPI cudaFuncGetAttributes(struct cudaFuncAttributes *ret, const void *host)
{
	int values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT + 1] = { 0 };
	CUfunction function;
	cudaError_t error = ret ? enter_function(host, &function) : cudaErrorInvalidValue;
	CUresult result = (CUresult)error;

	for (int i = 0;
	     i <= CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT && result == CUDA_SUCCESS; i++)
		result = cuFuncGetAttribute(&values[i], (CUfunction_attribute)i, function);
	if (result != CUDA_SUCCESS)
		return rt_leave(result);
	memset(ret, 0, sizeof(*ret));
	ret->maxThreadsPerBlock = values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
	ret->sharedSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
	ret->constSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES];
	ret->localSizeBytes = (size_t)values[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES];
	ret->numRegs = values[CU_FUNC_ATTRIBUTE_NUM_REGS];
	ret->ptxVersion = values[CU_FUNC_ATTRIBUTE_PTX_VERSION];
	ret->binaryVersion = values[CU_FUNC_ATTRIBUTE_BINARY_VERSION];
	ret->cacheModeCA = values[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA];
	ret->maxDynamicSharedSizeBytes = values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
	ret->preferredShmemCarveout = values[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT];
	return cudaSuccess;
}

cudaError_t CUDARTAPI cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute,
					   int value)
{
	CUfunction function;
	cudaError_t error = enter_function(host, &function);

	/* The numbers are the same. */
	return rt_leave(
		error == cudaSuccess
			? cuFuncSetAttribute(function, (CUfunction_attribute)attribute, value)
			: (CUresult)error);
}

cudaError_t CUDARTAPI cudaFuncSetCacheConfig(const void *host, enum cudaFuncCache config)
{
	CUfunction function;
	cudaError_t error = enter_function(host, &function);

	return rt_leave(error == cudaSuccess ? cuFuncSetCacheConfig(function, (CUfunc_cache)config)
					     : (CUresult)error);
}

cudaError_t CUDARTAPI cudaGetFuncBySymbol(cudaFunction_t *ret_function, const void *host)
{
	CUfunction function = NULL;
	cudaError_t error = ret_function ? enter_function(host, &function) : cudaErrorInvalidValue;

	if (error == cudaSuccess)
		*ret_function = function;
	return rt_leave((CUresult)error);
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *nblocks, const void *host,
								    int nthreads, size_t shared)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(nblocks, host, nthreads,
								      shared, 0);
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *nblocks, const void *host, int nthreads, size_t shared, unsigned int flags)
{
	CUfunction function;
	cudaError_t error = enter_function(host, &function);

	return rt_leave(error == cudaSuccess ? cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
						       nblocks, function, nthreads, shared, flags)
					     : (CUresult)error);
}

CUresult rt_config(const cudaLaunchConfig_t *config, CUlaunchConfig *ret_own)
{
	if (!config || config->dynamicSmemBytes > UINT32_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_own = (CUlaunchConfig){ .gridDimX = config->gridDim.x,
				     .gridDimY = config->gridDim.y,
				     .gridDimZ = config->gridDim.z,
				     .blockDimX = config->blockDim.x,
				     .blockDimY = config->blockDim.y,
				     .blockDimZ = config->blockDim.z,
				     .sharedMemBytes = (unsigned int)config->dynamicSmemBytes,
				     .hStream = config->stream,
				     .attrs = (CUlaunchAttribute *)config->attrs,
				     .numAttrs = config->numAttrs };
	return CUDA_SUCCESS;
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveClusters(int *nclusters, const void *host,
						     const cudaLaunchConfig_t *config)
{
	CUlaunchConfig own;
	CUfunction function;
	CUresult result = (CUresult)enter_function(host, &function);

	if (result == CUDA_SUCCESS)
		result = rt_config(config, &own);
	return rt_leave(result == CUDA_SUCCESS
				? cuOccupancyMaxActiveClusters(nclusters, function, &own)
				: result);
}

cudaError_t CUDARTAPI cudaOccupancyMaxPotentialClusterSize(int *nblocks, const void *host,
							   const cudaLaunchConfig_t *config)
{
	CUlaunchConfig own;
	CUfunction function;
	CUresult result = (CUresult)enter_function(host, &function);

	if (result == CUDA_SUCCESS)
		result = rt_config(config, &own);
	return rt_leave(result == CUDA_SUCCESS
				? cuOccupancyMaxPotentialClusterSize(nblocks, function, &own)
				: result);
}

cudaError_t CUDARTAPI cudaFuncGetName(const char **name, const void *host)
{
	CUfunction function;
	cudaError_t error = enter_function(host, &function);

	return rt_leave(error == cudaSuccess ? cuFuncGetName(name, function) : (CUresult)error);
}

cudaError_t CUDARTAPI cudaFuncGetParamInfo(const void *host, size_t index, size_t *off,
					   size_t *bytes)
{
	CUfunction function;
	cudaError_t error = enter_function(host, &function);

	return rt_leave(error == cudaSuccess ? cuFuncGetParamInfo(function, index, off, bytes)
					     : (CUresult)error);
}
