/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that graphs allocate and free, built and captured; the image at argv[1] has the kernels of kernels.cuh. */
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "tests/cuda-programs/parts.h"

#define MIB   ((size_t)1 << 20)
#define BYTES (16 * MIB)
#define N     1000

static CUcontext ctx;
static CUfunction saxpy;
static CUstream stream, other;
static CUdeviceptr x;
static int n = N;
static float two = 2;

static CUDA_MEM_ALLOC_NODE_PARAMS want(size_t bytes)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } },
		.bytesize = bytes,
	};
}

/* ---- nodes, one behind the other ---- */

static CUgraphNode last;

static CUdeviceptr add_alloc(CUgraph graph, size_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = want(bytes);

	OK(cuGraphAddMemAllocNode(&last, graph, &last, last != NULL, &params));
	CHECK(params.dptr != 0 && params.dptr % 256 == 0);
	return params.dptr;
}

static void add_free(CUgraph graph, CUdeviceptr address)
{
	OK(cuGraphAddMemFreeNode(&last, graph, &last, last != NULL, address));
}

static void add_fill(CUgraph graph, CUdeviceptr address, unsigned int value, size_t count)
{
	CUDA_MEMSET_NODE_PARAMS fill = {
		.dst = address, .value = value, .elementSize = 4, .width = count, .height = 1
	};

	OK(cuGraphAddMemsetNode(&last, graph, &last, last != NULL, &fill, ctx));
}

static void add_copy(CUgraph graph, CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	CUDA_MEMCPY3D copy = { .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = dst,
			       .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = src,
			       .WidthInBytes = bytes,
			       .Height = 1,
			       .Depth = 1 };

	OK(cuGraphAddMemcpyNode(&last, graph, &last, last != NULL, &copy, ctx));
}

/* to = 2 * from + to */
static void add_saxpy(CUgraph graph, CUdeviceptr from, CUdeviceptr to)
{
	void *params[] = { &n, &two, &from, &to };
	CUDA_KERNEL_NODE_PARAMS kernel = { .func = saxpy,
					   .gridDimX = (N + 255) / 256,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 256,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = params };

	OK(cuGraphAddKernelNode(&last, graph, &last, last != NULL, &kernel));
}

static CUgraph new_graph(void)
{
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	last = NULL;
	return graph;
}

static CUgraphExec ready(CUgraph graph)
{
	CUgraphExec exec;

	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

static float first(CUdeviceptr at)
{
	float value;

	OK(cuMemcpyDtoH(&value, at, sizeof(value)));
	return value;
}

static cuuint64_t has(CUgraphMem_attribute attribute)
{
	cuuint64_t value = 1;

	OK(cuDeviceGetGraphMemAttribute(0, attribute, &value));
	return value;
}
#define USED	      has(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)
#define USED_HIGH     has(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
#define RESERVED      has(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
#define RESERVED_HIGH has(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)

/* A graph leaves nothing that is not told. */
static void finish(void)
{
	OK(cuCtxSynchronize());
	OK(cuDeviceGraphMemTrim(0));
	CHECK(USED == 0 && RESERVED == 0);
	end();
}

/* ---- parts ---- */

static void one_after_the_other(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUgraphNode alloc, freed;
	CUgraphNodeType type;
	CUdeviceptr a, b, c, at = 0;
	CUgraph graph;
	CUgraphExec exec;

	begin("one after the other");
	graph = new_graph();
	a = add_alloc(graph, BYTES);
	alloc = last;
	b = add_alloc(graph, BYTES);
	CHECK(a != b);
	add_fill(graph, a, 0x3f800000, N); /* 1 */
	add_fill(graph, b, 0x40400000, N); /* 3 */
	add_saxpy(graph, a, b);
	add_free(graph, a);
	freed = last;
	/* What comes after the freeing may lie there, and does. */
	c = add_alloc(graph, BYTES);
	CHECK(c == a);
	add_fill(graph, c, 0x40a00000, N); /* 5 */
	add_saxpy(graph, b, c);
	add_copy(graph, x, c, N * sizeof(float));
	add_free(graph, c);
	add_free(graph, b);
	OK(cuGraphMemAllocNodeGetParams(alloc, &params));
	CHECK(params.dptr == a && params.bytesize == BYTES && params.poolProps.location.id == 0);
	OK(cuGraphMemFreeNodeGetParams(freed, &at));
	CHECK(at == a);
	OK(cuGraphNodeGetType(alloc, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	OK(cuGraphNodeGetType(freed, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEM_FREE);
	IS(cuGraphMemFreeNodeGetParams(alloc, &at), INVALID_VALUE);
	IS(cuGraphMemAllocNodeGetParams(freed, &params), INVALID_VALUE);
	exec = ready(graph);
	CHECK(USED == 0);
	for (int i = 0; i < 3; i++) {
		OK(cuMemsetD32Async(x, 0, N, stream));
		OK(cuGraphLaunch(exec, stream));
		CHECK(USED == 2 * BYTES);
		OK(cuStreamSynchronize(stream));
		CHECK(first(x) == 15 && first(x + (N - 1) * sizeof(float)) == 15);
	}
	/* It is the graph's until something else wants it, or it is trimmed; then the next launch has other memory there. */
	CHECK(USED == 2 * BYTES);
	OK(cuDeviceGraphMemTrim(0));
	CHECK(USED == 0);
	OK(cuMemsetD32Async(x, 0, N, stream));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(first(x) == 15);
	OK(cuGraphExecDestroy(exec));
	finish();
}

/* What is not ordered behind a freeing lies elsewhere. */
static void side_by_side(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = want(BYTES);
	CUgraph graph = new_graph();
	CUgraphNode node, branch;
	CUdeviceptr a;

	begin("side by side");
	a = add_alloc(graph, BYTES);
	add_fill(graph, a, 0, N);
	branch = last;
	add_free(graph, a);
	OK(cuGraphAddMemAllocNode(&node, graph, &branch, 1, &params));
	CHECK(params.dptr != a);
	OK(cuGraphAddMemFreeNode(&branch, graph, &node, 1, params.dptr));
	OK(cuGraphDestroy(graph));
	finish();
}

static CUgraphExec filled(unsigned int value, bool frees, CUdeviceptr *ret_address)
{
	CUgraph graph = new_graph();

	*ret_address = add_alloc(graph, BYTES);
	add_fill(graph, *ret_address, value, BYTES / 4);
	add_copy(graph, x, *ret_address, N * sizeof(float));
	if (frees)
		add_free(graph, *ret_address);
	return ready(graph);
}

#define NGRAPHS 4

/* What NGRAPHS of them, or some, have. */
static bool is_of_graphs(cuuint64_t bytes)
{
	return bytes >= BYTES && bytes <= NGRAPHS * BYTES;
}

static void memory_shared_by_graphs(void)
{
	CUgraphExec execs[NGRAPHS];
	CUdeviceptr at[NGRAPHS];
	cuuint64_t zero = 0, one = 1;

	begin("memory shared by graphs");
	OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
	OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
	CHECK(USED_HIGH == 0 && RESERVED_HIGH == 0);
	for (unsigned int i = 0; i < NGRAPHS; i++)
		execs[i] = filled(0x3f800000 + (i << 23), true, &at[i]); /* 1, 2, 4, 8 */
	for (unsigned int i = 0; i < NGRAPHS; i++)
		for (unsigned int k = 0; k < i; k++)
			CHECK(at[i] != at[k]);
	CHECK(USED == 0);
	/* One stream: the same memory for all, wherever it lies. NVIDIA's driver counts it otherwise, by no rule that is documented. */
	for (unsigned int round = 0; round < 3; round++)
		for (unsigned int i = 0; i < NGRAPHS; i++) {
			OK(cuGraphLaunch(execs[i], stream));
			CHECK(is_native ? is_of_graphs(USED) : USED == BYTES);
			OK(cuStreamSynchronize(stream));
			CHECK(first(x) == (float)(1 << i));
		}
	/* Without anybody waiting between them. */
	for (unsigned int i = 0; i < NGRAPHS; i++)
		OK(cuGraphLaunch(execs[i], stream));
	if (is_native)
		CHECK(is_of_graphs(USED) && is_of_graphs(USED_HIGH));
	else
		CHECK(USED == BYTES && USED_HIGH == BYTES);
	CHECK(RESERVED_HIGH >= BYTES);
	OK(cuStreamSynchronize(stream));
	CHECK(first(x) == (float)(1 << (NGRAPHS - 1)));
	/* Another stream's may run at the same time. */
	OK(cuGraphLaunch(execs[0], other));
	CHECK(is_native || USED == 2 * BYTES);
	OK(cuCtxSynchronize());
	CHECK(first(x) == 1);
	IS(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one), INVALID_VALUE);
	IS(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero),
	   INVALID_VALUE);
	for (unsigned int i = 0; i < NGRAPHS; i++)
		OK(cuGraphExecDestroy(execs[i]));
	CHECK(USED == 0 && (is_native || RESERVED == 2 * BYTES));
	/* A graph to come has what is left of those that are gone. */
	execs[0] = filled(0, true, &at[0]);
	OK(cuGraphLaunch(execs[0], stream));
	CHECK(is_native || (USED == BYTES && RESERVED == 2 * BYTES));
	OK(cuGraphExecDestroy(execs[0]));
	finish();
}

static void freed_elsewhere(void)
{
	CUdeviceptr at;
	CUgraphExec exec, freeing;
	CUgraph graph;

	begin("freed elsewhere");
	exec = filled(0x40000000, false, &at);
	/* Not before it is there. */
	BAD(cuMemFree(at), INVALID_VALUE);
	BAD(cuMemFreeAsync(at, stream), INVALID_VALUE);
	BAD(cuMemsetD32(at, 0, 1), INVALID_VALUE);
	OK(cuGraphLaunch(exec, stream));
	/* The program's like any other memory now. */
	OK(cuMemsetD32Async(at + 4, 0x40400000, 1, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(first(at) == 2 && first(at + 4) == 3 && first(at + BYTES - 4) == 2);
	IS(cuGraphLaunch(exec, stream), INVALID_VALUE);
	OK(cuDeviceGraphMemTrim(0));
	CHECK(USED == BYTES && first(at) == 2);
	OK(cuMemFree(at));
	BAD(cuMemFree(at), INVALID_VALUE);
	CHECK(USED == BYTES);
	OK(cuGraphLaunch(exec, stream));
	OK(cuMemFreeAsync(at, stream));
	BAD(cuMemFreeAsync(at, stream), INVALID_VALUE);
	graph = new_graph();
	add_free(graph, at);
	IS(cuGraphAddMemFreeNode(&last, graph, NULL, 0, at), INVALID_VALUE);
	freeing = ready(graph);
	BAD(cuGraphLaunch(freeing, stream), INVALID_VALUE); /* it is not there */
	for (int i = 0; i < 3; i++) {
		OK(cuGraphLaunch(exec, stream));
		OK(cuGraphLaunch(freeing, stream));
	}
	OK(cuStreamSynchronize(stream));
	BAD(cuMemFree(at), INVALID_VALUE);
	/* Freed in one stream, there again in another, which waits by itself. */
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemsetD32Async(at, 0, BYTES / 4, other));
	OK(cuMemFreeAsync(at, other));
	OK(cuStreamSynchronize(other));
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphExecDestroy(freeing));
	/* It outlives what allocated it. */
	OK(cuGraphExecDestroy(exec));
	OK(cuStreamSynchronize(stream));
	CHECK(first(at) == 2 && first(at + BYTES - 4) == 2);
	OK(cuMemFree(at));
	BAD(cuMemsetD32(at, 0, 1), INVALID_VALUE);
	finish();
}

static void freed_by_the_next_launch(void)
{
	CUgraph graph = new_graph();
	CUgraphExec exec;
	CUdeviceptr at;

	begin("freed by the next launch");
	at = add_alloc(graph, BYTES);
	add_fill(graph, at, 0x3f800000, BYTES / 4);
	OK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
	OK(cuGraphUpload(exec, stream));
	CHECK(is_native || USED == BYTES);
	for (int i = 0; i < 3; i++) {
		OK(cuGraphLaunch(exec, stream));
		CHECK(USED == BYTES);
	}
	OK(cuStreamSynchronize(stream));
	CHECK(first(at + BYTES - 4) == 1);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuMemFree(at));
	finish();
}

/* As NVIDIA's own example has it: two streams, the second of which goes before the capture ends. */
static void captured(void)
{
	CUdeviceptr a, b, c, kept;
	CUstream second;
	CUevent event, done;
	CUgraphNode nodes[16];
	size_t nnodes = 16, nalloc = 0, nfree = 0;
	CUgraphNodeType type;
	CUgraph graph;
	CUgraphExec exec;
	float host[N];

	begin("captured");
	for (int i = 0; i < N; i++)
		host[i] = 1;
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	OK(cuMemAllocAsync(&a, BYTES, stream));
	OK(cuMemAllocAsync(&b, sizeof(host), stream));
	OK(cuMemcpyHtoDAsync(b, host, sizeof(host), stream));
	OK(cuMemcpyDtoDAsync(a, b, sizeof(host), stream));
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(second, event, 0));
	OK(cuMemFreeAsync(b, second));
	OK(cuEventRecord(done, second));
	OK(cuMemcpyDtoDAsync(x, a, sizeof(host), stream));
	OK(cuMemFreeAsync(a, stream));
	OK(cuMemAllocAsync(&c, BYTES, stream));
	CHECK(c == a);
	OK(cuMemAllocAsync(&kept, sizeof(host), stream));
	OK(cuMemcpyDtoDAsync(kept, x, sizeof(host), stream));
	OK(cuMemFreeAsync(c, stream));
	OK(cuStreamWaitEvent(stream, done, 0));
	OK(cuStreamDestroy(second));
	OK(cuEventDestroy(event));
	OK(cuEventDestroy(done));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, nodes, &nnodes));
	for (size_t i = 0; i < nnodes; i++) {
		OK(cuGraphNodeGetType(nodes[i], &type));
		nalloc += type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
		nfree += type == CU_GRAPH_NODE_TYPE_MEM_FREE;
	}
	CHECK(nalloc == 4 && nfree == 3);
	exec = ready(graph);
	for (int i = 2; i < 5; i++) {
		host[N - 1] = (float)i;
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
		CHECK(first(kept) == 1 && first(kept + sizeof(host) - 4) == (float)i);
		OK(cuMemFreeAsync(kept, stream));
	}
	OK(cuGraphExecDestroy(exec));
	/* What the second stream ended with has to come before the end. */
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecord(event, stream));
	OK(cuStreamWaitEvent(second, event, 0));
	OK(cuMemsetD32Async(x, 0, N, second));
	OK(cuStreamDestroy(second));
	IS(cuStreamEndCapture(stream, &graph), STREAM_CAPTURE_UNJOINED);
	OK(cuEventDestroy(event));
	/* A capture frees what a graph allocates, and nothing else. */
	OK(cuMemAlloc(&a, 4096));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(cuMemFreeAsync(a, stream), INVALID_VALUE);
	(void)cuStreamEndCapture(stream, &graph);
	OK(cuMemFree(a));
	finish();
}

static void misused(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = want(BYTES), wrong;
	CUgraphExecUpdateResultInfo info;
	CUgraph graph = new_graph(), clone, outer;
	CUgraphExec exec, again;
	CUgraphNode node, alloc, child;
	CUdeviceptr at, plain;
	CUmemAccessDesc desc = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99 },
				 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	begin("misused");
	IS(cuGraphAddMemAllocNode(NULL, graph, NULL, 0, &params), INVALID_VALUE);
	IS(cuGraphAddMemAllocNode(&node, graph, NULL, 0, NULL), INVALID_VALUE);
	IS(cuGraphAddMemAllocNode(&node, graph, NULL, 1, &params), INVALID_VALUE);
	wrong = want(0);
	IS(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wrong), INVALID_VALUE);
	wrong = want(BYTES);
	wrong.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
	IS(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wrong), INVALID_VALUE);
	wrong = want(BYTES);
	wrong.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	BAD(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wrong), INVALID_VALUE);
	wrong = want(BYTES);
	wrong.poolProps.location.id = 99;
	BAD(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wrong), INVALID_VALUE);
	wrong = want(BYTES);
	wrong.accessDescs = &desc;
	wrong.accessDescCount = 1;
	BAD(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wrong), INVALID_VALUE);
	OK(cuMemAlloc(&plain, BYTES));
	IS(cuGraphAddMemFreeNode(&node, graph, NULL, 0, plain), INVALID_VALUE);
	IS(cuGraphAddMemFreeNode(&node, graph, NULL, 0, 0), INVALID_VALUE);
	at = add_alloc(graph, BYTES);
	alloc = last;
	BAD(cuGraphAddMemFreeNode(&node, graph, &alloc, 1, at + 512), INVALID_VALUE);
	add_free(graph, at);
	IS(cuGraphAddMemFreeNode(&node, graph, &last, 1, at), INVALID_VALUE);
	/* Neither by another graph. */
	OK(cuGraphCreate(&outer, 0));
	IS(cuGraphAddMemFreeNode(&node, outer, NULL, 0, at), INVALID_VALUE);
	/* It stays as it is, and there is one of it. */
	BAD(cuGraphDestroyNode(alloc), INVALID_VALUE);
	BAD(cuGraphRemoveDependencies(graph, &alloc, &last, NULL, 1), INVALID_VALUE);
	BAD(cuGraphClone(&clone, graph), INVALID_VALUE);
	BAD(cuGraphAddChildGraphNode(&child, outer, NULL, 0, graph), INVALID_VALUE);
	OK(cuGraphInstantiate(&exec, graph, 0));
	BAD(cuGraphInstantiate(&again, graph, 0), INVALID_VALUE);
	BAD(cuGraphExecUpdate(exec, graph, &info), GRAPH_EXEC_UPDATE_FAILURE);
	CHECK(is_native || info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
	OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
	BAD(cuGraphLaunch(exec, other), STREAM_CAPTURE_UNSUPPORTED);
	(void)cuStreamEndCapture(other, &clone);
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphInstantiate(&again, graph, 0));
	OK(cuGraphExecDestroy(again));
	OK(cuGraphDestroy(graph));
	BAD(cuGraphAddMemFreeNode(&node, outer, NULL, 0, at), INVALID_VALUE);
	/* Freed where nothing says that it comes later, and so before. */
	graph = new_graph();
	params = want(BYTES);
	OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
	OK(cuGraphAddMemFreeNode(&child, graph, NULL, 0, params.dptr));
	OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	OK(cuGraphAddDependencies(graph, &node, &alloc, NULL, 1));
	BAD(cuGraphInstantiate(&exec, graph, 0), INVALID_VALUE);
	OK(cuGraphAddDependencies(graph, &alloc, &child, NULL, 1));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(outer));
	OK(cuMemFree(plain));
	IS(cuDeviceGraphMemTrim(99), INVALID_DEVICE);
	finish();
}

static void moved_into_another(void)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUgraph outer = new_graph(), inner = new_graph(), none;
	CUgraphExec exec;
	CUgraphNode node, child;
	CUdeviceptr at;

	begin("moved into another");
	params.alloc.poolProps = want(BYTES).poolProps;
	params.alloc.bytesize = BYTES;
	OK(cuGraphAddNode(&last, inner, NULL, NULL, 0, &params));
	at = params.alloc.dptr;
	add_fill(inner, at, 0x40000000, N);
	add_copy(inner, x, at, N * sizeof(float));
	params = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_MEM_FREE };
	params.free.dptr = at;
	OK(cuGraphAddNode(&node, inner, &last, NULL, 1, &params));
	params = (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_GRAPH };
	params.graph.graph = inner;
	BAD(cuGraphAddNode(&child, outer, NULL, NULL, 0, &params), INVALID_VALUE);
	params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	BAD(cuGraphAddNode(&child, inner, NULL, NULL, 0, &params), INVALID_VALUE);
	OK(cuGraphAddNode(&child, outer, NULL, NULL, 0, &params));
	OK(cuGraphChildGraphNodeGetGraph(child, &none));
	CHECK(none == inner);
	/* It is the other's now. */
	BAD(cuGraphDestroy(inner), INVALID_VALUE);
	BAD(cuGraphInstantiate(&exec, inner, 0), INVALID_VALUE);
	BAD(cuGraphAddNode(&node, outer, NULL, NULL, 0, &params), INVALID_VALUE);
	BAD(cuGraphClone(&none, outer), INVALID_VALUE);
	exec = ready(outer);
	BAD(cuGraphDestroy(inner), INVALID_VALUE);
	for (int i = 0; i < 2; i++) {
		OK(cuMemsetD32Async(x, 0, N, stream));
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
		CHECK(first(x) == 2 && USED == BYTES);
	}
	OK(cuGraphExecDestroy(exec));
	finish();
}

/* Many that are small take little. */
static void small_ones(void)
{
	CUdeviceptr at[300];
	CUgraph graph = new_graph();
	CUgraphExec exec;

	begin("small ones");
	for (unsigned int i = 0; i < 300; i++) {
		at[i] = add_alloc(graph, 1 + i * 7);
		for (unsigned int k = 0; k < i; k++)
			CHECK(at[i] >= at[k] + 1 + k * 7 || at[k] >= at[i] + 1 + i * 7);
	}
	for (unsigned int i = 2; i < 300; i++)
		add_fill(graph, at[i], i, 1);
	for (unsigned int i = 0; i < 300; i += 2)
		add_free(graph, at[i]);
	exec = ready(graph);
	for (unsigned int round = 0; round < 2; round++) {
		OK(cuGraphLaunch(exec, stream));
		CHECK(USED > 0 && USED <= 8 * MIB);
		OK(cuStreamSynchronize(stream));
		for (unsigned int i = 3; i < 300; i += 2) {
			unsigned int value;

			OK(cuMemcpyDtoH(&value, at[i], sizeof(value)));
			CHECK(value == i);
		}
		for (unsigned int i = 1; i < 300; i += 2)
			OK(cuMemFreeAsync(at[i], stream));
	}
	OK(cuGraphExecDestroy(exec));
	finish();
}

/* What graphs keep gives way; what they have does not. */
static void exhausted(void)
{
	CUdeviceptr kept, gone, all = 0;
	CUgraphExec holds, done, more;
	size_t room, total;
	CUgraph graph;

	begin("exhausted");
	OK(cuCtxSynchronize());
	OK(cuMemGetInfo(&room, &total));
	room = room / 5 / (2 * MIB) * (2 * MIB);
	graph = new_graph();
	kept = add_alloc(graph, 2 * room);
	add_fill(graph, kept, 0x3f800000, 1);
	holds = ready(graph);
	graph = new_graph();
	gone = add_alloc(graph, 2 * room);
	add_free(graph, gone);
	done = ready(graph);
	OK(cuGraphLaunch(holds, stream));
	OK(cuGraphLaunch(done, other));
	OK(cuCtxSynchronize());
	CHECK(is_native || USED == 4 * room);
	OK(cuMemAlloc(&all, 2 * room));
	CHECK(is_native || USED == 2 * room);
	BAD(cuGraphLaunch(done, other), OUT_OF_MEMORY);
	CHECK(first(kept) == 1);
	OK(cuMemFree(all));
	OK(cuGraphLaunch(done, other));
	OK(cuGraphExecDestroy(done));
	OK(cuMemFree(kept));
	graph = new_graph();
	BAD(cuGraphAddMemAllocNode(&last, graph, NULL, 0,
				   &(CUDA_MEM_ALLOC_NODE_PARAMS){ .poolProps = want(1).poolProps,
								  .bytesize = (size_t)1 << 60 }),
	    OUT_OF_MEMORY);
	OK(cuGraphDestroy(graph));
	graph = new_graph();
	gone = add_alloc(graph, 64 * room);
	more = ready(graph);
	IS(cuGraphLaunch(more, stream), OUT_OF_MEMORY);
	BAD(cuMemFree(gone), INVALID_VALUE);
	OK(cuGraphExecDestroy(more));
	OK(cuGraphExecDestroy(holds));
	finish();
}

static volatile int is_late;

static void take_a_while(void *arg)
{
	const struct timespec while_ = { .tv_nsec = 300000000 };

	(void)arg;
	(void)nanosleep(&while_, NULL);
	is_late = 1;
}

static CUgraphExec frees(size_t bytes)
{
	CUgraph graph = new_graph();
	CUdeviceptr at = add_alloc(graph, bytes);

	add_fill(graph, at, 0, 1);
	add_free(graph, at);
	return ready(graph);
}

/* What a graph gives back at its end is waited for before there is no memory; CUDA does not say that it does so. */
static void waited_for(void)
{
	CUgraphExec frees_first, frees_next;
	CUdeviceptr large;
	size_t room, total;

	begin("waited for");
	if (is_native) {
		end();
		return;
	}
	OK(cuMemGetInfo(&room, &total));
	room = room / 5 / (2 * MIB) * (2 * MIB);
	frees_first = frees(3 * room);
	frees_next = frees(3 * room);
	is_late = 0;
	OK(cuLaunchHostFunc(other, take_a_while, NULL));
	OK(cuGraphLaunch(frees_first, other));
	OK(cuMemAlloc(&large, 3 * room));
	CHECK(is_late && USED == 0);
	OK(cuMemFree(large));
	/* So for a graph in another stream. */
	is_late = 0;
	OK(cuLaunchHostFunc(other, take_a_while, NULL));
	OK(cuGraphLaunch(frees_first, other));
	OK(cuGraphLaunch(frees_next, stream));
	CHECK(is_late);
	OK(cuGraphExecDestroy(frees_first));
	OK(cuGraphExecDestroy(frees_next));
	finish();
}

int main(int argc, char **argv)
{
	CUmodule module;

	if (argc != 2 && argc != 3)
		return 2;
	is_native = argc == 3;
	ctx = set_out();
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	OK(cuMemAlloc(&x, N * sizeof(float)));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	one_after_the_other();
	side_by_side();
	memory_shared_by_graphs();
	freed_elsewhere();
	freed_by_the_next_launch();
	captured();
	misused();
	moved_into_another();
	small_ones();
	exhausted();
	waited_for();
	return 0;
}
