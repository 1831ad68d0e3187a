/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: modules, libraries, functions, occupancy; streams and events as objects. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "guest-shim/cuda/core.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/ipc.h"
#include "guest-shim/cuda/mirror.h"

/* ---- modules ---- */

static CUresult load(const void *image, uint64_t file_bytes, bool is_library,
		     struct CUmod_st **ret_module)
{
	struct CUctx_st *ctx = NULL;
	CUresult result;

	if (!ret_module)
		return CUDA_ERROR_INVALID_VALUE;
	/* A library needs no context, a module does. */
	result = is_library ? cu_check() : cu_enter(&ctx);
	if (result != CUDA_SUCCESS)
		return result;
	if (!is_library)
		(void)cu_leave(CUDA_SUCCESS);
	/* Compiling takes its time: others go on meanwhile. */
	return cu_module_load(image, file_bytes, ctx, ret_module);
}

static CUresult load_file(const char *path, bool is_library, struct CUmod_st **ret_module)
{
	CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
	char *image = NULL;
	struct stat st;
	FILE *file;

	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	file = fopen(path, "re");
	if (!file)
		return result;
	if (fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode)) {
		if (st.st_size > 0 && (uint64_t)st.st_size < GANTRY_MAX_IMAGE_BYTES)
			image = calloc(1, (size_t)st.st_size + 1);
		else
			result = CUDA_ERROR_INVALID_IMAGE;
	}
	if (image && fread(image, 1, (size_t)st.st_size, file) == (size_t)st.st_size)
		result = load(image, (uint64_t)st.st_size, is_library, ret_module);
	(void)fclose(file);
	free(image);
	return result;
}

CUresult CUDAAPI cuModuleLoad(CUmodule *module, const char *path)
{
	return load_file(path, false, module);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
	return load(image, 0, false, module);
}

/* Options of the compiler in the driver: the host has its own; outputs say that there was nothing to say. */
static void empty_logs(unsigned int n, const CUjit_option *options, void **values)
{
	for (unsigned int i = 0; options && values && i < n; i++)
		if ((options[i] == CU_JIT_INFO_LOG_BUFFER ||
		     options[i] == CU_JIT_ERROR_LOG_BUFFER) &&
		    values[i])
			*(char *)values[i] = '\0';
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n,
				    CUjit_option *options, void **values)
{
	empty_logs(n, options, values);
	return load(image, 0, false, module);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return load(image, 0, false, module);
}

static CUresult unload(struct CUmod_st *module)
{
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	if (!cu_handle_is_locked(module, CU_KIND_MODULE))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	cu_module_end_locked(module);
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
	return unload(module);
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_LAZY_LOADING;
	return cu_check();
}

/* With the lock on success: a module, and the context to look at it from. */
static CUresult enter_module(struct CUmod_st *module, struct CUctx_st **ret_ctx)
{
	CUresult result = cu_enter(ret_ctx);

	if (result != CUDA_SUCCESS)
		return result;
	return cu_handle_is_locked(module, CU_KIND_MODULE) ? CUDA_SUCCESS
							   : cu_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult get_function(struct CUfunc_st **ret_func, struct CUmod_st *module, const char *name)
{
	struct CUctx_st *ctx;
	CUresult result = ret_func && name ? enter_module(module, &ctx) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(cu_func_get_locked(ctx, module, name, ret_func))
				      : result;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	return get_function(function, module, name);
}

static CUresult get_variable(CUdeviceptr *address, size_t *bytes, struct CUmod_st *module,
			     const char *name, bool is_managed)
{
	struct cu_variable *variable;
	struct CUctx_st *ctx;
	CUresult result = name ? enter_module(module, &ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_variable_get_locked(ctx, module, name, &variable);
	if (result == CUDA_SUCCESS && is_managed && !variable->is_managed)
		result = CUDA_ERROR_NOT_FOUND;
	if (result == CUDA_SUCCESS && address)
		*address = variable->address;
	if (result == CUDA_SUCCESS && bytes)
		*bytes = variable->bytes;
	return cu_leave(result);
}

CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module,
				   const char *name)
{
	return get_variable(address, bytes, module, name, false);
}

/* ---- libraries ---- */

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
				   void **jit_values, unsigned int njit, CUlibraryOption *options,
				   void **values, unsigned int n)
{
	(void)options;
	(void)values;
	(void)n;
	empty_logs(njit, jit_options, jit_values);
	return load(code, 0, true, (struct CUmod_st **)library);
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *library, const char *path,
				       CUjit_option *jit_options, void **jit_values,
				       unsigned int njit, CUlibraryOption *options, void **values,
				       unsigned int n)
{
	(void)options;
	(void)values;
	(void)n;
	empty_logs(njit, jit_options, jit_values);
	return load_file(path, true, (struct CUmod_st **)library);
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library)
{
	return unload((struct CUmod_st *)library);
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	return get_function((struct CUfunc_st **)kernel, (struct CUmod_st *)library, name);
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	struct CUctx_st *ctx;
	CUresult result = module ? enter_module((struct CUmod_st *)library, &ctx)
				 : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*module = (CUmodule)library;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library,
				    const char *name)
{
	return get_variable(address, bytes, (struct CUmod_st *)library, name, false);
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library,
				     const char *name)
{
	if (!address && !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	return get_variable(address, bytes, (struct CUmod_st *)library, name, true);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	struct CUctx_st *ctx;
	CUresult result = function ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(kernel, CU_KIND_FUNC))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	*function = (CUfunction)kernel;
	return cu_leave(CUDA_SUCCESS);
}

/* ---- functions ---- */

static CUresult enter_func(struct CUfunc_st *func, struct CUctx_st **ret_ctx)
{
	CUresult result = cu_enter(ret_ctx);

	if (result != CUDA_SUCCESS)
		return result;
	return cu_handle_is_locked(func, CU_KIND_FUNC) ? CUDA_SUCCESS
						       : cu_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult get_attribute(int *value, CUfunction_attribute attribute, struct CUfunc_st *func)
{
	struct CUctx_st *ctx;
	CUresult result = value ? enter_func(func, &ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (attribute < 0 || attribute >= (int)GANTRY_FUNCTION_ATTRIBUTES ||
	    attribute >= CU_FUNC_ATTRIBUTE_MAX)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	*value = func->attributes[attribute];
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction func)
{
	return get_attribute(value, attribute, func);
}

CUresult CUDAAPI cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
				      CUdevice dev)
{
	struct cu_device *d;
	CUresult result = cu_device_get(dev, &d);

	return result == CUDA_SUCCESS ? get_attribute(value, attribute, (struct CUfunc_st *)kernel)
				      : result;
}

static CUresult set_attribute(struct CUfunc_st *func, CUfunction_attribute attribute, int value)
{
	struct gantry_reply_function now;
	struct CUctx_st *ctx;
	CUresult result = enter_func(func, &ctx);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_func_ask(ctx->dev, func, GANTRY_ASK_SET, (uint64_t)attribute,
			     (uint64_t)(int64_t)value, NULL, 0);
	if (result == CUDA_SUCCESS)
		result = cu_func_ask(ctx->dev, func, GANTRY_ASK_KERNEL, 0, 0, &now, sizeof(now));
	if (result == CUDA_SUCCESS)
		memcpy(func->attributes, now.attributes, sizeof(func->attributes));
	return cu_leave(result);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction func, CUfunction_attribute attribute, int value)
{
	return set_attribute(func, attribute, value);
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
				      CUdevice dev)
{
	struct cu_device *d;
	CUresult result = cu_device_get(dev, &d);

	return result == CUDA_SUCCESS ? set_attribute((struct CUfunc_st *)kernel, attribute, value)
				      : result;
}

/* "A preference". */
CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction func, CUfunc_cache config)
{
	struct CUctx_st *ctx;
	CUresult result = enter_func(func, &ctx);

	(void)config;
	return result == CUDA_SUCCESS ? cu_leave(CUDA_SUCCESS) : result;
}

CUresult CUDAAPI cuFuncGetModule(CUmodule *module, CUfunction func)
{
	struct CUctx_st *ctx;
	CUresult result = module ? enter_func(func, &ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*module = func->module;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
	struct CUmod_st *module;
	CUresult result = library ? cuFuncGetModule(&module, (CUfunction)kernel)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*library = (CUlibrary)module;
	return result;
}

/* What has a handle is loaded. */
CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction func)
{
	struct CUctx_st *ctx;
	CUresult result = state ? enter_func(func, &ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncLoad(CUfunction func)
{
	struct CUctx_st *ctx;
	CUresult result = enter_func(func, &ctx);

	return result == CUDA_SUCCESS ? cu_leave(CUDA_SUCCESS) : result;
}

static CUresult get_name(const char **name, struct CUfunc_st *func)
{
	struct CUctx_st *ctx;
	CUresult result = name ? enter_func(func, &ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*name = func->name;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction func)
{
	return get_name(name, func);
}

CUresult CUDAAPI cuKernelGetName(const char **name, CUkernel kernel)
{
	return get_name(name, (struct CUfunc_st *)kernel);
}

static CUresult get_param(struct CUfunc_st *func, size_t index, size_t *off, size_t *bytes)
{
	struct CUctx_st *ctx;
	CUresult result = off ? enter_func(func, &ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (index >= func->nparams)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	*off = func->params[index].off;
	if (bytes)
		*bytes = func->params[index].bytes;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction func, size_t index, size_t *off, size_t *bytes)
{
	return get_param(func, index, off, bytes);
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *off, size_t *bytes)
{
	return get_param((struct CUfunc_st *)kernel, index, off, bytes);
}

/* ---- occupancy ---- */

static CUresult occupancy_locked(const struct CUctx_st *ctx, const struct CUfunc_st *func,
				 int nthreads, size_t shared, int *ret_nblocks)
{
	uint32_t nblocks = 0;
	CUresult result;

	if (nthreads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = cu_func_ask(ctx->dev, func, GANTRY_ASK_OCCUPANCY, (uint64_t)nthreads, shared,
			     &nblocks, sizeof(nblocks));
	if (result == CUDA_SUCCESS)
		*ret_nblocks = (int)nblocks;
	return result;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *nblocks, CUfunction func,
							     int nthreads, size_t shared)
{
	struct CUctx_st *ctx;
	CUresult result = nblocks ? enter_func(func, &ctx) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS
		       ? cu_leave(occupancy_locked(ctx, func, nthreads, shared, nblocks))
		       : result;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *nblocks, CUfunction func,
								      int nthreads, size_t shared,
								      unsigned int flags)
{
	if (flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	return cuOccupancyMaxActiveBlocksPerMultiprocessor(nblocks, func, nthreads, shared);
}

/* Clusters as the launch has them, or as the kernel was compiled for; one block each where neither says. */
static uint64_t cluster_of(const struct CUfunc_st *func, const CUlaunchConfig *config)
{
	const int32_t *has = func->attributes;

	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			return GANTRY_ASK_BLOCK(config->attrs[i].value.clusterDim.x & 0xffff,
						config->attrs[i].value.clusterDim.y & 0xffff,
						config->attrs[i].value.clusterDim.z & 0xffff);
	if (has[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] <= 0)
		return GANTRY_ASK_BLOCK(1, 1, 1);
	return GANTRY_ASK_BLOCK(has[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH],
				has[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT],
				has[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH]);
}

static CUresult ask_clusters(int *ret_n, CUfunction func, const CUlaunchConfig *config, bool size)
{
	struct gantry_ask_numbers numbers;
	struct CUctx_st *ctx;
	uint32_t n = 0;
	CUresult result = ret_n && config && (config->attrs || !config->numAttrs) &&
					  config->blockDimX <= 1024 && config->blockDimY <= 1024 &&
					  config->blockDimZ <= 1024
				  ? enter_func(func, &ctx)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	numbers.number[0] = GANTRY_ASK_BLOCK(config->blockDimX, config->blockDimY,
					     config->blockDimZ);
	numbers.number[1] = config->sharedMemBytes;
	numbers.number[2] = size ? 0 : cluster_of(func, config);
	result = numbers.number[2] || size
			 ? cu_result(gantry_device_ask(cu.session, GANTRY_ASK_CLUSTERS,
						       ctx->dev->index, func->kernel, numbers, &n,
						       sizeof(n)))
			 : CUDA_ERROR_INVALID_CLUSTER_SIZE;
	if (result == CUDA_SUCCESS)
		*ret_n = (int)n;
	return cu_leave(result);
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int *nclusters, CUfunction func,
					      const CUlaunchConfig *config)
{
	return ask_clusters(nclusters, func, config, false);
}

CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int *nblocks, CUfunction func,
						    const CUlaunchConfig *config)
{
	return ask_clusters(nblocks, func, config, true);
}

/* The block size, in whole warps, with which most threads are at work on a multiprocessor. */
static CUresult best_block(int *min_grid, int *block, CUfunction func, CUoccupancyB2DSize shared_of,
			   size_t shared, int limit)
{
	int best = 0, best_threads = 0, best_blocks = 0, nblocks, max, units;
	struct CUctx_st *ctx;
	CUresult result = min_grid && block && limit >= 0 ? enter_func(func, &ctx)
							  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	max = func->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
	units = ctx->dev->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
	(void)cu_leave(CUDA_SUCCESS);
	if (limit > 0 && limit < max)
		max = limit;
	for (int n = max < 32 ? max : max - max % 32; n > 0 && result == CUDA_SUCCESS; n -= 32) {
		/* The program's function may call CUDA: nothing of ours is held. */
		size_t bytes = shared_of ? shared_of(n) : shared;

		result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&nblocks, func, n, bytes);
		if (result != CUDA_SUCCESS || nblocks * n <= best_threads)
			continue;
		best = n;
		best_blocks = nblocks;
		best_threads = nblocks * n;
	}
	if (result == CUDA_SUCCESS && best == 0)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		*block = best;
		*min_grid = best_blocks * units;
	}
	return result;
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int *min_grid, int *block, CUfunction func,
						  CUoccupancyB2DSize shared_of, size_t shared,
						  int limit)
{
	return best_block(min_grid, block, func, shared_of, shared, limit);
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block,
							   CUfunction func,
							   CUoccupancyB2DSize shared_of,
							   size_t shared, int limit,
							   unsigned int flags)
{
	if (flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	return best_block(min_grid, block, func, shared_of, shared, limit);
}

/* ---- streams and events as objects ---- */

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	struct CUctx_st *ctx;
	CUresult result = stream && !(flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
				  ? cu_enter(&ctx)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	/* Out of the range it is brought into it, as CUDA says. */
	priority = GANTRY_MAX(GANTRY_MIN(priority, 0), -cu.props.priority_max);
	return cu_leave(cu_stream_new_locked(ctx, flags, priority, stream));
}

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	if (!cu_handle_is_locked(stream, CU_KIND_STREAM) || stream == stream->ctx->legacy ||
	    stream->is_default)
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	cu_stream_end_locked(stream);
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventCreate(CUevent *event, unsigned int flags)
{
	const unsigned int known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING |
				   CU_EVENT_INTERPROCESS;
	struct CUevent_st *made;
	struct CUctx_st *ctx;
	CUresult result;

	if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
		return CUDA_ERROR_INVALID_VALUE;
	result = event && !(flags & ~known) ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	made = calloc(1, sizeof(*made));
	if (made && !(flags & CU_EVENT_DISABLE_TIMING))
		made->cell = cu_cell_take_locked();
	if (!made || (!made->cell && !(flags & CU_EVENT_DISABLE_TIMING)) ||
	    !cu_handle_add_locked(made, CU_KIND_EVENT)) {
		cu_cell_put_locked(made ? made->cell : NULL, 0);
		free(made);
		return cu_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	made->ctx = ctx;
	made->flags = flags;
	if (flags & CU_EVENT_INTERPROCESS)
		result = cu_shared_event_new_locked(ctx, made);
	if (result != CUDA_SUCCESS)
		cu_event_end_locked(made);
	else
		*event = made;
	return cu_leave(result);
}

/* With the lock on success. */
static CUresult enter_event(CUevent event)
{
	CUresult result = cu_check();

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	return cu_handle_is_locked(event, CU_KIND_EVENT) ? CUDA_SUCCESS
							 : cu_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuEventDestroy(CUevent event)
{
	CUresult result = enter_event(event);

	if (result != CUDA_SUCCESS)
		return result;
	cu_event_end_locked(event);
	return cu_leave(CUDA_SUCCESS);
}

static CUresult query_locked(const struct CUevent_st *event)
{
	int r = event->ticket ? gantry_test(cu.session, event->ticket) : 1;

	if (event->captured)
		return cu_capture_asked_locked(event);
	if (cu_event_is_anothers(event))
		return cu_mirror_pull_locked(cu_shared_event_query_locked(event));
	return r == 0 ? CUDA_ERROR_NOT_READY : cu_mirror_pull_locked(cu_result(r));
}

CUresult CUDAAPI cuEventQuery(CUevent event)
{
	CUresult result = enter_event(event);

	return result == CUDA_SUCCESS ? cu_leave(query_locked(event)) : result;
}

CUresult CUDAAPI cuEventSynchronize(CUevent event)
{
	CUresult result = enter_event(event);

	if (result != CUDA_SUCCESS)
		return result;
	if (event->captured)
		return cu_leave(cu_capture_asked_locked(event));
	result = cu_event_is_anothers(event) ? cu_shared_event_wait_locked(event)
					     : cu_ticket_wait_locked(event->ticket);
	return cu_leave(cu_mirror_pull_locked(result));
}

static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
	CUresult result = ms ? enter_event(start) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(end, CU_KIND_EVENT) || !start->is_recorded || !end->is_recorded ||
	    !start->cell || !end->cell || start->ctx->dev != end->ctx->dev)
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	result = query_locked(start);
	if (result == CUDA_SUCCESS)
		result = query_locked(end);
	if (result == CUDA_SUCCESS)
		*ms = (float)((double)(int64_t)(*cu_cell_word(end->cell) -
						*cu_cell_word(start->cell)) /
			      1e6);
	return cu_leave(result);
}

CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return elapsed(ms, start, end);
}

#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end);
CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return elapsed(ms, start, end);
}
