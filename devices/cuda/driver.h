/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's driver library, loaded at run time: the functions that this backend calls, and what their
 * results mean to us.
 *
 * Trust: the library is the administrator's choice; what it returns is believed.
 * Threads: any. One library serves the whole process, and stays loaded: it has threads of its own.
 * Blocking: gantry_cuda_driver_open() may take some hundred milliseconds the first time.
 */
#ifndef GANTRY_DEVICES_CUDA_DRIVER_H
#define GANTRY_DEVICES_CUDA_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Member, symbol. The symbol is the one of the oldest driver served (12.4) whose declaration
 * in cuda.h has not changed since; newer headers give the plain names to newer functions.
 */
#define GANTRY_CUDA_FUNCTIONS(F)                                                 \
	F(Init, cuInit)                                                          \
	F(DriverGetVersion, cuDriverGetVersion)                                  \
	F(GetErrorName, cuGetErrorName)                                          \
	F(GetErrorString, cuGetErrorString)                                      \
	F(DeviceGetCount, cuDeviceGetCount)                                      \
	F(DeviceGet, cuDeviceGet)                                                \
	F(DeviceGetName, cuDeviceGetName)                                        \
	F(DeviceGetUuid, cuDeviceGetUuid_v2)                                     \
	F(DeviceGetPCIBusId, cuDeviceGetPCIBusId)                                \
	F(DeviceGetAttribute, cuDeviceGetAttribute)                              \
	F(DeviceTotalMem, cuDeviceTotalMem_v2)                                   \
	F(DeviceCanAccessPeer, cuDeviceCanAccessPeer)                            \
	F(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                      \
	F(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)                 \
	F(DevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2)               \
	F(CtxSetCurrent, cuCtxSetCurrent)                                        \
	F(CtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange)                \
	F(CtxSetLimit, cuCtxSetLimit)                                            \
	F(CtxGetLimit, cuCtxGetLimit)                                            \
	F(StreamCreateWithPriority, cuStreamCreateWithPriority)                  \
	F(StreamDestroy, cuStreamDestroy_v2)                                     \
	F(StreamQuery, cuStreamQuery)                                            \
	F(StreamSynchronize, cuStreamSynchronize)                                \
	F(StreamWriteValue32, cuStreamWriteValue32_v2)                           \
	F(EventCreate, cuEventCreate)                                            \
	F(EventDestroy, cuEventDestroy_v2)                                       \
	F(EventRecord, cuEventRecord)                                            \
	F(EventQuery, cuEventQuery)                                              \
	F(EventElapsedTime, cuEventElapsedTime)                                  \
	F(LaunchHostFunc, cuLaunchHostFunc)                                      \
	F(GraphCreate, cuGraphCreate)                                            \
	F(GraphDestroy, cuGraphDestroy)                                          \
	F(GraphAddKernelNode, cuGraphAddKernelNode_v2)                           \
	F(GraphAddMemsetNode, cuGraphAddMemsetNode)                              \
	F(GraphAddMemcpyNode, cuGraphAddMemcpyNode)                              \
	F(GraphAddNode, cuGraphAddNode_v2)                                       \
	F(GraphConditionalHandleCreate, cuGraphConditionalHandleCreate)          \
	F(GraphInstantiate, cuGraphInstantiateWithFlags)                         \
	F(GraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2)       \
	F(GraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams)          \
	F(GraphExecDestroy, cuGraphExecDestroy)                                  \
	F(GraphLaunch, cuGraphLaunch)                                            \
	F(ModuleLoadDataEx, cuModuleLoadDataEx)                                  \
	F(LinkCreate, cuLinkCreate_v2)                                           \
	F(LinkAddData, cuLinkAddData_v2)                                         \
	F(LinkComplete, cuLinkComplete)                                          \
	F(LinkDestroy, cuLinkDestroy)                                            \
	F(ModuleUnload, cuModuleUnload)                                          \
	F(ModuleGetFunction, cuModuleGetFunction)                                \
	F(ModuleGetGlobal, cuModuleGetGlobal_v2)                                 \
	F(PointerGetAttribute, cuPointerGetAttribute)                            \
	F(FuncGetAttribute, cuFuncGetAttribute)                                  \
	F(FuncSetAttribute, cuFuncSetAttribute)                                  \
	F(FuncGetParamInfo, cuFuncGetParamInfo)                                  \
	F(LaunchKernel, cuLaunchKernel)                                          \
	F(LaunchKernelEx, cuLaunchKernelEx)                                      \
	F(LaunchCooperativeKernel, cuLaunchCooperativeKernel)                    \
	F(OccupancyMaxActiveBlocks, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
	F(OccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters)              \
	F(OccupancyMaxPotentialClusterSize, cuOccupancyMaxPotentialClusterSize)  \
	F(TensorMapEncodeTiled, cuTensorMapEncodeTiled)                          \
	F(TensorMapEncodeIm2col, cuTensorMapEncodeIm2col)                        \
	F(MemAlloc, cuMemAlloc_v2)                                               \
	F(MemFree, cuMemFree_v2)                                                 \
	F(MemAllocAsync, cuMemAllocAsync)                                        \
	F(MemFreeAsync, cuMemFreeAsync)                                          \
	F(MemHostAlloc, cuMemHostAlloc)                                          \
	F(MemFreeHost, cuMemFreeHost)                                            \
	F(MemHostRegister, cuMemHostRegister_v2)                                 \
	F(MemHostUnregister, cuMemHostUnregister)                                \
	F(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2)                 \
	F(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                                 \
	F(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                                 \
	F(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)                                 \
	F(MemcpyPeerAsync, cuMemcpyPeerAsync)                                    \
	F(Memcpy3DAsync, cuMemcpy3DAsync_v2)                                     \
	F(Array3DCreate, cuArray3DCreate_v2)                                     \
	F(ArrayDestroy, cuArrayDestroy)                                          \
	F(MipmappedArrayCreate, cuMipmappedArrayCreate)                          \
	F(MipmappedArrayGetLevel, cuMipmappedArrayGetLevel)                      \
	F(MipmappedArrayDestroy, cuMipmappedArrayDestroy)                        \
	F(TexObjectCreate, cuTexObjectCreate)                                    \
	F(TexObjectDestroy, cuTexObjectDestroy)                                  \
	F(SurfObjectCreate, cuSurfObjectCreate)                                  \
	F(SurfObjectDestroy, cuSurfObjectDestroy)                                \
	F(MemsetD8Async, cuMemsetD8Async)                                        \
	F(MemsetD16Async, cuMemsetD16Async)                                      \
	F(MemsetD32Async, cuMemsetD32Async)                                      \
	F(MemsetD2D8Async, cuMemsetD2D8Async)                                    \
	F(MemGetAllocationGranularity, cuMemGetAllocationGranularity)            \
	F(MemAddressReserve, cuMemAddressReserve)                                \
	F(MemAddressFree, cuMemAddressFree)                                      \
	F(MemCreate, cuMemCreate)                                                \
	F(MemRelease, cuMemRelease)                                              \
	F(MemMap, cuMemMap)                                                      \
	F(MemUnmap, cuMemUnmap)                                                  \
	F(MemSetAccess, cuMemSetAccess)                                          \
	F(MemExportToShareableHandle, cuMemExportToShareableHandle)              \
	F(MemImportFromShareableHandle, cuMemImportFromShareableHandle)

struct gantry_cuda_driver {
	int version; /* of CUDA as the driver has it: 12040 */
#define GANTRY_CUDA_MEMBER(member, symbol) __typeof__(symbol) *member;
	GANTRY_CUDA_FUNCTIONS(GANTRY_CUDA_MEMBER)
#undef GANTRY_CUDA_MEMBER
};

/*
 * Loads @path (NULL: libcuda.so.1) and starts it. *@ret_driver lives as long as the process. @visible
 * (may be NULL) is a MIG instance that must be the process's; it can only be chosen before the first
 * start. -ENODEV: no such library, too old, or no device; -EBUSY: the process has loaded another one.
 */
int gantry_cuda_driver_open(const char *path, const char *visible,
			    const struct gantry_cuda_driver **ret_driver, struct gantry_err *err);

/* 0 or the -errno nearest to @result. */
int gantry_cuda_errno(CUresult result);
/*
 * As gantry_err_set(), of a call of the driver that failed: "@what: CUDA_ERROR_...: sentence".
 * Returns gantry_cuda_errno(@result); 0 for success, with @err untouched.
 */
int gantry_cuda_err(const struct gantry_cuda_driver *driver, CUresult result, const char *what,
		    struct gantry_err *err);

#endif
