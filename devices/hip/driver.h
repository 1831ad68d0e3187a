/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD's HIP runtime as a library loaded at run time: what of its binary interface this backend calls, and what its
 * results mean to us.
 *
 * The declarations are ours, so that a build needs no headers of AMD's. Numbers and layouts are those of the public
 * headers of ROCm 5.2 to 6.2, which agree in all that is here; where they do not, the comment says so, and driver.c
 * hides it. ROCm 7 is taken by its public headers and is unproven.
 *
 * Trust: the library is the administrator's choice; what it returns is believed.
 * Threads: any. One library serves the whole process, and stays loaded: it has threads of its own.
 * Blocking: gantry_hip_driver_open() may take some hundred milliseconds the first time.
 */
#ifndef GANTRY_DEVICES_HIP_DRIVER_H
#define GANTRY_DEVICES_HIP_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* hipError_t */
enum gantry_hip_error {
	GANTRY_HIP_SUCCESS = 0,
	GANTRY_HIP_INVALID_VALUE = 1,
	GANTRY_HIP_OUT_OF_MEMORY = 2,
	GANTRY_HIP_NOT_INITIALIZED = 3,
	GANTRY_HIP_DEINITIALIZED = 4,
	GANTRY_HIP_INVALID_CONFIGURATION = 9,
	GANTRY_HIP_INVALID_DEVICE_FUNCTION = 98,
	GANTRY_HIP_NO_DEVICE = 100,
	GANTRY_HIP_INVALID_DEVICE = 101,
	GANTRY_HIP_INVALID_IMAGE = 200,
	GANTRY_HIP_MAP_FAILED = 205,
	GANTRY_HIP_NO_BINARY_FOR_GPU = 209,
	GANTRY_HIP_INVALID_KERNEL_FILE = 218,
	GANTRY_HIP_INVALID_SOURCE = 300,
	GANTRY_HIP_FILE_NOT_FOUND = 301,
	GANTRY_HIP_SYMBOL_NOT_FOUND = 302,
	GANTRY_HIP_OBJECT_INIT_FAILED = 303,
	GANTRY_HIP_INVALID_HANDLE = 400,
	GANTRY_HIP_NOT_FOUND = 500,
	GANTRY_HIP_NOT_READY = 600,
	GANTRY_HIP_ILLEGAL_ADDRESS = 700,
	GANTRY_HIP_LAUNCH_OUT_OF_RESOURCES = 701,
	GANTRY_HIP_LAUNCH_TIMED_OUT = 702,
	GANTRY_HIP_PEER_ACCESS_ALREADY_ENABLED = 704,
	GANTRY_HIP_ASSERT = 710,
	GANTRY_HIP_HOST_MEMORY_ALREADY_REGISTERED = 712,
	GANTRY_HIP_LAUNCH_FAILURE = 719,
	GANTRY_HIP_NOT_SUPPORTED = 801,
	GANTRY_HIP_UNKNOWN = 999,
};

/* hipDeviceAttribute_t */
enum gantry_hip_attribute {
	GANTRY_HIP_ATTR_MAX_BLOCK_X = 26,
	GANTRY_HIP_ATTR_MAX_GRID_X = 29,
	GANTRY_HIP_ATTR_MAX_THREADS_PER_BLOCK = 56,
	GANTRY_HIP_ATTR_UNITS = 63,
	GANTRY_HIP_ATTR_SHARED_PER_BLOCK = 74,
	GANTRY_HIP_ATTR_VIRTUAL_MEMORY = 89, /* since ROCm 6 */
};

/* hipMemcpyKind, and flags of the functions below. */
enum gantry_hip_flags {
	GANTRY_HIP_HOST_TO_DEVICE = 1,
	GANTRY_HIP_DEVICE_TO_HOST = 2,
	GANTRY_HIP_DEVICE_TO_DEVICE = 3,
	GANTRY_HIP_HOST_PORTABLE = 1,
	GANTRY_HIP_HOST_MAPPED = 2,
	GANTRY_HIP_STREAM_NON_BLOCKING = 1,
	GANTRY_HIP_EVENT_NO_TIME = 2,
	GANTRY_HIP_FUNC_MAX_THREADS = 0,
	GANTRY_HIP_FUNC_SHARED_BYTES = 1,
	GANTRY_HIP_HANDLE_FD = 1,
	GANTRY_HIP_PINNED = 1,
	GANTRY_HIP_ON_DEVICE = 1,
	GANTRY_HIP_READ_WRITE = 3,
};

/* hipMemLocation, hipMemAllocationProp (ROCm 6; 5 has another order, and is not asked), hipMemAccessDesc */
struct gantry_hip_location {
	int type;
	int id;
};

struct gantry_hip_prop {
	int type;
	int handle_type;
	struct gantry_hip_location location;
	void *win32;
	unsigned char compression;
	unsigned char rdma;
	unsigned short usage;
};

struct gantry_hip_access {
	struct gantry_hip_location location;
	int flags;
};

/* dim3, hipKernelNodeParams */
struct gantry_hip_size {
	unsigned x, y, z;
};

struct gantry_hip_kernel_node {
	struct gantry_hip_size block;
	void **extra;
	void *function; /* as a module has it; older runtimes refuse that */
	struct gantry_hip_size grid;
	void **params;
	unsigned shared_bytes;
};

/* hipIpcMemHandle_t and what else is opaque to us */
struct gantry_hip_stream;
struct gantry_hip_event;
struct gantry_hip_module;
struct gantry_hip_function;
struct gantry_hip_handle;
struct gantry_hip_graph;
struct gantry_hip_node;
struct gantry_hip_exec;

typedef int gantry_hip_result;
typedef void gantry_hip_callback(struct gantry_hip_stream *stream, gantry_hip_result status,
				 void *user);

/* Member, symbol, arguments. All return hipError_t. */
#define GANTRY_HIP_FUNCTIONS(F)                                                                   \
	F(Init, hipInit, (unsigned flags))                                                        \
	F(RuntimeGetVersion, hipRuntimeGetVersion, (int *version))                                \
	F(GetDeviceCount, hipGetDeviceCount, (int *count))                                        \
	F(SetDevice, hipSetDevice, (int device))                                                  \
	F(DeviceGetName, hipDeviceGetName, (char *name, int len, int device))                     \
	F(DeviceTotalMem, hipDeviceTotalMem, (size_t * bytes, int device))                        \
	F(DeviceGetAttribute, hipDeviceGetAttribute, (int *value, int attribute, int device))     \
	F(DeviceGetPCIBusId, hipDeviceGetPCIBusId, (char *id, int len, int device))               \
	F(DeviceGetStreamPriorityRange, hipDeviceGetStreamPriorityRange,                          \
	  (int *least, int *greatest))                                                            \
	F(DeviceCanAccessPeer, hipDeviceCanAccessPeer, (int *can, int device, int peer))          \
	F(MemGetInfo, hipMemGetInfo, (size_t * free, size_t * total))                             \
	F(Malloc, hipMalloc, (void **address, size_t bytes))                                      \
	F(Free, hipFree, (void *address))                                                         \
	F(HostMalloc, hipHostMalloc, (void **address, size_t bytes, unsigned flags))              \
	F(HostFree, hipHostFree, (void *address))                                                 \
	F(HostRegister, hipHostRegister, (void *address, size_t bytes, unsigned flags))           \
	F(HostUnregister, hipHostUnregister, (void *address))                                     \
	F(HostGetDevicePointer, hipHostGetDevicePointer,                                          \
	  (void **device, void *host, unsigned flags))                                            \
	F(MemcpyAsync, hipMemcpyAsync,                                                            \
	  (void *dst, const void *src, size_t bytes, int kind, struct gantry_hip_stream *stream)) \
	F(MemcpyPeerAsync, hipMemcpyPeerAsync,                                                    \
	  (void *dst, int dst_device, const void *src, int src_device, size_t bytes,              \
	   struct gantry_hip_stream *stream))                                                     \
	F(MemsetAsync, hipMemsetAsync,                                                            \
	  (void *dst, int value, size_t bytes, struct gantry_hip_stream *stream))                 \
	F(MemsetD16Async, hipMemsetD16Async,                                                      \
	  (void *dst, unsigned short value, size_t count, struct gantry_hip_stream *stream))      \
	F(MemsetD32Async, hipMemsetD32Async,                                                      \
	  (void *dst, int value, size_t count, struct gantry_hip_stream *stream))                 \
	F(StreamCreateWithPriority, hipStreamCreateWithPriority,                                  \
	  (struct gantry_hip_stream * *stream, unsigned flags, int priority))                     \
	F(StreamDestroy, hipStreamDestroy, (struct gantry_hip_stream * stream))                   \
	F(StreamSynchronize, hipStreamSynchronize, (struct gantry_hip_stream * stream))           \
	F(StreamAddCallback, hipStreamAddCallback,                                                \
	  (struct gantry_hip_stream * stream, gantry_hip_callback * callback, void *user,         \
	   unsigned flags))                                                                       \
	F(EventCreateWithFlags, hipEventCreateWithFlags,                                          \
	  (struct gantry_hip_event * *event, unsigned flags))                                     \
	F(EventDestroy, hipEventDestroy, (struct gantry_hip_event * event))                       \
	F(EventRecord, hipEventRecord,                                                            \
	  (struct gantry_hip_event * event, struct gantry_hip_stream * stream))                   \
	F(EventElapsedTime, hipEventElapsedTime,                                                  \
	  (float *ms, struct gantry_hip_event *from, struct gantry_hip_event *to))                \
	F(ModuleLoadData, hipModuleLoadData,                                                      \
	  (struct gantry_hip_module * *module, const void *image))                                \
	F(ModuleUnload, hipModuleUnload, (struct gantry_hip_module * module))                     \
	F(ModuleGetFunction, hipModuleGetFunction,                                                \
	  (struct gantry_hip_function * *function, struct gantry_hip_module * module,             \
	   const char *name))                                                                     \
	F(FuncGetAttribute, hipFuncGetAttribute,                                                  \
	  (int *value, int attribute, struct gantry_hip_function *function))                      \
	F(ModuleLaunchKernel, hipModuleLaunchKernel,                                              \
	  (struct gantry_hip_function * function, unsigned grid_x, unsigned grid_y,               \
	   unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,                 \
	   unsigned shared_bytes, struct gantry_hip_stream *stream, void **params, void **extra))

/* Members that are NULL where the library has none. The properties are read as bytes: see gantry_hip_arch(). */
#define GANTRY_HIP_OPTIONAL(F)                                                                     \
	F(StreamWriteValue32, hipStreamWriteValue32,                                               \
	  (struct gantry_hip_stream * stream, void *address, uint32_t value, unsigned flags))      \
	F(StreamQuery, hipStreamQuery, (struct gantry_hip_stream * stream))                        \
	F(EventQuery, hipEventQuery, (struct gantry_hip_event * event))                            \
	F(GraphCreate, hipGraphCreate, (struct gantry_hip_graph * *graph, unsigned flags))         \
	F(GraphDestroy, hipGraphDestroy, (struct gantry_hip_graph * graph))                        \
	F(GraphAddKernelNode, hipGraphAddKernelNode,                                               \
	  (struct gantry_hip_node * *node, struct gantry_hip_graph * graph,                        \
	   struct gantry_hip_node *const *after, size_t nafter,                                    \
	   const struct gantry_hip_kernel_node *params))                                           \
	F(GraphInstantiate, hipGraphInstantiate,                                                   \
	  (struct gantry_hip_exec * *exec, struct gantry_hip_graph * graph,                        \
	   struct gantry_hip_node * *at, char *log, size_t log_bytes))                             \
	F(GraphExecDestroy, hipGraphExecDestroy, (struct gantry_hip_exec * exec))                  \
	F(GraphExecKernelNodeSetParams, hipGraphExecKernelNodeSetParams,                           \
	  (struct gantry_hip_exec * exec, struct gantry_hip_node * node,                           \
	   const struct gantry_hip_kernel_node *params))                                           \
	F(GraphLaunch, hipGraphLaunch,                                                             \
	  (struct gantry_hip_exec * exec, struct gantry_hip_stream * stream))                      \
	F(GetDevicePropertiesR0600, hipGetDevicePropertiesR0600, (void *properties, int device))   \
	F(GetDeviceProperties, hipGetDeviceProperties, (void *properties, int device))             \
	F(MemGetAllocationGranularity, hipMemGetAllocationGranularity,                             \
	  (size_t * granularity, const struct gantry_hip_prop *prop, int option))                  \
	F(MemAddressReserve, hipMemAddressReserve,                                                 \
	  (void **address, size_t bytes, size_t align, void *wish, unsigned long long flags))      \
	F(MemAddressFree, hipMemAddressFree, (void *address, size_t bytes))                        \
	F(MemCreate, hipMemCreate,                                                                 \
	  (struct gantry_hip_handle * *handle, size_t bytes, const struct gantry_hip_prop *prop,   \
	   unsigned long long flags))                                                              \
	F(MemRelease, hipMemRelease, (struct gantry_hip_handle * handle))                          \
	F(MemMap, hipMemMap,                                                                       \
	  (void *address, size_t bytes, size_t off, struct gantry_hip_handle *handle,              \
	   unsigned long long flags))                                                              \
	F(MemUnmap, hipMemUnmap, (void *address, size_t bytes))                                    \
	F(MemSetAccess, hipMemSetAccess,                                                           \
	  (void *address, size_t bytes, const struct gantry_hip_access *access, size_t count))     \
	F(MemExport, hipMemExportToShareableHandle,                                                \
	  (void *os_handle, struct gantry_hip_handle *handle, int type, unsigned long long flags)) \
	F(MemImport, hipMemImportFromShareableHandle,                                              \
	  (struct gantry_hip_handle * *handle, void *os_handle, int type))

struct gantry_hip_driver {
	int version; /* of ROCm: 60240092 is 6.2 */
#define GANTRY_HIP_MEMBER(member, symbol, args) gantry_hip_result(*member) args;
	GANTRY_HIP_FUNCTIONS(GANTRY_HIP_MEMBER)
	GANTRY_HIP_OPTIONAL(GANTRY_HIP_MEMBER)
#undef GANTRY_HIP_MEMBER
};

/*
 * Loads @path (NULL: libamdhip64.so.7, .6, .5 or libamdhip64.so, the first there is) and starts it. *@ret_driver lives as
 * long as the process. -ENODEV: no such library, one without a function that is needed, or no GPU; -EBUSY: the process has
 * loaded another one.
 */
int gantry_hip_driver_open(const char *path, const struct gantry_hip_driver **ret_driver,
			   struct gantry_err *err);

/*
 * The name that code objects have for @device ("gfx90a:sramecc+:xnack-"). -ENODEV: neither layout of hipDeviceProp_t that is
 * known has one.
 */
int gantry_hip_arch(const struct gantry_hip_driver *driver, int device, char *arch, size_t cap,
		    struct gantry_err *err);
/* Can rows of kernels be launched as graphs? */
bool gantry_hip_has_graphs(const struct gantry_hip_driver *driver);
/* Does @device have memory behind descriptors? */
bool gantry_hip_has_windows(const struct gantry_hip_driver *driver, int device);
/* hipMemImportFromShareableHandle() with a descriptor, which runtimes before 7.1 take by address. */
gantry_hip_result gantry_hip_import(const struct gantry_hip_driver *driver, int fd,
				    struct gantry_hip_handle **ret_handle);
/* A number about the device, or @otherwise. */
int gantry_hip_attribute(const struct gantry_hip_driver *driver, int device, int attribute,
			 int otherwise);

/* Does @result say that something has failed that ran before, and that all that follows fails too? */
bool gantry_hip_sticky(gantry_hip_result result);
/* "hipErrorInvalidValue"; "a HIP error" for others than those above. */
const char *gantry_hip_error(gantry_hip_result result);
/* 0 or the -errno nearest to @result. */
int gantry_hip_errno(gantry_hip_result result);
/* As gantry_err_set(), of a call that failed: "@what: hipError... (n)". 0 for success, with @err untouched. */
int gantry_hip_err(gantry_hip_result result, const char *what, struct gantry_err *err);

#endif
