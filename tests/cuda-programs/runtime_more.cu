/* SPDX-License-Identifier: Apache-2.0 */
/* What frameworks want of the Runtime API besides: graphs, launches with attributes, boxes, entry points of the driver. */
#include <cstring>
#include <vector>

#include <cuda_profiler_api.h>
#include <cudaTypedefs.h>

/* Of banks: programs still say it. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#include "kernels.cuh"
#include "runtime_parts.cuh"

#define N 5000

static float *x, *y;

static float first(const float *at)
{
	float value = -1;

	OK(cudaMemcpy(&value, at, sizeof(value), cudaMemcpyDefault));
	return value;
}

static void captured()
{
	cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaStreamCaptureStatus status;
	cudaGraphNode_t nodes[4];
	unsigned long long id = 0;
	cudaGraphExec_t exec;
	cudaStream_t stream;
	cudaGraph_t graph;
	size_t n = 4;

	part = "captured";
	OK(cudaThreadExchangeStreamCaptureMode(&mode));
	OK(cudaThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == cudaStreamCaptureModeRelaxed);
	OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	OK(cudaStreamGetCaptureInfo(stream, &status));
	CHECK(status == cudaStreamCaptureStatusNone);
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	number<<<N / 250, 250, 0, stream>>>(pair{ x, 1, {} }, N);
	OK(cudaMemsetAsync(y, 0, N * sizeof(float), stream));
	saxpy<<<N / 250, 250, 0, stream>>>(N, 2.0f, x, y);
	OK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr, nullptr));
	CHECK(status == cudaStreamCaptureStatusActive && id > 0);
	IS(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
	IS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
	(void)cudaGetLastError();
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	number<<<N / 250, 250, 0, stream>>>(pair{ x, 1, {} }, N);
	OK(cudaMemsetAsync(y, 0, N * sizeof(float), stream));
	saxpy<<<N / 250, 250, 0, stream>>>(N, 2.0f, x, y);
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphGetNodes(graph, nodes, &n));
	CHECK(n == 3);
	OK(cudaGraphInstantiate(&exec, graph));
	for (int i = 0; i < 3; i++)
		OK(cudaGraphLaunch(exec, stream));
	OK(cudaStreamSynchronize(stream));
	CHECK(first(y) == 2 && first(y + N - 1) == 2 * N);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(stream));
	end();
}

static void built()
{
	pair p = { x, 7, {} };
	int n = N;
	void *args[] = { &p, &n };
	cudaKernelNodeParams kernel = {};
	cudaMemsetParams fill = {};
	cudaGraphNode_t filled, ran, copied;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	float got = 0;

	part = "built";
	kernel.func = (void *)number;
	kernel.gridDim = dim3(N / 250);
	kernel.blockDim = dim3(250);
	kernel.kernelParams = args;
	fill.dst = x;
	fill.elementSize = 4;
	fill.width = N;
	fill.height = 1;
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill));
	OK(cudaGraphAddKernelNode(&ran, graph, &filled, 1, &kernel));
	OK(cudaGraphAddMemcpyNode1D(&copied, graph, &ran, 1, &got, x, sizeof(got),
				    cudaMemcpyDeviceToHost));
	kernel.func = &n;
	IS(cudaGraphAddKernelNode(&ran, graph, &filled, 1, &kernel), cudaErrorInvalidResourceHandle);
	(void)cudaGetLastError();
	kernel.func = (void *)number;
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaStreamSynchronize(0));
	CHECK(got == 7);
	p.first = 9;
	OK(cudaGraphExecKernelNodeSetParams(exec, ran, &kernel));
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaStreamSynchronize(0));
	CHECK(got == 9);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	end();
}

/* Nodes say what they were made of, in the Runtime API's words. */
static cudaMemAllocNodeParams memory_of(size_t bytes)
{
	cudaMemAllocNodeParams params = {};

	params.poolProps.allocType = cudaMemAllocationTypePinned;
	params.poolProps.location.type = cudaMemLocationTypeDevice;
	params.bytesize = bytes;
	return params;
}

static void allocated_by_graphs()
{
	cudaMemAllocNodeParams params = memory_of(N * sizeof(float)), told = {};
	cudaGraphNode_t alloc, kernel, copy, freed;
	cudaKernelNodeParams launch = {};
	cudaGraphNodeParams any = {};
	float *inner = nullptr, *captured = nullptr;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	cudaStream_t stream;
	size_t used = 0;
	void *at = nullptr;
	int n = N;

	part = "allocated by graphs";
	OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
	inner = (float *)params.dptr;
	pair p = { inner, 7, {} };
	void *args[] = { &p, &n };
	launch.func = (void *)number;
	launch.gridDim = dim3(N / 250);
	launch.blockDim = dim3(250);
	launch.kernelParams = args;
	OK(cudaGraphAddKernelNode(&kernel, graph, &alloc, 1, &launch));
	OK(cudaGraphAddMemcpyNode1D(&copy, graph, &kernel, 1, x, inner, N * sizeof(float), cudaMemcpyDefault));
	OK(cudaGraphAddMemFreeNode(&freed, graph, &copy, 1, inner));
	OK(cudaGraphMemAllocNodeGetParams(alloc, &told));
	CHECK(told.dptr == inner && told.bytesize == N * sizeof(float));
	OK(cudaGraphMemFreeNodeGetParams(freed, &at));
	CHECK(at == inner);
	IS(cudaGraphMemFreeNodeGetParams(freed, nullptr), cudaErrorInvalidValue);
	IS(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, nullptr), cudaErrorInvalidValue);
	IS(cudaGraphAddMemFreeNode(&freed, graph, nullptr, 0, x), cudaErrorInvalidValue);
	/* The same by the general call: what is not freed is the program's afterwards. */
	any.type = cudaGraphNodeTypeMemAlloc;
	memcpy(&any.alloc, &params, sizeof(any.alloc));
	OK(cudaGraphAddNode(&alloc, graph, nullptr, nullptr, 0, &any));
	CHECK(any.alloc.dptr != nullptr && any.alloc.dptr != inner);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, stream));
	OK(cudaStreamSynchronize(stream));
	CHECK(first(x) == 7 && first(x + N - 1) == N + 6);
	OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
	CHECK(used >= 2 * N * sizeof(float));
	IS(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
	OK(cudaFree(any.alloc.dptr));
	OK(cudaGraphLaunch(exec, stream));
	OK(cudaFreeAsync(any.alloc.dptr, stream));
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	OK(cudaMallocAsync(&captured, N * sizeof(float), stream));
	number<<<N / 250, 250, 0, stream>>>(pair{ captured, 3, {} }, N);
	OK(cudaMemcpyAsync(x, captured, N * sizeof(float), cudaMemcpyDefault, stream));
	OK(cudaFreeAsync(captured, stream));
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
	OK(cudaGraphLaunch(exec, stream));
	OK(cudaStreamSynchronize(stream));
	CHECK(first(x + 1) == 4);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaDeviceGraphMemTrim(0));
	OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &used));
	CHECK(used == 0);
	OK(cudaStreamDestroy(stream));
	(void)cudaGetLastError();
	end();
}

static void asked()
{
	const cudaExtent extent = make_cudaExtent(5, 4, 3);
	cudaChannelFormatDesc channel = cudaCreateChannelDesc<float2>();
	cudaMemsetParams fill = {}, filled = {};
	cudaKernelNodeParams kernel = {}, ran = {};
	cudaMemcpy3DParms box = {}, boxed = {};
	cudaGraphNode_t a, b, c, d, e;
	cudaEvent_t event, other, is;
	cudaGraph_t graph, inner, child;
	pair p = { x, 7, {} };
	int n = N;
	void *args[] = { &p, &n };
	cudaArray_t array;

	part = "asked";
	OK(cudaMalloc3DArray(&array, &channel, make_cudaExtent(8, 8, 8)));
	OK(cudaEventCreate(&event));
	OK(cudaEventCreate(&other));
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphCreate(&inner, 0));
	kernel.func = (void *)number;
	kernel.gridDim = dim3(N / 250, 1, 1);
	kernel.blockDim = dim3(250, 1, 1);
	kernel.kernelParams = args;
	OK(cudaGraphAddKernelNode(&a, graph, nullptr, 0, &kernel));
	OK(cudaGraphKernelNodeGetParams(a, &ran));
	CHECK(ran.func == (void *)number && ran.gridDim.x == N / 250 && ran.blockDim.x == 250);
	CHECK(((pair *)ran.kernelParams[0])->first == 7 && *(int *)ran.kernelParams[1] == N);
	fill.dst = x;
	fill.elementSize = 4;
	fill.value = 3;
	fill.width = 17;
	fill.height = 1;
	OK(cudaGraphAddMemsetNode(&b, graph, nullptr, 0, &fill));
	OK(cudaGraphMemsetNodeGetParams(b, &filled));
	CHECK(filled.dst == x && filled.value == 3 && filled.width == 17);
	box.srcPtr = make_cudaPitchedPtr(x, 64, 8, 4);
	box.dstArray = array;
	box.dstPos = make_cudaPos(1, 2, 3);
	box.extent = extent;
	box.kind = cudaMemcpyDeviceToDevice;
	OK(cudaGraphAddMemcpyNode(&c, graph, nullptr, 0, &box));
	OK(cudaGraphMemcpyNodeGetParams(c, &boxed));
	CHECK(boxed.srcPtr.ptr == x && boxed.dstArray == array && !boxed.dstPtr.ptr);
	CHECK(boxed.dstPos.x == 1 && boxed.dstPos.z == 3 && boxed.extent.width == 5);
	CHECK(boxed.kind == cudaMemcpyDeviceToDevice);
	OK(cudaGraphMemcpyNodeSetParams1D(c, y, x, 40, cudaMemcpyDeviceToDevice));
	OK(cudaGraphMemcpyNodeGetParams(c, &boxed));
	CHECK(boxed.dstPtr.ptr == y && boxed.extent.width == 40 && !boxed.dstArray);
	OK(cudaGraphAddEventRecordNode(&d, graph, nullptr, 0, event));
	OK(cudaGraphEventRecordNodeGetEvent(d, &is));
	CHECK(is == event);
	OK(cudaGraphEventRecordNodeSetEvent(d, other));
	OK(cudaGraphEventRecordNodeGetEvent(d, &is));
	CHECK(is == other);
	OK(cudaGraphAddChildGraphNode(&e, graph, nullptr, 0, inner));
	OK(cudaGraphChildGraphNodeGetGraph(e, &child));
	CHECK(child && child != inner);
	IS(cudaGraphMemsetNodeGetParams(a, &filled), cudaErrorInvalidValue);
	(void)cudaGetLastError();
	OK(cudaGraphDestroy(graph));
	OK(cudaGraphDestroy(inner));
	OK(cudaEventDestroy(event));
	OK(cudaEventDestroy(other));
	OK(cudaFreeArray(array));
	end();
}

static void launched_with_attributes()
{
	cudaLaunchAttribute priority = {};
	cudaLaunchConfig_t config = {};

	part = "launched with attributes";
	priority.id = cudaLaunchAttributePriority;
	config.gridDim = dim3(N / 250);
	config.blockDim = dim3(250);
	config.attrs = &priority;
	config.numAttrs = 1;
	OK(cudaLaunchKernelEx(&config, number, pair{ x, 11, {} }, (int)N));
	CHECK(first(x) == 11);
	IS(cudaLaunchKernelExC(nullptr, (void *)number, nullptr), cudaErrorInvalidValue);
	(void)cudaGetLastError();
	end();
}

static void boxes()
{
	const cudaExtent extent = make_cudaExtent(40, 5, 3);
	std::vector<char> in(64 * 8 * 4), out(in.size());
	cudaMemcpy3DParms box = {};
	cudaPitchedPtr dev;

	part = "boxes";
	for (size_t i = 0; i < in.size(); i++)
		in[i] = char(i * 13);
	OK(cudaMalloc3D(&dev, make_cudaExtent(64, 8, 4)));
	OK(cudaMemset3D(dev, 3, make_cudaExtent(64, 8, 4)));
	box.srcPtr = make_cudaPitchedPtr(in.data(), 64, 64, 8);
	box.srcPos = make_cudaPos(4, 2, 1);
	box.dstPtr = dev;
	box.extent = extent;
	box.kind = cudaMemcpyHostToDevice;
	OK(cudaMemcpy3D(&box));
	box = {};
	box.srcPtr = dev;
	box.dstPtr = make_cudaPitchedPtr(out.data(), 64, 64, 8);
	box.extent = make_cudaExtent(64, 8, 4);
	box.kind = cudaMemcpyDeviceToHost;
	OK(cudaMemcpy3DAsync(&box, 0));
	OK(cudaStreamSynchronize(0));
	for (size_t z = 0; z < 4; z++)
		for (size_t r = 0; r < 8; r++)
			for (size_t c = 0; c < 64; c++) {
				bool inside = z < 3 && r < 5 && c < 40;
				char wanted = inside ? in[((z + 1) * 8 + r + 2) * 64 + c + 4] : 3;

				CHECK(out[(z * 8 + r) * 64 + c] == wanted);
			}
	OK(cudaMemcpyPeer(dev.ptr, 0, x, 0, 100));
	OK(cudaMemcpyPeerAsync(dev.ptr, 0, x, 0, 100, 0));
	IS(cudaMemcpyPeer(dev.ptr, 99, x, 0, 100), cudaErrorInvalidDevice);
	(void)cudaGetLastError();
	OK(cudaFree(dev.ptr));
	end();
}

static void the_driver()
{
	cudaDriverEntryPointQueryResult status;
	PFN_cuCtxGetDevice_v2000 device_of = nullptr;
	PFN_cuCtxGetDevice_v13000 device_of_ctx = nullptr;
	CUdevice device = -1;
	void *none = &none;
	int version = 0, active = -1;

	part = "the driver";
	OK(cudaDriverGetVersion(&version));
	CHECK(version >= 13000);
	OK(cudaGetDriverEntryPointByVersion("cuCtxGetDevice", (void **)&device_of, 12000,
					    cudaEnableDefault, &status));
	CHECK(status == cudaDriverEntryPointSuccess && device_of);
	CHECK(device_of(&device) == CUDA_SUCCESS && device == 0);
	/* The later version's has another argument. */
	device = -1;
	OK(cudaGetDriverEntryPointByVersion("cuCtxGetDevice", (void **)&device_of_ctx, 13000,
					    cudaEnableDefault, &status));
	CHECK(status == cudaDriverEntryPointSuccess && device_of_ctx);
	CHECK(device_of_ctx(&device, nullptr) == CUDA_SUCCESS && device == 0);
	OK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &none, 13000, cudaEnableDefault,
					    &status));
	CHECK(status == cudaDriverEntryPointSymbolNotFound && !none);
	OK(cudaGetDriverEntryPointByVersion("cuStreamSynchronize", &none, 13000,
					    cudaEnablePerThreadDefaultStream, &status));
	CHECK(none != nullptr);
	IS(cudaGetDriverEntryPointByVersion("cuInit", &none, 13000, 77, &status),
	   cudaErrorInvalidValue);
	(void)cudaGetLastError();
	OK(cudaInitDevice(0, 0, 0));
	OK(cudaProfilerStart());
	OK(cudaProfilerStop());
	OK(cudaDeviceGetAttribute(&active, cudaDevAttrCooperativeLaunch, 0));
	end();
}

/* Nodes that copy to a variable of the program's and from it, and are given other ends. */
static void copies_of_variables()
{
	static int from = 41, other = 42, to, elsewhere;
	cudaGraphNode_t in, out;
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	part = "copies of variables";
	OK(cudaGraphCreate(&graph, 0));
	OK(cudaGraphAddMemcpyNodeToSymbol(&in, graph, nullptr, 0, counter, &from, sizeof(from), 0,
					  cudaMemcpyHostToDevice));
	OK(cudaGraphAddMemcpyNodeFromSymbol(&out, graph, &in, 1, &to, counter, sizeof(to), 0,
					    cudaMemcpyDeviceToHost));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaStreamSynchronize(0));
	CHECK(to == 41);
	OK(cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, in, counter, &other, sizeof(other), 0,
						    cudaMemcpyHostToDevice));
	OK(cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec, out, &elsewhere, counter, sizeof(to), 0,
						      cudaMemcpyDeviceToHost));
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaStreamSynchronize(0));
	CHECK(to == 41 && elsewhere == 42);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphMemcpyNodeSetParamsToSymbol(in, counter, &other, sizeof(other), 0, cudaMemcpyHostToDevice));
	OK(cudaGraphMemcpyNodeSetParamsFromSymbol(out, &to, counter, sizeof(to), 0, cudaMemcpyDeviceToHost));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaStreamSynchronize(0));
	CHECK(to == 42);
	IS(cudaGraphMemcpyNodeSetParamsToSymbol(in, &from, &other, sizeof(other), 0, cudaMemcpyHostToDevice),
	   cudaErrorInvalidSymbol);
	IS(cudaGraphMemcpyNodeSetParamsToSymbol(in, counter, &other, sizeof(other), 6, cudaMemcpyHostToDevice),
	   cudaErrorInvalidValue);
	IS(cudaGraphAddMemcpyNodeToSymbol(&in, graph, nullptr, 0, counter, &from, sizeof(from), 0,
					  cudaMemcpyDeviceToHost),
	   cudaErrorInvalidMemcpyDirection);
	(void)cudaGetLastError();
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	end();
}

/* Pools of devices by their places. */
static void places()
{
	cudaMemLocation here = {};
	cudaMemPool_t pool, same;

	part = "places";
	here.type = cudaMemLocationTypeDevice;
	OK(cudaMemGetDefaultMemPool(&pool, &here, cudaMemAllocationTypePinned));
	OK(cudaDeviceGetDefaultMemPool(&same, 0));
	CHECK(pool == same);
	OK(cudaMemSetMemPool(&here, cudaMemAllocationTypePinned, pool));
	OK(cudaMemGetMemPool(&same, &here, cudaMemAllocationTypePinned));
	CHECK(pool == same);
	here.id = 99;
	CHECK(cudaMemGetMemPool(&same, &here, cudaMemAllocationTypePinned) != cudaSuccess);
	IS(cudaMemGetMemPool(&same, nullptr, cudaMemAllocationTypePinned), cudaErrorInvalidValue);
	IS(cudaMemGetMemPool(&same, &here, (cudaMemAllocationType)77), cudaErrorInvalidValue);
	(void)cudaGetLastError();
	end();
}

/* Where there is managed memory: behind a stream there is none. */
static void advised(cudaMemLocation gpu, cudaStream_t stream)
{
	float *managed;
	int value = -1;

	OK(cudaMallocManaged(&managed, 8192));
	OK(cudaMemAdvise(managed, 8192, cudaMemAdviseSetReadMostly, gpu));
	OK(cudaMemPrefetchAsync(managed, 8192, gpu, 0, stream));
	OK(cudaMemRangeGetAttribute(&value, sizeof(value), cudaMemRangeAttributeReadMostly, managed, 8192));
	CHECK(value == 1);
	OK(cudaMemRangeGetAttribute(&value, sizeof(value), cudaMemRangeAttributeLastPrefetchLocation, managed, 8192));
	CHECK(value == 0);
	OK(cudaFree(managed));
}

static void many_in_one_call()
{
	cudaMemcpyAttributes attributes = {};
	cudaMemcpy3DBatchOp op = {};
	cudaMemLocation gpu = { cudaMemLocationTypeDevice, 0 };
	float here[2] = { 5, 6 }, back[2] = {};
	void *dsts[] = { x, y };
	const void *srcs[] = { here, here + 1 };
	size_t sizes[] = { 4, 4 }, from = 0;
	cudaStream_t stream;
	int has_managed = 0;

	part = "many in one call";
	OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	attributes.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
	OK(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, &attributes, &from, 1, stream));
	OK(cudaStreamSynchronize(stream));
	CHECK(first(x) == 5 && first(y) == 6);
	IS(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, &attributes, &from, 1, nullptr), cudaErrorInvalidValue);
	op.src.type = op.dst.type = cudaMemcpyOperandTypePointer;
	op.src.op.ptr.ptr = y;
	op.dst.op.ptr.ptr = back;
	op.extent = { 4, 1, 1 };
	op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
	OK(cudaMemcpy3DBatchAsync(1, &op, 0, stream));
	OK(cudaStreamSynchronize(stream));
	CHECK(back[0] == 6 && back[1] == 0);
	IS(cudaMemcpy3DBatchAsync(1, &op, 1, stream), cudaErrorInvalidValue);
	OK(cudaDeviceGetAttribute(&has_managed, cudaDevAttrManagedMemory, 0));
	if (has_managed)
		advised(gpu, stream);
	IS(cudaMemAdvise(x, 4096, cudaMemAdviseSetReadMostly, gpu), cudaErrorInvalidValue);
	OK(cudaStreamDestroy(stream));
	(void)cudaGetLastError();
	end();
}

static void devices_chosen()
{
	cudaSharedMemConfig banks = cudaSharedMemBankSizeDefault;
	cudaDeviceProp prop = {};
	int device = 77, count = 0, valid[] = { 0, 99 };

	part = "devices chosen";
	OK(cudaGetDeviceCount(&count));
	OK(cudaGetDeviceProperties(&prop, 0));
	OK(cudaChooseDevice(&device, &prop));
	CHECK(device == 0);
	IS(cudaChooseDevice(nullptr, &prop), cudaErrorInvalidValue);
	OK(cudaSetValidDevices(valid, 1));
	OK(cudaGetDevice(&device));
	CHECK(device == 0);
	OK(cudaSetValidDevices(nullptr, 0));
	IS(cudaSetValidDevices(nullptr, 1), cudaErrorInvalidValue);
	IS(cudaSetValidDevices(valid, count + 1), cudaErrorInvalidValue);
	IS(cudaSetValidDevices(valid + 1, 1), cudaErrorInvalidDevice);
	IS(cudaDeviceGetP2PAttribute(&device, cudaDevP2PAttrAccessSupported, 0, 0), cudaErrorInvalidDevice);
	IS(cudaDeviceGetP2PAttribute(nullptr, cudaDevP2PAttrAccessSupported, 0, 0), cudaErrorInvalidValue);
	OK(cudaDeviceGetSharedMemConfig(&banks));
	CHECK(banks == cudaSharedMemBankSizeFourByte);
	OK(cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte));
	IS(cudaDeviceSetSharedMemConfig((cudaSharedMemConfig)9), cudaErrorInvalidValue);
	OK(cudaFuncSetSharedMemConfig((const void *)saxpy, cudaSharedMemBankSizeDefault));
	(void)cudaGetLastError();
	end();
}

int main()
{
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	OK(cudaMalloc(&x, N * sizeof(float)));
	OK(cudaMalloc(&y, N * sizeof(float)));
	captured();
	built();
	allocated_by_graphs();
	asked();
	launched_with_attributes();
	boxes();
	the_driver();
	copies_of_variables();
	places();
	many_in_one_call();
	devices_chosen();
	return 0;
}
