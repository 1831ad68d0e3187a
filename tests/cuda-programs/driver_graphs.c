/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, captured and built, over the Driver API; the image at argv[1] has the kernels of kernels.cuh. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

#define N 1000

static const char *image;
static CUcontext ctx;
static CUmodule module;
static CUfunction saxpy;
static CUdeviceptr x, y;
static int n = N;
static float two = 2;
static void *params[] = { &n, &two, &x, &y };

static void launch_saxpy(CUstream stream)
{
	OK(cuLaunchKernel(saxpy, (N + 255) / 256, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

static float first(CUdeviceptr at)
{
	float value;

	OK(cuMemcpyDtoH(&value, at, sizeof(value)));
	return value;
}

static unsigned int bits(float value)
{
	unsigned int is;

	memcpy(&is, &value, sizeof(is));
	return is;
}

static int called;

static void CUDA_CB count(void *data)
{
	called += *(int *)data;
}

static void captured_and_launched(void)
{
	CUstreamCaptureStatus status;
	CUgraphNode nodes[10], *none = NULL;
	CUgraph graph, same;
	CUgraphExec exec;
	CUstream stream;
	cuuint64_t id = 0, other = 0;
	size_t nnodes = 0;
	int one = 1;

	begin("captured and launched");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD32(x, bits(1), N));
	OK(cuMemsetD32(y, bits(100), N));
	OK(cuCtxSynchronize());
	OK(cuStreamIsCapturing(stream, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), ILLEGAL_STATE);
	OK(cuStreamGetCaptureInfo(stream, &status, &id, &graph, NULL, NULL, &nnodes));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && nnodes == 0);
	OK(cuMemsetD32Async(y, bits(0), N, stream));
	launch_saxpy(stream);
	launch_saxpy(stream);
	OK(cuLaunchHostFunc(stream, count, &one));
	OK(cuMemcpyDtoDAsync(x, y, 4, stream));
	OK(cuStreamEndCapture(stream, &same));
	CHECK(graph == same);
	/* Nothing has run. */
	OK(cuStreamSynchronize(stream));
	CHECK(called == 0 && first(y) == 100);
	OK(cuGraphGetNodes(graph, NULL, &nnodes));
	CHECK(nnodes == 5);
	nnodes = 10;
	OK(cuGraphGetNodes(graph, nodes, &nnodes));
	CHECK(nnodes == 5 && nodes[5] == NULL);
	OK(cuGraphGetRootNodes(graph, NULL, &nnodes));
	CHECK(nnodes == 1);
	OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &nnodes));
	CHECK(nnodes == 4);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	IS(cuGraphGetNodes(graph, none, &nnodes), INVALID_VALUE);
	for (int i = 1; i <= 4; i++) {
		OK(cuMemsetD32Async(x, bits(1), N, stream));
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
		CHECK(called == i && first(y) == 4 && first(x) == 4 &&
		      first(y + 4ul * (N - 1)) == 4);
	}
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamGetCaptureInfo(stream, &status, &other, NULL, NULL, NULL, NULL));
	CHECK(other != id);
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphDestroy(graph));
	OK(cuGraphExecDestroy(exec));
	BAD(cuGraphLaunch(exec, stream), INVALID_VALUE);
	OK(cuStreamDestroy(stream));
	end();
}

static void forks_and_joins(void)
{
	CUstream one, other;
	CUevent forked, joined;
	CUgraphExec exec;
	CUgraph graph;

	begin("forks and joins");
	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuMemsetD32Async(x, bits(3), N, one));
	OK(cuEventRecord(forked, one));
	OK(cuStreamWaitEvent(other, forked, 0));
	OK(cuMemsetD32Async(y, bits(5), N, other));
	OK(cuEventRecord(joined, other));
	OK(cuStreamWaitEvent(one, joined, 0));
	launch_saxpy(one);
	IS(cuStreamEndCapture(other, &graph), STREAM_CAPTURE_UNMATCHED);
	OK(cuStreamEndCapture(one, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, other));
	/* Launches of one graph do not overlap, whatever stream they are in. */
	OK(cuGraphLaunch(exec, one));
	OK(cuStreamSynchronize(one));
	CHECK(first(y) == 11);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));

	/* An event that was captured is not to be asked: the capture bears no more. */
	for (int waits = 0; waits < 2; waits++) {
		OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		OK(cuMemsetD32Async(x, bits(3), N, one));
		OK(cuEventRecord(forked, one));
		IS(waits ? cuEventSynchronize(forked) : cuEventQuery(forked), CAPTURED_EVENT);
		IS(cuMemsetD32Async(y, bits(5), N, one), STREAM_CAPTURE_INVALIDATED);
		IS(cuStreamEndCapture(one, &graph), STREAM_CAPTURE_INVALIDATED);
	}

	/* What was forked and not joined is no graph. */
	OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemsetD32Async(x, 0, N, one));
	OK(cuEventRecord(forked, one));
	OK(cuStreamWaitEvent(other, forked, 0));
	OK(cuMemsetD32Async(y, 0, N, other));
	IS(cuStreamEndCapture(one, &graph), STREAM_CAPTURE_UNJOINED);
	CHECK(graph == NULL);
	/* Both run again what is put into them. */
	OK(cuMemsetD32Async(y, bits(8), N, other));
	OK(cuStreamSynchronize(other));
	CHECK(first(y) == 8);
	OK(cuEventDestroy(forked));
	OK(cuEventDestroy(joined));
	OK(cuStreamDestroy(one));
	OK(cuStreamDestroy(other));
	end();
}

static void *allocate_elsewhere(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;

	(void)arg;
	if (cuCtxSetCurrent(ctx) != CUDA_SUCCESS ||
	    cuMemAlloc(&p, 4096) != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
	    cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS ||
	    mode != CU_STREAM_CAPTURE_MODE_GLOBAL || cuMemAlloc(&p, 4096) != CUDA_SUCCESS ||
	    cuMemFree(p) != CUDA_SUCCESS)
		return NULL;
	return &ctx;
}

static void what_a_capture_refuses(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status;
	CUstream stream, blocking;
	CUevent plain;
	CUgraph graph = (CUgraph)&stream;
	CUdeviceptr p;
	pthread_t thread;
	void *done;

	begin("what a capture refuses");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuEventCreate(&plain, 0));
	OK(cuEventRecord(plain, blocking));
	IS(cuStreamEndCapture(stream, &graph), ILLEGAL_STATE);
	IS(cuStreamBeginCapture(0, CU_STREAM_CAPTURE_MODE_GLOBAL), STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamBeginCapture(stream, (CUstreamCaptureMode)7), INVALID_VALUE);

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(cuStreamSynchronize(stream), STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamIsCapturing(stream, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	IS(cuMemsetD32Async(x, 0, N, stream), STREAM_CAPTURE_INVALIDATED);
	IS(cuStreamEndCapture(stream, &graph), STREAM_CAPTURE_INVALIDATED);
	CHECK(graph == NULL);

	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(cuStreamWaitEvent(stream, plain, 0), STREAM_CAPTURE_ISOLATION);
	IS(cuStreamEndCapture(stream, &graph), STREAM_CAPTURE_INVALIDATED);

	/* Memory is not to be allocated meanwhile, unless the thread says that it knows. */
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuMemAlloc(&p, 4096));
	OK(cuMemFree(p));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamIsCapturing(stream, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(pthread_create(&thread, NULL, allocate_elsewhere, NULL));
	(void)pthread_join(thread, &done);
	CHECK(done != NULL);
	IS(cuStreamEndCapture(stream, &graph), STREAM_CAPTURE_INVALIDATED);

	/* The legacy stream would wait for a blocking one that is captured. */
	OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(cuMemsetD32Async(x, 0, N, 0), STREAM_CAPTURE_IMPLICIT);
	IS(cuStreamEndCapture(blocking, &graph), STREAM_CAPTURE_INVALIDATED);
	OK(cuMemsetD32Async(x, 0, N, 0));

	/* A stream may go while it is captured. */
	OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamDestroy(blocking));
	OK(cuMemAlloc(&p, 4096));
	OK(cuMemFree(p));
	OK(cuStreamDestroy(stream));
	OK(cuEventDestroy(plain));
	end();
}

static void built_and_changed(void)
{
	CUDA_MEMSET_NODE_PARAMS fill = { .elementSize = 4, .width = N, .height = 1 };
	CUDA_KERNEL_NODE_PARAMS kernel = { .gridDimX = 4,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 256,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = params },
				told;
	CUgraphExecUpdateResultInfo info;
	CUgraphNode fill_x, fill_y, run, joint, inner, found;
	CUgraph graph, outer, other;
	CUgraphNodeType type;
	CUgraphExec exec;
	unsigned int enabled = 9;
	size_t count_of;

	begin("built and changed");
	kernel.func = saxpy;
	OK(cuGraphCreate(&graph, 0));
	IS(cuGraphCreate(&graph, 1), INVALID_VALUE);
	fill.dst = x;
	fill.value = bits(10);
	OK(cuGraphAddMemsetNode(&fill_x, graph, NULL, 0, &fill, ctx));
	fill.dst = y;
	fill.value = bits(1);
	OK(cuGraphAddMemsetNode(&fill_y, graph, NULL, 0, &fill, ctx));
	OK(cuGraphAddKernelNode(&run, graph, (CUgraphNode[]){ fill_x }, 1, &kernel));
	OK(cuGraphAddDependencies(graph, &fill_y, &run, NULL, 1));
	IS(cuGraphAddDependencies(graph, &fill_y, &run, NULL, 1), INVALID_VALUE);
	OK(cuGraphNodeGetDependencies(run, NULL, NULL, &count_of));
	CHECK(count_of == 2);
	OK(cuGraphNodeGetDependentNodes(fill_y, NULL, NULL, &count_of));
	CHECK(count_of == 1);
	OK(cuGraphAddEmptyNode(&joint, graph, &run, 1));
	OK(cuGraphNodeGetType(joint, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_EMPTY);
	OK(cuGraphKernelNodeGetParams(run, &told));
	CHECK(told.func == saxpy && told.gridDimX == 4 && *(float *)told.kernelParams[1] == 2);
	kernel.func = NULL;
	IS(cuGraphAddKernelNode(&inner, graph, NULL, 0, &kernel), INVALID_HANDLE);
	kernel.func = saxpy;
	/* Round in a circle there is no order. */
	OK(cuGraphAddDependencies(graph, &joint, &fill_y, NULL, 1));
	IS(cuGraphInstantiate(&exec, graph, 0), INVALID_VALUE);
	OK(cuGraphRemoveDependencies(graph, &joint, &fill_y, NULL, 1));

	OK(cuGraphCreate(&outer, 0));
	OK(cuGraphAddChildGraphNode(&inner, outer, NULL, 0, graph));
	OK(cuGraphInstantiate(&exec, outer, 0));
	OK(cuGraphLaunch(exec, 0));
	CHECK(first(y) == 21);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(outer));

	OK(cuGraphInstantiate(&exec, graph, 0));
	two = 4;
	OK(cuGraphExecKernelNodeSetParams(exec, run, &kernel));
	OK(cuGraphLaunch(exec, 0));
	CHECK(first(y) == 41);
	OK(cuGraphNodeSetEnabled(exec, run, 0));
	OK(cuGraphNodeGetEnabled(exec, run, &enabled));
	CHECK(enabled == 0);
	OK(cuGraphLaunch(exec, 0));
	CHECK(first(y) == 1);
	OK(cuGraphNodeSetEnabled(exec, run, 1));
	IS(cuGraphNodeSetEnabled(exec, joint, 1), INVALID_VALUE);
	/* The same nodes with other parameters, and others. */
	OK(cuGraphClone(&other, graph));
	OK(cuGraphNodeFindInClone(&found, fill_x, other));
	fill.dst = x;
	fill.value = bits(50);
	OK(cuGraphMemsetNodeSetParams(found, &fill));
	OK(cuGraphExecUpdate(exec, other, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
	OK(cuGraphLaunch(exec, 0));
	CHECK(first(y) == 101); /* with the graph's factor of 2 again */
	OK(cuGraphAddEmptyNode(&found, other, NULL, 0));
	IS(cuGraphExecUpdate(exec, other, &info), GRAPH_EXEC_UPDATE_FAILURE);
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	OK(cuGraphDestroyNode(found));
	OK(cuGraphDestroy(other));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	BAD(cuGraphDestroy(graph), INVALID_VALUE);
	two = 2;
	end();
}

static int destroyed;

static void CUDA_CB destroy(void *data)
{
	CUgraph graph;

	destroyed += cuGraphCreate(&graph, 0) == CUDA_ERROR_NOT_PERMITTED ? *(int *)data : 0;
}

static void objects_live_as_long_as_graphs(void)
{
	CUuserObject object;
	CUgraphExec exec;
	CUgraph graph;
	int one = 1;

	begin("objects live as long as graphs");
	IS(cuUserObjectCreate(&object, &one, destroy, 1, 0), INVALID_VALUE);
	OK(cuUserObjectCreate(&object, &one, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	IS(cuGraphReleaseUserObject(graph, object, 2), INVALID_VALUE);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	CHECK(destroyed == 0);
	OK(cuGraphExecDestroy(exec));
	CHECK(destroyed == 1);
	BAD(cuUserObjectRetain(object, 1), INVALID_VALUE);
	end();
}

/* As many nodes as a network has, again and again. */
static void a_thousand_nodes(void)
{
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	begin("a thousand nodes");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD32(x, bits(1), N));
	OK(cuMemsetD32(y, bits(0), N));
	OK(cuCtxSynchronize());
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < 1000; i++)
		launch_saxpy(stream);
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 5; i++)
		OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(first(y) == 10000);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy(stream));
	end();
}

/* What is set is read back, goes along with copies and stays when parameters change; what is wrong is refused. */
static void attributes_of_nodes(void)
{
	CUDA_KERNEL_NODE_PARAMS kernel = { .func = saxpy,
					   .gridDimX = 4,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 64,
					   .blockDimY = 1,
					   .blockDimZ = 1,
					   .kernelParams = params };
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = y, .elementSize = 4, .width = N, .height = 1 };
	CUkernelNodeAttrValue value = { .cooperative = 1 }, got;
	CUgraphNode one, other, filled, copied;
	CUgraph graph, clone;
	CUgraphExec exec;

	begin("attributes of nodes");
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddKernelNode(&one, graph, NULL, 0, &kernel));
	OK(cuGraphAddKernelNode(&other, graph, NULL, 0, &kernel));
	OK(cuGraphAddMemsetNode(&filled, graph, NULL, 0, &fill, ctx));
	OK(cuGraphKernelNodeGetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got));
	CHECK(got.cooperative == 0);
	OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
	value.priority = -1;
	OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	memset(&value, 0, sizeof(value));
	value.accessPolicyWindow.hitRatio = .5f;
	value.accessPolicyWindow.num_bytes = 4096;
	value.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_STREAMING;
	OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
	value.accessPolicyWindow.hitRatio = 2;
	IS(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value),
	   INVALID_VALUE);
	OK(cuGraphKernelNodeCopyAttributes(other, one));
	kernel.gridDimX = 8;
	OK(cuGraphKernelNodeSetParams(other, &kernel));
	OK(cuGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got));
	CHECK(got.cooperative == 1);
	OK(cuGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
	CHECK(got.priority == -1);
	OK(cuGraphKernelNodeGetAttribute(other, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got));
	CHECK(got.accessPolicyWindow.hitRatio == .5f && got.accessPolicyWindow.num_bytes == 4096);
	OK(cuGraphClone(&clone, graph));
	OK(cuGraphNodeFindInClone(&copied, other, clone));
	OK(cuGraphKernelNodeGetAttribute(copied, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got));
	CHECK(got.cooperative == 1);
	/* More blocks than the device holds at once cannot wait for each other. */
	kernel.gridDimX = 1u << 24;
	IS(cuGraphKernelNodeSetParams(other, &kernel), COOPERATIVE_LAUNCH_TOO_LARGE);
	IS(cuGraphKernelNodeSetAttribute(filled, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
	   INVALID_VALUE);
	IS(cuGraphKernelNodeCopyAttributes(one, filled), INVALID_VALUE);
	IS(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, NULL),
	   INVALID_VALUE);
	IS(cuGraphKernelNodeGetAttribute(one, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got),
	   INVALID_VALUE);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, NULL));
	OK(cuCtxSynchronize());
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(clone));
	if (!is_native) {
		CUmodule gone;

		OK(cuModuleLoad(&gone, image));
		OK(cuModuleGetFunction(&kernel.func, gone, "saxpy"));
		kernel.gridDimX = 4;
		OK(cuGraphAddKernelNode(&copied, graph, NULL, 0, &kernel));
		OK(cuModuleUnload(gone));
		IS(cuGraphKernelNodeSetAttribute(copied, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
		   INVALID_HANDLE);
		IS(cuGraphKernelNodeCopyAttributes(copied, one), INVALID_HANDLE);
	}
	OK(cuGraphDestroy(graph));
	BAD(cuGraphKernelNodeGetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got),
	    INVALID_VALUE);
	end();
}

/* How often @word stands in the file. */
static int times(const char *path, const char *word)
{
	static char text[65536];
	FILE *file = fopen(path, "re");
	size_t len = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	int found = 0;

	if (file)
		(void)fclose(file);
	text[len] = '\0';
	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		found++;
	return found;
}

static void a_graph_as_text(void)
{
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = y, .elementSize = 4, .width = N, .height = 1 };
	char path[] = "/tmp/gantry-dot-XXXXXX";
	CUgraph graph, inner;
	CUgraphNode a, b, c;
	int fd = mkstemp(path);

	begin("a graph as text");
	CHECK(fd >= 0);
	(void)close(fd);
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&inner, 0));
	OK(cuGraphAddMemsetNode(&a, inner, NULL, 0, &fill, ctx));
	OK(cuGraphAddMemsetNode(&a, graph, NULL, 0, &fill, ctx));
	OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
	OK(cuGraphAddChildGraphNode(&c, graph, &b, 1, inner));
	OK(cuGraphDebugDotPrint(graph, path, 0));
	CHECK(times(path, "digraph") == 1);
	if (!is_native) {
		CHECK(times(path, "shape=box") == 4 && times(path, "->") == 3);
		CHECK(times(path, "MEMSET") == 2 && times(path, "pitch") == 0);
		OK(cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS));
		CHECK(times(path, "pitch") == 2 && times(path, "node 0x") == 0);
		OK(cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
		CHECK(times(path, "node 0x") == 4);
		IS(cuGraphDebugDotPrint(graph, "/nonexistent/there", 0), OPERATING_SYSTEM);
	}
	IS(cuGraphDebugDotPrint(graph, NULL, 0), INVALID_VALUE);
	(void)unlink(path);
	OK(cuGraphDestroy(inner));
	OK(cuGraphDestroy(graph));
	BAD(cuGraphDebugDotPrint(graph, path, 0), INVALID_VALUE);
	end();
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 3)
		return 2;
	is_native = argc == 3;
	image = argv[1];
	ctx = set_out();
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	OK(cuMemAlloc(&x, N * sizeof(float)));
	OK(cuMemAlloc(&y, N * sizeof(float)));
	captured_and_launched();
	forks_and_joins();
	what_a_capture_refuses();
	built_and_changed();
	objects_live_as_long_as_graphs();
	a_thousand_nodes();
	attributes_of_nodes();
	a_graph_as_text();
	return 0;
}
