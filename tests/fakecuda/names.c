/* SPDX-License-Identifier: Apache-2.0 */
/* Names of results and of functions. */
#include <string.h>

#include "tests/fakecuda/fake.h"

/* clang-format off */
#define CODES(CODE) \
	CODE(CUDA_SUCCESS) \
	CODE(CUDA_ERROR_INVALID_VALUE) \
	CODE(CUDA_ERROR_OUT_OF_MEMORY) \
	CODE(CUDA_ERROR_NOT_INITIALIZED) \
	CODE(CUDA_ERROR_DEINITIALIZED) \
	CODE(CUDA_ERROR_PROFILER_DISABLED) \
	CODE(CUDA_ERROR_PROFILER_NOT_INITIALIZED) \
	CODE(CUDA_ERROR_PROFILER_ALREADY_STARTED) \
	CODE(CUDA_ERROR_PROFILER_ALREADY_STOPPED) \
	CODE(CUDA_ERROR_STUB_LIBRARY) \
	CODE(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER) \
	CODE(CUDA_ERROR_DEVICE_UNAVAILABLE) \
	CODE(CUDA_ERROR_NO_DEVICE) \
	CODE(CUDA_ERROR_INVALID_DEVICE) \
	CODE(CUDA_ERROR_DEVICE_NOT_LICENSED) \
	CODE(CUDA_ERROR_INVALID_IMAGE) \
	CODE(CUDA_ERROR_INVALID_CONTEXT) \
	CODE(CUDA_ERROR_CONTEXT_ALREADY_CURRENT) \
	CODE(CUDA_ERROR_MAP_FAILED) \
	CODE(CUDA_ERROR_UNMAP_FAILED) \
	CODE(CUDA_ERROR_ARRAY_IS_MAPPED) \
	CODE(CUDA_ERROR_ALREADY_MAPPED) \
	CODE(CUDA_ERROR_NO_BINARY_FOR_GPU) \
	CODE(CUDA_ERROR_ALREADY_ACQUIRED) \
	CODE(CUDA_ERROR_NOT_MAPPED) \
	CODE(CUDA_ERROR_NOT_MAPPED_AS_ARRAY) \
	CODE(CUDA_ERROR_NOT_MAPPED_AS_POINTER) \
	CODE(CUDA_ERROR_ECC_UNCORRECTABLE) \
	CODE(CUDA_ERROR_UNSUPPORTED_LIMIT) \
	CODE(CUDA_ERROR_CONTEXT_ALREADY_IN_USE) \
	CODE(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) \
	CODE(CUDA_ERROR_INVALID_PTX) \
	CODE(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT) \
	CODE(CUDA_ERROR_NVLINK_UNCORRECTABLE) \
	CODE(CUDA_ERROR_JIT_COMPILER_NOT_FOUND) \
	CODE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION) \
	CODE(CUDA_ERROR_JIT_COMPILATION_DISABLED) \
	CODE(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY) \
	CODE(CUDA_ERROR_INVALID_SOURCE) \
	CODE(CUDA_ERROR_FILE_NOT_FOUND) \
	CODE(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND) \
	CODE(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED) \
	CODE(CUDA_ERROR_OPERATING_SYSTEM) \
	CODE(CUDA_ERROR_INVALID_HANDLE) \
	CODE(CUDA_ERROR_ILLEGAL_STATE) \
	CODE(CUDA_ERROR_LOSSY_QUERY) \
	CODE(CUDA_ERROR_NOT_FOUND) \
	CODE(CUDA_ERROR_NOT_READY) \
	CODE(CUDA_ERROR_ILLEGAL_ADDRESS) \
	CODE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) \
	CODE(CUDA_ERROR_LAUNCH_TIMEOUT) \
	CODE(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING) \
	CODE(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) \
	CODE(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) \
	CODE(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE) \
	CODE(CUDA_ERROR_CONTEXT_IS_DESTROYED) \
	CODE(CUDA_ERROR_ASSERT) \
	CODE(CUDA_ERROR_TOO_MANY_PEERS) \
	CODE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) \
	CODE(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) \
	CODE(CUDA_ERROR_HARDWARE_STACK_ERROR) \
	CODE(CUDA_ERROR_ILLEGAL_INSTRUCTION) \
	CODE(CUDA_ERROR_MISALIGNED_ADDRESS) \
	CODE(CUDA_ERROR_INVALID_ADDRESS_SPACE) \
	CODE(CUDA_ERROR_INVALID_PC) \
	CODE(CUDA_ERROR_LAUNCH_FAILED) \
	CODE(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) \
	CODE(CUDA_ERROR_NOT_PERMITTED) \
	CODE(CUDA_ERROR_NOT_SUPPORTED) \
	CODE(CUDA_ERROR_SYSTEM_NOT_READY) \
	CODE(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) \
	CODE(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE) \
	CODE(CUDA_ERROR_MPS_CONNECTION_FAILED) \
	CODE(CUDA_ERROR_MPS_RPC_FAILURE) \
	CODE(CUDA_ERROR_MPS_SERVER_NOT_READY) \
	CODE(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED) \
	CODE(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED) \
	CODE(CUDA_ERROR_MPS_CLIENT_TERMINATED) \
	CODE(CUDA_ERROR_CDP_NOT_SUPPORTED) \
	CODE(CUDA_ERROR_CDP_VERSION_MISMATCH) \
	CODE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) \
	CODE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) \
	CODE(CUDA_ERROR_STREAM_CAPTURE_MERGE) \
	CODE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED) \
	CODE(CUDA_ERROR_STREAM_CAPTURE_UNJOINED) \
	CODE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION) \
	CODE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) \
	CODE(CUDA_ERROR_CAPTURED_EVENT) \
	CODE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) \
	CODE(CUDA_ERROR_TIMEOUT) \
	CODE(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) \
	CODE(CUDA_ERROR_EXTERNAL_DEVICE) \
	CODE(CUDA_ERROR_INVALID_CLUSTER_SIZE) \
	CODE(CUDA_ERROR_UNKNOWN)

#define CALLS(CALL) \
	CALL(cuInit) \
	CALL(cuDriverGetVersion) \
	CALL(cuDeviceGetCount) \
	CALL(cuDeviceGet) \
	CALL(cuDeviceGetName) \
	CALL(cuDeviceGetUuid) \
	CALL(cuDeviceTotalMem) \
	CALL(cuDeviceGetPCIBusId) \
	CALL(cuDeviceGetByPCIBusId) \
	CALL(cuDeviceGetAttribute) \
	CALL(cuDeviceCanAccessPeer) \
	CALL(cuDeviceGetP2PAttribute) \
	CALL(cuDevicePrimaryCtxRetain) \
	CALL(cuDevicePrimaryCtxRelease) \
	CALL(cuDevicePrimaryCtxReset) \
	CALL(cuDevicePrimaryCtxSetFlags) \
	CALL(cuDevicePrimaryCtxGetState) \
	CALL(cuCtxCreate) \
	CALL(cuCtxDestroy) \
	CALL(cuCtxSetCurrent) \
	CALL(cuCtxGetCurrent) \
	CALL(cuCtxPushCurrent) \
	CALL(cuCtxPopCurrent) \
	CALL(cuCtxGetDevice) \
	CALL(cuCtxGetFlags) \
	CALL(cuCtxSetFlags) \
	CALL(cuCtxGetStreamPriorityRange) \
	CALL(cuCtxEnablePeerAccess) \
	CALL(cuCtxSetLimit) \
	CALL(cuCtxGetLimit) \
	CALL(cuCtxSetCacheConfig) \
	CALL(cuCtxGetApiVersion) \
	CALL(cuCtxSynchronize) \
	CALL(cuMemAlloc) \
	CALL(cuMemAllocAsync) \
	CALL(cuMemFree) \
	CALL(cuMemFreeAsync) \
	CALL(cuMemGetInfo) \
	CALL(cuMemGetAddressRange) \
	CALL(cuMemHostAlloc) \
	CALL(cuMemAllocHost) \
	CALL(cuMemFreeHost) \
	CALL(cuMemHostRegister) \
	CALL(cuMemHostUnregister) \
	CALL(cuMemHostGetDevicePointer) \
	CALL(cuPointerGetAttribute) \
	CALL(cuMemGetAllocationGranularity) \
	CALL(cuMemCreate) \
	CALL(cuMemRelease) \
	CALL(cuMemExportToShareableHandle) \
	CALL(cuMemImportFromShareableHandle) \
	CALL(cuMemGetAllocationPropertiesFromHandle) \
	CALL(cuMemAddressReserve) \
	CALL(cuMemAddressFree) \
	CALL(cuMemMap) \
	CALL(cuMemUnmap) \
	CALL(cuMemSetAccess) \
	CALL(cuStreamCreateWithPriority) \
	CALL(cuStreamCreate) \
	CALL(cuStreamDestroy) \
	CALL(cuStreamSynchronize) \
	CALL(cuStreamQuery) \
	CALL(cuStreamGetPriority) \
	CALL(cuStreamGetFlags) \
	CALL(cuLaunchHostFunc) \
	CALL(cuEventCreate) \
	CALL(cuEventDestroy) \
	CALL(cuEventRecord) \
	CALL(cuEventRecordWithFlags) \
	CALL(cuStreamWaitEvent) \
	CALL(cuEventQuery) \
	CALL(cuEventSynchronize) \
	CALL(cuEventElapsedTime) \
	CALL(cuGraphCreate) \
	CALL(cuGraphDestroy) \
	CALL(cuGraphAddKernelNode) \
	CALL(cuGraphAddMemsetNode) \
	CALL(cuGraphAddMemcpyNode) \
	CALL(cuGraphAddNode) \
	CALL(cuGraphConditionalHandleCreate) \
	CALL(cuGraphInstantiateWithFlags) \
	CALL(cuGraphExecKernelNodeSetParams) \
	CALL(cuGraphExecMemsetNodeSetParams) \
	CALL(cuGraphExecDestroy) \
	CALL(cuGraphLaunch) \
	CALL(cuStreamWriteValue32) \
	CALL(cuStreamWriteValue64) \
	CALL(cuStreamWaitValue32) \
	CALL(cuStreamWaitValue64) \
	CALL(cuStreamBatchMemOp) \
	CALL(cuMemcpyAsync) \
	CALL(cuMemcpyHtoDAsync) \
	CALL(cuMemcpyDtoHAsync) \
	CALL(cuMemcpyDtoDAsync) \
	CALL(cuMemcpyPeerAsync) \
	CALL(cuMemcpy) \
	CALL(cuMemcpyHtoD) \
	CALL(cuMemcpyDtoH) \
	CALL(cuMemcpyDtoD) \
	CALL(cuMemcpyPeer) \
	CALL(cuMemcpy3DAsync) \
	CALL(cuArray3DCreate) \
	CALL(cuArrayDestroy) \
	CALL(cuMipmappedArrayCreate) \
	CALL(cuMipmappedArrayGetLevel) \
	CALL(cuMipmappedArrayDestroy) \
	CALL(cuTexObjectCreate) \
	CALL(cuTexObjectDestroy) \
	CALL(cuSurfObjectCreate) \
	CALL(cuSurfObjectDestroy) \
	CALL(cuMemsetD8Async) \
	CALL(cuMemsetD16Async) \
	CALL(cuMemsetD32Async) \
	CALL(cuMemsetD8) \
	CALL(cuMemsetD16) \
	CALL(cuMemsetD32) \
	CALL(cuMemsetD2D8Async) \
	CALL(cuMemsetD2D16Async) \
	CALL(cuMemsetD2D32Async) \
	CALL(cuModuleLoadDataEx) \
	CALL(cuModuleLoadData) \
	CALL(cuModuleLoadFatBinary) \
	CALL(cuModuleLoad) \
	CALL(cuModuleUnload) \
	CALL(cuModuleGetFunction) \
	CALL(cuModuleGetGlobal) \
	CALL(cuModuleGetLoadingMode) \
	CALL(cuFuncGetParamInfo) \
	CALL(cuFuncGetAttribute) \
	CALL(cuFuncSetAttribute) \
	CALL(cuFuncSetCacheConfig) \
	CALL(cuFuncGetName) \
	CALL(cuFuncGetModule) \
	CALL(cuFuncLoad) \
	CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
	CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
	CALL(cuOccupancyMaxPotentialBlockSize) \
	CALL(cuOccupancyMaxActiveClusters) \
	CALL(cuOccupancyMaxPotentialClusterSize) \
	CALL(cuTensorMapEncodeTiled) \
	CALL(cuTensorMapEncodeIm2col) \
	CALL(cuLaunchKernel) \
	CALL(cuLaunchKernelEx) \
	CALL(cuLaunchCooperativeKernel) \
	CALL(cuGetErrorName) \
	CALL(cuGetErrorString)
/* clang-format on */

static const struct {
	CUresult code;
	const char *name;
} codes[] = {
#define CODE(name) { name, #name },
	CODES(CODE)
#undef CODE
};

/* cuda.h renames some: a caller asks for the plain name. */
static const struct {
	const char *name;
	void *fn;
} calls[] = {
#define CALL(fn) { #fn, (void *)(fn) },
	CALLS(CALL)
#undef CALL
};

CUresult cuGetErrorName(CUresult code, const char **ret_name)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].code == code) {
			*ret_name = codes[i].name;
			return CUDA_SUCCESS;
		}
	*ret_name = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **ret_text)
{
	const char *name;
	CUresult r = cuGetErrorName(code, &name);

	*ret_text = r != CUDA_SUCCESS ? NULL : code == CUDA_SUCCESS ? "no error" : "a fake error";
	return r;
}

CUresult cuGetProcAddress(const char *symbol, void **ret_fn, int version, cuuint64_t flags,
			  CUdriverProcAddressQueryResult *ret_status)
{
	(void)version;
	(void)flags;
	*ret_fn = NULL;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (strcmp(calls[i].name, symbol) == 0)
			*ret_fn = calls[i].fn;
	if (ret_status)
		*ret_status = *ret_fn ? CU_GET_PROC_ADDRESS_SUCCESS
				      : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return *ret_fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
