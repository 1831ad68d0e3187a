/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for AMD's runtime over NVIDIA's driver: the binary interface of libamdhip64, as far as devices/hip calls it, so
 * that the unmodified backend works on a real GPU.
 *
 * The driver is loaded at run time: libcuda.so.1, or what HIPCUDA_DRIVER names. It says that each GPU is a gfx90a; a code
 * object for it has PTX in place of AMD's machine code (payload.h). HIP's errors have the driver's numbers. HIP has a GPU for
 * each thread and no contexts: a primary context is made for each GPU, and made current where a thread calls for it first.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/driver.h"
#include "devices/hip/driver.h"
#include "tests/fakehip/payload.h"

#define EXPORT	  __attribute__((visibility("default")))
#define MOST_GPUS 16

#define DECLARE(member, symbol, args) EXPORT gantry_hip_result symbol args;
GANTRY_HIP_FUNCTIONS(DECLARE)
GANTRY_HIP_OPTIONAL(DECLARE)
#undef DECLARE

static struct {
	pthread_mutex_t lock;
	bool tried;
	gantry_hip_result result; /* of trying */
	int ngpus;
	CUdevice devices[MOST_GPUS];
	CUcontext contexts[MOST_GPUS];
	struct gantry_cuda_driver cu;
	__typeof__(cuStreamAddCallback)
		*add_callback; /* NULL: host functions, which hear of no errors */
	__typeof__(cuMemGetInfo) *mem_info;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local int current;

static void *find(void *library, const char *symbol)
{
	void *address = dlsym(library, symbol);

	if (!address)
		fprintf(stderr, "hip over cuda: the driver has no %s\n", symbol);
	return address;
}

static bool load(void)
{
	const char *path = getenv("HIPCUDA_DRIVER");
	void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	bool whole = library != NULL;
	void *address;

	if (!library)
		return false;
#define RESOLVE(member, symbol)                              \
	address = whole ? find(library, #symbol) : NULL;     \
	memcpy(&state.cu.member, &address, sizeof(address)); \
	whole = whole && address;
	GANTRY_CUDA_FUNCTIONS(RESOLVE)
#undef RESOLVE
	address = dlsym(library, "cuStreamAddCallback");
	memcpy(&state.add_callback, &address, sizeof(address));
	address = dlsym(library, "cuMemGetInfo_v2");
	memcpy(&state.mem_info, &address, sizeof(address));
	return whole;
}

static gantry_hip_result start_locked(void)
{
	CUresult r;

	if (!load())
		return GANTRY_HIP_NO_DEVICE;
	r = state.cu.Init(0);
	if (r == CUDA_SUCCESS)
		r = state.cu.DeviceGetCount(&state.ngpus);
	if (state.ngpus > MOST_GPUS)
		state.ngpus = MOST_GPUS;
	for (int i = 0; i < state.ngpus && r == CUDA_SUCCESS; i++)
		r = state.cu.DeviceGet(&state.devices[i], i);
	if (r == CUDA_SUCCESS && state.ngpus == 0)
		return GANTRY_HIP_NO_DEVICE;
	return (gantry_hip_result)r;
}

static gantry_hip_result start(void)
{
	pthread_mutex_lock(&state.lock);
	if (!state.tried)
		state.result = start_locked();
	state.tried = true;
	pthread_mutex_unlock(&state.lock);
	return state.result;
}

static gantry_hip_result context_of(int gpu, CUcontext *ret_context)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&state.lock);
	/* As backend cuda has them: who waits sleeps. Refused where the process has one already: it stays. */
	if (!state.contexts[gpu]) {
		(void)state.cu.DevicePrimaryCtxSetFlags(state.devices[gpu],
							CU_CTX_SCHED_BLOCKING_SYNC);
		r = state.cu.DevicePrimaryCtxRetain(&state.contexts[gpu], state.devices[gpu]);
	}
	*ret_context = state.contexts[gpu];
	pthread_mutex_unlock(&state.lock);
	return (gantry_hip_result)r;
}

/*
 * Before each call: the driver is there, and the thread's GPU has its context. Nothing else of the process sets one on a thread
 * that has called this library: a call of the driver's for each of ours would be the stand-in's cost, and none of HIP's.
 */
static gantry_hip_result enter(void)
{
	static _Thread_local int of = -1;
	CUcontext context;
	gantry_hip_result r;

	if (of == current)
		return GANTRY_HIP_SUCCESS;
	r = start();
	if (r == GANTRY_HIP_SUCCESS)
		r = context_of(current, &context);
	if (r == GANTRY_HIP_SUCCESS)
		r = (gantry_hip_result)state.cu.CtxSetCurrent(context);
	of = r == GANTRY_HIP_SUCCESS ? current : -1;
	return r;
}

#define CALL(call)                                \
	do {                                      \
		gantry_hip_result r_ = enter();   \
                                                  \
		if (r_ != GANTRY_HIP_SUCCESS)     \
			return r_;                \
		return (gantry_hip_result)(call); \
	} while (0)
#define PTR(address)   ((CUdeviceptr)(uintptr_t)(address))
#define STREAM(stream) ((CUstream)(stream))

/* ---- GPUs ---- */

gantry_hip_result hipInit(unsigned flags)
{
	(void)flags;
	return start();
}

gantry_hip_result hipRuntimeGetVersion(int *version)
{
	*version = 60240092;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipGetDeviceCount(int *count)
{
	gantry_hip_result r = start();

	*count = r == GANTRY_HIP_SUCCESS ? state.ngpus : 0;
	return r;
}

static bool has(int device)
{
	return start() == GANTRY_HIP_SUCCESS && device >= 0 && device < state.ngpus;
}

gantry_hip_result hipSetDevice(int device)
{
	if (!has(device))
		return GANTRY_HIP_INVALID_DEVICE;
	current = device;
	return enter();
}

gantry_hip_result hipDeviceGetName(char *name, int len, int device)
{
	return has(device)
		       ? (gantry_hip_result)state.cu.DeviceGetName(name, len, state.devices[device])
		       : GANTRY_HIP_INVALID_DEVICE;
}

gantry_hip_result hipDeviceTotalMem(size_t *bytes, int device)
{
	return has(device)
		       ? (gantry_hip_result)state.cu.DeviceTotalMem(bytes, state.devices[device])
		       : GANTRY_HIP_INVALID_DEVICE;
}

gantry_hip_result hipDeviceGetAttribute(int *value, int attribute, int device)
{
	static const struct {
		int hip;
		CUdevice_attribute cuda;
	} same[] = {
		{ GANTRY_HIP_ATTR_UNITS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT },
		{ GANTRY_HIP_ATTR_MAX_THREADS_PER_BLOCK,
		  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK },
		{ GANTRY_HIP_ATTR_SHARED_PER_BLOCK,
		  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK },
		{ GANTRY_HIP_ATTR_VIRTUAL_MEMORY,
		  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED },
	};

	for (size_t i = 0; has(device) && i < sizeof(same) / sizeof(same[0]); i++)
		if (same[i].hip == attribute)
			return (gantry_hip_result)state.cu.DeviceGetAttribute(
				value, same[i].cuda, state.devices[device]);
	return GANTRY_HIP_INVALID_VALUE;
}

gantry_hip_result hipDeviceGetPCIBusId(char *id, int len, int device)
{
	return has(device) ? (gantry_hip_result)state.cu.DeviceGetPCIBusId(id, len,
									   state.devices[device])
			   : GANTRY_HIP_INVALID_DEVICE;
}

gantry_hip_result hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	CALL(state.cu.CtxGetStreamPriorityRange(least, greatest));
}

gantry_hip_result hipDeviceCanAccessPeer(int *can, int device, int peer)
{
	if (!has(device) || !has(peer))
		return GANTRY_HIP_INVALID_DEVICE;
	return (gantry_hip_result)state.cu.DeviceCanAccessPeer(can, state.devices[device],
							       state.devices[peer]);
}

static gantry_hip_result properties(void *to, size_t bytes, size_t arch_off, int device)
{
	if (!has(device))
		return GANTRY_HIP_INVALID_DEVICE;
	memset(to, 0, bytes);
	(void)snprintf((char *)to + arch_off, 256, "gfx90a:sramecc+:xnack-");
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipGetDevicePropertiesR0600(void *to, int device)
{
	return properties(to, 1472, 1160, device);
}

gantry_hip_result hipGetDeviceProperties(void *to, int device)
{
	return properties(to, 792, 396, device);
}

/* ---- memory ---- */

gantry_hip_result hipMemGetInfo(size_t *available, size_t *total)
{
	CALL(state.mem_info ? state.mem_info(available, total) : CUDA_ERROR_NOT_SUPPORTED);
}

gantry_hip_result hipMalloc(void **address, size_t bytes)
{
	*address = NULL;
	CALL(bytes ? state.cu.MemAlloc((CUdeviceptr *)address, bytes) : CUDA_SUCCESS);
}

gantry_hip_result hipFree(void *address)
{
	CALL(address ? state.cu.MemFree(PTR(address)) : CUDA_SUCCESS);
}

gantry_hip_result hipHostMalloc(void **address, size_t bytes, unsigned flags)
{
	CALL(state.cu.MemHostAlloc(address, bytes, flags));
}

gantry_hip_result hipHostFree(void *address)
{
	CALL(state.cu.MemFreeHost(address));
}

gantry_hip_result hipHostRegister(void *address, size_t bytes, unsigned flags)
{
	CALL(state.cu.MemHostRegister(address, bytes, flags));
}

gantry_hip_result hipHostUnregister(void *address)
{
	CALL(state.cu.MemHostUnregister(address));
}

gantry_hip_result hipHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	CALL(state.cu.MemHostGetDevicePointer((CUdeviceptr *)device, host, flags));
}

gantry_hip_result hipMemcpyAsync(void *dst, const void *src, size_t bytes, int kind,
				 struct gantry_hip_stream *stream)
{
	switch (kind) {
	case GANTRY_HIP_HOST_TO_DEVICE:
		CALL(state.cu.MemcpyHtoDAsync(PTR(dst), src, bytes, STREAM(stream)));
	case GANTRY_HIP_DEVICE_TO_HOST:
		CALL(state.cu.MemcpyDtoHAsync(dst, PTR(src), bytes, STREAM(stream)));
	default:
		CALL(state.cu.MemcpyDtoDAsync(PTR(dst), PTR(src), bytes, STREAM(stream)));
	}
}

gantry_hip_result hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
				     size_t bytes, struct gantry_hip_stream *stream)
{
	CUcontext to, from;
	gantry_hip_result r;

	if (!has(dst_device) || !has(src_device))
		return GANTRY_HIP_INVALID_DEVICE;
	r = context_of(dst_device, &to);
	if (r == GANTRY_HIP_SUCCESS)
		r = context_of(src_device, &from);
	if (r != GANTRY_HIP_SUCCESS)
		return r;
	CALL(state.cu.MemcpyPeerAsync(PTR(dst), to, PTR(src), from, bytes, STREAM(stream)));
}

gantry_hip_result hipMemsetAsync(void *dst, int value, size_t bytes,
				 struct gantry_hip_stream *stream)
{
	CALL(state.cu.MemsetD8Async(PTR(dst), (unsigned char)value, bytes, STREAM(stream)));
}

gantry_hip_result hipMemsetD16Async(void *dst, unsigned short value, size_t count,
				    struct gantry_hip_stream *stream)
{
	CALL(state.cu.MemsetD16Async(PTR(dst), value, count, STREAM(stream)));
}

gantry_hip_result hipMemsetD32Async(void *dst, int value, size_t count,
				    struct gantry_hip_stream *stream)
{
	CALL(state.cu.MemsetD32Async(PTR(dst), (unsigned)value, count, STREAM(stream)));
}

/* ---- memory behind descriptors ---- */

static CUmemLocation location_of(const struct gantry_hip_location *location)
{
	return (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE,
				.id = state.devices[location->id] };
}

static CUmemAllocationProp prop_of(const struct gantry_hip_prop *prop)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = location_of(&prop->location),
	};
}

#define HANDLE(handle) ((CUmemGenericAllocationHandle)(uintptr_t)(handle))

gantry_hip_result hipMemGetAllocationGranularity(size_t *granularity,
						 const struct gantry_hip_prop *prop, int option)
{
	CUmemAllocationProp wanted = prop_of(prop);

	CALL(state.cu.MemGetAllocationGranularity(granularity, &wanted,
						  (CUmemAllocationGranularity_flags)option));
}

gantry_hip_result hipMemAddressReserve(void **address, size_t bytes, size_t align, void *wish,
				       unsigned long long flags)
{
	CALL(state.cu.MemAddressReserve((CUdeviceptr *)address, bytes, align, PTR(wish), flags));
}

gantry_hip_result hipMemAddressFree(void *address, size_t bytes)
{
	CALL(state.cu.MemAddressFree(PTR(address), bytes));
}

gantry_hip_result hipMemCreate(struct gantry_hip_handle **handle, size_t bytes,
			       const struct gantry_hip_prop *prop, unsigned long long flags)
{
	CUmemAllocationProp wanted = prop_of(prop);

	CALL(state.cu.MemCreate((CUmemGenericAllocationHandle *)handle, bytes, &wanted, flags));
}

gantry_hip_result hipMemRelease(struct gantry_hip_handle *handle)
{
	CALL(state.cu.MemRelease(HANDLE(handle)));
}

gantry_hip_result hipMemMap(void *address, size_t bytes, size_t off,
			    struct gantry_hip_handle *handle, unsigned long long flags)
{
	CALL(state.cu.MemMap(PTR(address), bytes, off, HANDLE(handle), flags));
}

gantry_hip_result hipMemUnmap(void *address, size_t bytes)
{
	CALL(state.cu.MemUnmap(PTR(address), bytes));
}

gantry_hip_result hipMemSetAccess(void *address, size_t bytes,
				  const struct gantry_hip_access *access, size_t count)
{
	CUmemAccessDesc wanted[MOST_GPUS];

	if (count > MOST_GPUS)
		return GANTRY_HIP_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		wanted[i] = (CUmemAccessDesc){ .location = location_of(&access[i].location),
					       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CALL(state.cu.MemSetAccess(PTR(address), bytes, wanted, count));
}

gantry_hip_result hipMemExportToShareableHandle(void *os_handle, struct gantry_hip_handle *handle,
						int type, unsigned long long flags)
{
	CALL(state.cu.MemExportToShareableHandle(os_handle, HANDLE(handle),
						 (CUmemAllocationHandleType)type, flags));
}

/* By address, as the version says that it has. */
gantry_hip_result hipMemImportFromShareableHandle(struct gantry_hip_handle **handle,
						  void *os_handle, int type)
{
	void *fd = (void *)(intptr_t) * (const int *)os_handle;

	CALL(state.cu.MemImportFromShareableHandle((CUmemGenericAllocationHandle *)handle, fd,
						   (CUmemAllocationHandleType)type));
}

/* ---- streams and events ---- */

gantry_hip_result hipStreamCreateWithPriority(struct gantry_hip_stream **stream, unsigned flags,
					      int priority)
{
	CALL(state.cu.StreamCreateWithPriority((CUstream *)stream, flags, priority));
}

gantry_hip_result hipStreamDestroy(struct gantry_hip_stream *stream)
{
	CALL(state.cu.StreamDestroy(STREAM(stream)));
}

gantry_hip_result hipStreamSynchronize(struct gantry_hip_stream *stream)
{
	CALL(state.cu.StreamSynchronize(STREAM(stream)));
}

struct callback {
	gantry_hip_callback *fn;
	struct gantry_hip_stream *stream;
	void *user;
};

static void call(struct callback *callback, CUresult status)
{
	callback->fn(callback->stream, (gantry_hip_result)status, callback->user);
	free(callback);
}

static void CUDA_CB on_callback(CUstream stream, CUresult status, void *user)
{
	(void)stream;
	call(user, status);
}

static void CUDA_CB on_host_function(void *user)
{
	call(user, CUDA_SUCCESS);
}

gantry_hip_result hipStreamAddCallback(struct gantry_hip_stream *stream, gantry_hip_callback *fn,
				       void *user, unsigned flags)
{
	gantry_hip_result r = enter();
	struct callback *callback = malloc(sizeof(*callback));

	if (!callback || r != GANTRY_HIP_SUCCESS) {
		free(callback);
		return r != GANTRY_HIP_SUCCESS ? r : GANTRY_HIP_OUT_OF_MEMORY;
	}
	*callback = (struct callback){ fn, stream, user };
	r = (gantry_hip_result)(state.add_callback
					? state.add_callback(STREAM(stream), on_callback, callback,
							     flags)
					: state.cu.LaunchHostFunc(STREAM(stream), on_host_function,
								  callback));
	if (r != GANTRY_HIP_SUCCESS)
		free(callback);
	return r;
}

gantry_hip_result hipStreamWriteValue32(struct gantry_hip_stream *stream, void *address,
					uint32_t value, unsigned flags)
{
	(void)flags;
	CALL(state.cu.StreamWriteValue32(STREAM(stream), PTR(address), value,
					 CU_STREAM_WRITE_VALUE_DEFAULT));
}

gantry_hip_result hipStreamQuery(struct gantry_hip_stream *stream)
{
	CALL(state.cu.StreamQuery(STREAM(stream)));
}

gantry_hip_result hipEventCreateWithFlags(struct gantry_hip_event **event, unsigned flags)
{
	CALL(state.cu.EventCreate((CUevent *)event, flags));
}

gantry_hip_result hipEventDestroy(struct gantry_hip_event *event)
{
	CALL(state.cu.EventDestroy((CUevent)event));
}

gantry_hip_result hipEventRecord(struct gantry_hip_event *event, struct gantry_hip_stream *stream)
{
	CALL(state.cu.EventRecord((CUevent)event, STREAM(stream)));
}

gantry_hip_result hipEventQuery(struct gantry_hip_event *event)
{
	CALL(state.cu.EventQuery((CUevent)event));
}

gantry_hip_result hipEventElapsedTime(float *ms, struct gantry_hip_event *from,
				      struct gantry_hip_event *to)
{
	CALL(state.cu.EventElapsedTime(ms, (CUevent)from, (CUevent)to));
}

/* ---- code ---- */

gantry_hip_result hipModuleLoadData(struct gantry_hip_module **module, const void *image)
{
	const char *ptx = fakehip_payload(image);

	if (!ptx)
		return GANTRY_HIP_NO_BINARY_FOR_GPU; /* AMD's machine code */
	CALL(state.cu.ModuleLoadDataEx((CUmodule *)module, ptx, 0, NULL, NULL));
}

gantry_hip_result hipModuleUnload(struct gantry_hip_module *module)
{
	CALL(state.cu.ModuleUnload((CUmodule)module));
}

gantry_hip_result hipModuleGetFunction(struct gantry_hip_function **function,
				       struct gantry_hip_module *module, const char *name)
{
	CALL(state.cu.ModuleGetFunction((CUfunction *)function, (CUmodule)module, name));
}

gantry_hip_result hipFuncGetAttribute(int *value, int attribute,
				      struct gantry_hip_function *function)
{
	CALL(state.cu.FuncGetAttribute(value, (CUfunction_attribute)attribute,
				       (CUfunction)function));
}

gantry_hip_result hipModuleLaunchKernel(struct gantry_hip_function *function, unsigned grid_x,
					unsigned grid_y, unsigned grid_z, unsigned block_x,
					unsigned block_y, unsigned block_z, unsigned shared_bytes,
					struct gantry_hip_stream *stream, void **params,
					void **extra)
{
	if (extra)
		return GANTRY_HIP_INVALID_VALUE;
	CALL(state.cu.LaunchKernel((CUfunction)function, grid_x, grid_y, grid_z, block_x, block_y,
				   block_z, shared_bytes, STREAM(stream), params, NULL));
}

/* ---- graphs ---- */

static CUDA_KERNEL_NODE_PARAMS node_of(const struct gantry_hip_kernel_node *node)
{
	return (CUDA_KERNEL_NODE_PARAMS){
		.func = (CUfunction)node->function,
		.gridDimX = node->grid.x,
		.gridDimY = node->grid.y,
		.gridDimZ = node->grid.z,
		.blockDimX = node->block.x,
		.blockDimY = node->block.y,
		.blockDimZ = node->block.z,
		.sharedMemBytes = node->shared_bytes,
		.kernelParams = node->params,
		.extra = node->extra,
	};
}

gantry_hip_result hipGraphCreate(struct gantry_hip_graph **graph, unsigned flags)
{
	CALL(state.cu.GraphCreate((CUgraph *)graph, flags));
}

gantry_hip_result hipGraphDestroy(struct gantry_hip_graph *graph)
{
	CALL(state.cu.GraphDestroy((CUgraph)graph));
}

gantry_hip_result hipGraphAddKernelNode(struct gantry_hip_node **node,
					struct gantry_hip_graph *graph,
					struct gantry_hip_node *const *after, size_t nafter,
					const struct gantry_hip_kernel_node *params)
{
	CUDA_KERNEL_NODE_PARAMS wanted = node_of(params);

	CALL(state.cu.GraphAddKernelNode((CUgraphNode *)node, (CUgraph)graph,
					 (const CUgraphNode *)after, nafter, &wanted));
}

gantry_hip_result hipGraphInstantiate(struct gantry_hip_exec **exec, struct gantry_hip_graph *graph,
				      struct gantry_hip_node **at, char *log, size_t log_bytes)
{
	(void)at;
	(void)log;
	(void)log_bytes;
	CALL(state.cu.GraphInstantiate((CUgraphExec *)exec, (CUgraph)graph, 0));
}

gantry_hip_result hipGraphExecDestroy(struct gantry_hip_exec *exec)
{
	CALL(state.cu.GraphExecDestroy((CUgraphExec)exec));
}

gantry_hip_result hipGraphExecKernelNodeSetParams(struct gantry_hip_exec *exec,
						  struct gantry_hip_node *node,
						  const struct gantry_hip_kernel_node *params)
{
	CUDA_KERNEL_NODE_PARAMS wanted = node_of(params);

	CALL(state.cu.GraphExecKernelNodeSetParams((CUgraphExec)exec, (CUgraphNode)node, &wanted));
}

gantry_hip_result hipGraphLaunch(struct gantry_hip_exec *exec, struct gantry_hip_stream *stream)
{
	CALL(state.cu.GraphLaunch((CUgraphExec)exec, STREAM(stream)));
}
