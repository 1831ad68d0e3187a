/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs with conditions over the Driver API; the image at argv[1] has the kernels of conditions.cu. With "endless" behind it one
 * launch that never ends; with "lost" and a file one that is made, and launched again when the file has ended: until then its worker may have
 * died. With anything else NVIDIA's driver is what it is compared with.
 */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

#define WIDE 16

static CUcontext ctx;
static CUfunction count_down, choose, add;
/* Three words of the device's. */
static CUdeviceptr left, chosen, sum;

static unsigned int get(CUdeviceptr at)
{
	unsigned int value;

	OK(cuMemcpyDtoH(&value, at, sizeof(value)));
	return value;
}

static void set(CUdeviceptr at, unsigned int value)
{
	OK(cuMemcpyHtoD(at, &value, sizeof(value)));
	/* Such copies may return before they are there, and streams that do not block wait for no other. */
	OK(cuCtxSynchronize());
}

static CUgraphConditionalHandle condition(CUgraph graph, unsigned int value)
{
	CUgraphConditionalHandle handle = 0;

	OK(cuGraphConditionalHandleCreate(&handle, graph, ctx, value,
					  CU_GRAPH_COND_ASSIGN_DEFAULT));
	return handle;
}

static CUresult try_kernel(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
			   CUfunction function, void **params)
{
	const CUDA_KERNEL_NODE_PARAMS kernel = { .func = function,
						 .gridDimX = 1,
						 .gridDimY = 1,
						 .gridDimZ = 1,
						 .blockDimX = 1,
						 .blockDimY = 1,
						 .blockDimZ = 1,
						 .kernelParams = params };

	return cuGraphAddKernelNode(node, graph, after, after ? 1 : 0, &kernel);
}

/* Behind *@at, which it becomes; the first of a graph where that is NULL. */
static void put_kernel(CUgraphNode *at, CUgraph graph, CUfunction function, void **params)
{
	CUgraphNode before = *at;

	OK(try_kernel(at, graph, before ? &before : NULL, function, params));
}

static void put_setter(CUgraphNode *at, CUgraph graph, CUfunction function,
		       CUgraphConditionalHandle handle, CUdeviceptr word)
{
	void *params[] = { &handle, &word };

	put_kernel(at, graph, function, params);
}

static void put_add(CUgraphNode *at, CUgraph graph, CUdeviceptr word, unsigned int n)
{
	void *params[] = { &word, &n };

	put_kernel(at, graph, add, params);
}

static CUresult try_branch_of(CUcontext of, CUgraphNode *node, CUgraph graph,
			      const CUgraphNode *after, CUgraphConditionalHandle handle,
			      CUgraphConditionalNodeType type, unsigned int n, CUgraph **ret_bodies)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUresult result;

	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = n;
	params.conditional.ctx = of;
	result = cuGraphAddNode(node, graph, after, NULL, after ? 1 : 0, &params);
	*ret_bodies = params.conditional.phGraph_out;
	return result;
}

static CUresult try_branch(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
			   CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
			   unsigned int n, CUgraph **ret_bodies)
{
	return try_branch_of(ctx, node, graph, after, handle, type, n, ret_bodies);
}

static CUgraph *put_branch(CUgraphNode *at, CUgraph graph, CUgraphConditionalHandle handle,
			   CUgraphConditionalNodeType type, unsigned int n)
{
	CUgraphNode before = *at;
	CUgraph *bodies;

	OK(try_branch(at, graph, before ? &before : NULL, handle, type, n, &bodies));
	CHECK(bodies != NULL);
	return bodies;
}

static void run(CUgraphExec exec)
{
	OK(cuGraphLaunch(exec, 0));
	OK(cuStreamSynchronize(0));
}

/* ---- what they do ---- */

static void while_it_holds(void)
{
	CUgraphNode at = NULL, in = NULL;
	CUgraphConditionalHandle handle;
	CUgraphNodeType type;
	CUgraphExec exec;
	CUgraph graph, *body;

	begin("while");
	OK(cuGraphCreate(&graph, 0));
	handle = condition(graph, 1);
	put_add(&at, graph, sum, 1000);
	body = put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
	OK(cuGraphNodeGetType(at, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_CONDITIONAL);
	put_setter(&in, body[0], count_down, handle, left);
	put_add(&in, body[0], sum, 1);
	put_add(&at, graph, sum, 100000);
	OK(cuGraphInstantiate(&exec, graph, 0));
	/* It lives on in what was made of it. */
	OK(cuGraphDestroy(graph));
	set(sum, 0);
	set(left, 10);
	run(exec);
	CHECK(get(sum) == 101010 && get(left) == 0);
	/* It begins with its first value again. */
	set(left, 3);
	OK(cuGraphUpload(exec, 0));
	run(exec);
	CHECK(get(sum) == 202013);
	OK(cuGraphExecDestroy(exec));
	end();
}

static void if_and_else(void)
{
	CUgraphNode at = NULL, then = NULL, otherwise = NULL, inner = NULL;
	CUgraphConditionalHandle outer, nested;
	CUgraphExec exec;
	CUgraph graph, *bodies, *more;

	begin("if and else");
	OK(cuGraphCreate(&graph, 0));
	outer = condition(graph, 0);
	put_setter(&at, graph, choose, outer, chosen);
	bodies = put_branch(&at, graph, outer, CU_GRAPH_COND_TYPE_IF, 2);
	/* A condition of what is inside the body. */
	nested = condition(bodies[0], 0);
	put_add(&then, bodies[0], sum, 1);
	put_setter(&then, bodies[0], choose, nested, left);
	more = put_branch(&then, bodies[0], nested, CU_GRAPH_COND_TYPE_IF, 1);
	put_add(&inner, more[0], sum, 10);
	put_add(&otherwise, bodies[1], sum, 100);
	OK(cuGraphInstantiate(&exec, graph, 0));
	set(sum, 0);
	set(chosen, 0);
	set(left, 1);
	run(exec);
	CHECK(get(sum) == 100);
	set(chosen, 5);
	run(exec);
	CHECK(get(sum) == 111);
	set(left, 0);
	run(exec);
	CHECK(get(sum) == 112);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	end();
}

/* Bodies of all that a driver does itself. */
static void one_of_several(void)
{
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = sum, .elementSize = 4, .width = 1, .height = 1 };
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .WidthInBytes = 4,
			       .Height = 1,
			       .Depth = 1 };
	CUgraphNode at = NULL, in = NULL, none, filled;
	CUgraphConditionalHandle handle;
	CUgraph graph, child, *bodies;
	CUgraphExec exec;
	unsigned int *pinned;

	begin("switch");
	OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&child, 0));
	put_add(&in, child, sum, 7);
	handle = condition(graph, 0);
	put_setter(&at, graph, choose, handle, chosen);
	bodies = put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 4);
	fill.value = 50;
	OK(cuGraphAddMemsetNode(&filled, bodies[0], NULL, 0, &fill, ctx));
	OK(cuGraphAddEmptyNode(&none, bodies[0], &filled, 1));
	OK(cuGraphAddChildGraphNode(&in, bodies[0], &none, 1, child));
	copy.srcDevice = chosen;
	copy.dstDevice = sum;
	OK(cuGraphAddMemcpyNode(&in, bodies[1], NULL, 0, &copy, ctx));
	copy.srcDevice = 0;
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = pinned;
	OK(cuGraphAddMemcpyNode(&in, bodies[2], NULL, 0, &copy, ctx));
	OK(cuGraphInstantiate(&exec, graph, 0));
	set(sum, 3);
	set(chosen, 3); /* nothing is in it */
	run(exec);
	CHECK(get(sum) == 3);
	set(chosen, 4); /* there is none such */
	run(exec);
	CHECK(get(sum) == 3);
	set(chosen, 0);
	run(exec);
	CHECK(get(sum) == 57);
	set(chosen, 1);
	run(exec);
	CHECK(get(sum) == 1);
	*pinned = 4711;
	set(chosen, 2);
	run(exec);
	CHECK(get(sum) == 4711);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(child));
	OK(cuMemFreeHost(pinned));
	end();
}

static void launch_setter(CUstream stream, CUfunction function, CUgraphConditionalHandle handle,
			  CUdeviceptr word)
{
	void *params[] = { &handle, &word };

	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void captured(void)
{
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUgraphConditionalHandle handle;
	CUstreamCaptureStatus status;
	const CUgraphNode *tips;
	CUstream stream, inside;
	CUgraphNode node;
	CUgraph graph, same;
	CUgraphExec exec;
	size_t ntips;

	begin("captured");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&inside, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemsetD32Async(sum, 1000, 1, stream));
	OK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &tips, NULL, &ntips));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && ntips == 1);
	handle = condition(graph, 1);
	params.conditional.handle = handle;
	params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
	params.conditional.size = 1;
	params.conditional.ctx = ctx;
	OK(cuGraphAddNode(&node, graph, tips, NULL, ntips, &params));
	OK(cuStreamUpdateCaptureDependencies(stream, &node, NULL, 1,
					     CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	OK(cuStreamBeginCaptureToGraph(inside, params.conditional.phGraph_out[0], NULL, NULL, 0,
				       CU_STREAM_CAPTURE_MODE_GLOBAL));
	launch_setter(inside, count_down, handle, left);
	/* The program has the graph that it gave. */
	OK(cuStreamEndCapture(inside, NULL));
	OK(cuMemcpyDtoDAsync(chosen, sum, 4, stream));
	OK(cuStreamEndCapture(stream, &same));
	CHECK(same == graph);
	OK(cuGraphInstantiate(&exec, graph, 0));
	set(left, 5);
	set(chosen, 0);
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(get(left) == 0 && get(chosen) == 1000);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy(stream));
	OK(cuStreamDestroy(inside));
	end();
}

/* ---- what is refused ---- */

static void wrong_nodes(void)
{
	CUgraphConditionalHandle handle = 77, other;
	CUgraph graph, another, *bodies = NULL;
	CUgraphNode at = NULL, node = NULL;
	size_t n = 9;

	begin("wrong nodes");
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&another, 0));
	IS(cuGraphConditionalHandleCreate(&handle, graph, ctx, 1, 2), INVALID_VALUE);
	IS(cuGraphConditionalHandleCreate(NULL, graph, ctx, 1, 0), INVALID_VALUE);
	BAD(cuGraphConditionalHandleCreate(&handle, (CUgraph)ctx, ctx, 1, 0), INVALID_VALUE);
	CHECK(handle == 77);
	/* Of a graph without conditions, one that is none, and another graph's. */
	BAD(try_branch(&node, graph, NULL, 77, CU_GRAPH_COND_TYPE_IF, 1, &bodies), INVALID_VALUE);
	handle = condition(graph, 1);
	other = condition(another, 1);
	/* NVIDIA's driver counts them in each graph anew: then the other graph's is this one's. */
	BAD(try_branch(&node, graph, NULL, handle + 1, CU_GRAPH_COND_TYPE_IF, 1, &bodies),
	    INVALID_VALUE);
	if (other != handle)
		BAD(try_branch(&node, graph, NULL, other, CU_GRAPH_COND_TYPE_IF, 1, &bodies),
		    INVALID_VALUE);
	IS(try_branch(&node, graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 0, &bodies),
	   INVALID_VALUE);
	IS(try_branch(&node, graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 3, &bodies),
	   INVALID_VALUE);
	IS(try_branch(&node, graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 2, &bodies),
	   INVALID_VALUE);
	IS(try_branch(&node, graph, NULL, handle, CU_GRAPH_COND_TYPE_SWITCH, 0, &bodies),
	   INVALID_VALUE);
	BAD(try_branch(&node, graph, NULL, handle, (CUgraphConditionalNodeType)3, 1, &bodies),
	    INVALID_VALUE);
	OK(cuGraphGetNodes(graph, NULL, &n));
	CHECK(!node && n == 0 && !bodies);
	bodies = put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
	/* It has a node, and bodies are the node's. */
	BAD(try_branch(&node, graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies),
	    INVALID_VALUE);
	BAD(cuGraphDestroy(put_branch(&node, another, other, CU_GRAPH_COND_TYPE_IF, 1)[0]),
	    INVALID_VALUE);
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(another));
	BAD(cuGraphConditionalHandleCreate(&handle, graph, ctx, 1, 0), INVALID_VALUE);
	end();
}

static void CUDA_CB call(void *data)
{
	(void)data;
}

static void wrong_uses(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS how = { 0 };
	CUDA_HOST_NODE_PARAMS host = { .fn = call };
	CUgraphExecUpdateResultInfo info;
	CUgraphConditionalHandle handle;
	CUgraph graph, outer, copy, *bodies;
	CUgraphNode at = NULL, in = NULL, node;
	CUgraphExec exec;
	CUstream stream;

	begin("wrong uses");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&outer, 0));
	handle = condition(graph, 0);
	/* No node has it. */
	IS(cuGraphInstantiateWithParams(&exec, graph, &how), INVALID_VALUE);
	CHECK(how.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
	bodies = put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
	put_add(&in, bodies[0], sum, 1);
	BAD(cuGraphInstantiate(&exec, bodies[0], 0), INVALID_VALUE);
	BAD(cuGraphClone(&copy, graph), INVALID_VALUE);
	BAD(cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph), INVALID_VALUE);
	BAD(cuGraphAddChildGraphNode(&node, outer, NULL, 0, bodies[0]), INVALID_VALUE);
	/* What is done between tasks here; taken out again it was not too late. */
	OK(cuGraphAddHostNode(&node, graph, &at, 1, &host));
	BAD(cuGraphInstantiate(&exec, graph, 0), NOT_SUPPORTED);
	OK(cuGraphDestroyNode(node));
	OK(cuGraphInstantiate(&exec, graph, 0));
	BAD(cuGraphInstantiate(&exec, graph, 0), NOT_SUPPORTED);
	BAD(cuGraphConditionalHandleCreate(&handle, graph, ctx, 0, 0), NOT_SUPPORTED);
	BAD(cuGraphExecUpdate(exec, graph, &info), GRAPH_EXEC_UPDATE_FAILURE);
	BAD(cuGraphNodeSetEnabled(exec, at, 0), NOT_SUPPORTED);
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	BAD(cuGraphLaunch(exec, stream), STREAM_CAPTURE_UNSUPPORTED);
	(void)cuStreamEndCapture(stream, &copy);
	run(exec);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(outer));
	OK(cuStreamDestroy(stream));
	end();
}

/* A body that is captured into ends with its graph. */
static void captured_bodies_end(void)
{
	CUgraph graph, *bodies, got = NULL;
	CUstreamCaptureStatus status;
	CUgraphNode at = NULL;
	CUstream stream;

	begin("bodies that are captured into");
	if (is_native) {
		end();
		return;
	}
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuGraphCreate(&graph, 0));
	bodies = put_branch(&at, graph, condition(graph, 0), CU_GRAPH_COND_TYPE_IF, 1);
	OK(cuStreamBeginCaptureToGraph(stream, bodies[0], NULL, NULL, 0,
				       CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD32Async(sum, 1, 1, stream));
	OK(cuGraphDestroy(graph));
	OK(cuStreamIsCapturing(stream, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	IS(cuMemsetD32Async(sum, 1, 1, stream), STREAM_CAPTURE_INVALIDATED);
	IS(cuStreamEndCapture(stream, &got), STREAM_CAPTURE_INVALIDATED);
	CHECK(!got);
	OK(cuMemsetD32Async(sum, 2, 1, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(get(sum) == 2);
	OK(cuStreamDestroy(stream));
	end();
}

static CUgraph nest(unsigned int depth)
{
	CUgraph graph, in;

	OK(cuGraphCreate(&graph, 0));
	in = graph;
	for (unsigned int i = 0; i < depth; i++) {
		CUgraphNode at = NULL, last = NULL;

		in = put_branch(&at, in, condition(graph, 1), CU_GRAPH_COND_TYPE_IF, 1)[0];
		if (i == depth - 1)
			put_add(&last, in, sum, 1);
	}
	return graph;
}

static void nested_deeply(void)
{
	CUgraphExec exec;
	CUgraph graph;

	begin("nested deeply");
	graph = nest(3);
	OK(cuGraphInstantiate(&exec, graph, 0));
	set(sum, 0);
	run(exec);
	CHECK(get(sum) == 1);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	if (!is_native) {
		graph = nest(16);
		IS(cuGraphInstantiate(&exec, graph, 0), INVALID_VALUE);
		/* And says so again. */
		IS(cuGraphInstantiate(&exec, graph, 0), INVALID_VALUE);
		OK(cuGraphDestroy(graph));
		/* What was refused has left nothing behind. */
		graph = nest(15);
		OK(cuGraphInstantiate(&exec, graph, 0));
		run(exec);
		CHECK(get(sum) == 2);
		OK(cuGraphExecDestroy(exec));
		OK(cuGraphDestroy(graph));
	}
	end();
}

/* As many as a program makes over time: each goes. */
static void many(void)
{
	CUgraphExec exec;
	CUgraph graph;

	begin("many");
	set(sum, 0);
	for (unsigned int i = 0; i < 100; i++) {
		graph = nest(2);
		OK(cuGraphInstantiate(&exec, graph, 0));
		OK(cuGraphLaunch(exec, 0));
		OK(cuGraphDestroy(graph));
		OK(cuGraphExecDestroy(exec));
	}
	CHECK(get(sum) == 100);
	end();
}

static atomic_int is_about_to;

/* A graph whose condition is of context @arg, which may end meanwhile. */
static void *build_there(void *arg)
{
	CUgraphNode at = NULL, in[WIDE];
	CUgraphConditionalHandle handle;
	CUgraph graph, *bodies;
	CUgraphExec exec;

	OK(cuCtxSetCurrent(ctx));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphConditionalHandleCreate(&handle, graph, arg, 0, CU_GRAPH_COND_ASSIGN_DEFAULT));
	OK(try_branch_of(arg, &at, graph, NULL, handle, CU_GRAPH_COND_TYPE_SWITCH, WIDE, &bodies));
	for (int i = 0; i < WIDE; i++)
		OK(cuGraphAddEmptyNode(&in[i], bodies[i], NULL, 0));
	is_about_to = 1;
	if (cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS)
		OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	return NULL;
}

/* It was built in a stream of that context's; streams that are made then are the program's, wherever they lie. */
static void context_ends(void)
{
	CUstream streams[8];
	pthread_t thread;
	CUcontext other;

	begin("context ends");
	(void)mallopt(M_ARENA_MAX, 1); /* what one thread frees another may get */
	for (int i = 0; i < 100 && !is_native; i++) {
		OK(cuCtxCreate(&other, NULL, 0, 0));
		OK(cuCtxPopCurrent(&other));
		is_about_to = 0;
		CHECK(pthread_create(&thread, NULL, build_there, other) == 0);
		while (!is_about_to)
			(void)sched_yield();
		for (volatile int spin = 0; spin < i * 1000; spin++)
			;
		OK(cuCtxDestroy(other));
		for (int j = 0; j < 8; j++)
			OK(cuStreamCreate(&streams[j], CU_STREAM_NON_BLOCKING));
		CHECK(pthread_join(thread, NULL) == 0);
		for (int j = 0; j < 8; j++)
			OK(cuStreamQuery(streams[j]));
		for (int j = 0; j < 8; j++)
			OK(cuStreamDestroy(streams[j]));
	}
	end();
}

/* ---- what cannot be in one, as the instantiation says ---- */

static CUevent event;
static void *pageable;
static CUarray array;

static CUresult put_host(CUgraphNode *node, CUgraph body)
{
	const CUDA_HOST_NODE_PARAMS host = { .fn = call };

	return cuGraphAddHostNode(node, body, NULL, 0, &host);
}

static CUresult put_record(CUgraphNode *node, CUgraph body)
{
	return cuGraphAddEventRecordNode(node, body, NULL, 0, event);
}

static CUresult put_event_wait(CUgraphNode *node, CUgraph body)
{
	return cuGraphAddEventWaitNode(node, body, NULL, 0, event);
}

static CUresult put_word(CUgraphNode *node, CUgraph body)
{
	CUstreamBatchMemOpParams op = { .writeValue = {
						.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
						.address = sum,
						.value = 1 } };
	const CUDA_BATCH_MEM_OP_NODE_PARAMS params = { .ctx = ctx, .count = 1, .paramArray = &op };

	return cuGraphAddBatchMemOpNode(node, body, NULL, 0, &params);
}

static CUresult put_memory(CUgraphNode *node, CUgraph body)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } },
		.bytesize = 4096
	};

	return cuGraphAddMemAllocNode(node, body, NULL, 0, &params);
}

static CUresult put_together(CUgraphNode *node, CUgraph body)
{
	const CUkernelNodeAttrValue together = { .cooperative = 1 };
	unsigned int n = 1;
	void *params[] = { &sum, &n };
	CUresult result = try_kernel(node, body, NULL, add, params);

	return result == CUDA_SUCCESS
		       ? cuGraphKernelNodeSetAttribute(*node, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE,
						       &together)
		       : result;
}

static CUresult put_copy_of(CUgraphNode *node, CUgraph body, int of_array)
{
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = pageable,
			       .dstMemoryType = of_array ? CU_MEMORYTYPE_ARRAY
							 : CU_MEMORYTYPE_DEVICE,
			       .WidthInBytes = 4,
			       .Height = 1,
			       .Depth = 1 };

	if (of_array) {
		copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
		copy.srcDevice = sum;
		copy.dstArray = array;
	} else {
		copy.dstDevice = sum;
	}
	return cuGraphAddMemcpyNode(node, body, NULL, 0, &copy, ctx);
}

static CUresult put_pageable(CUgraphNode *node, CUgraph body)
{
	return put_copy_of(node, body, 0);
}

static CUresult put_array(CUgraphNode *node, CUgraph body)
{
	return put_copy_of(node, body, 1);
}

static void what_cannot_be_inside(void)
{
	static CUresult (*const kinds[])(CUgraphNode * node, CUgraph body) = {
		put_host,   put_record,	  put_event_wait, put_word,
		put_memory, put_together, put_pageable,	  put_array,
	};
	const CUDA_ARRAY_DESCRIPTOR desc = {
		.Width = 64, .Height = 1, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1
	};

	begin("what cannot be inside");
	OK(cuEventCreate(&event, 0));
	OK(cuArrayCreate(&array, &desc));
	pageable = calloc(1, 4096);
	for (size_t i = 0; i < 2 * sizeof(kinds) / sizeof(kinds[0]) && !is_native; i++) {
		CUgraphNode at = NULL, node = NULL;
		CUgraph graph, *bodies;
		CUgraphExec exec = (CUgraphExec)&at;

		OK(cuGraphCreate(&graph, 0));
		bodies = put_branch(&at, graph, condition(graph, 1), CU_GRAPH_COND_TYPE_IF, 1);
		/* In a body, and beside the condition. */
		OK(kinds[i / 2](&node, i % 2 ? graph : bodies[0]));
		IS(cuGraphInstantiate(&exec, graph, 0), NOT_SUPPORTED);
		CHECK(exec == (CUgraphExec)&at);
		/* Taken out again it was not too late. What allocates cannot be taken out of any graph. */
		if (kinds[i / 2] == put_memory) {
			IS(cuGraphDestroyNode(node), INVALID_VALUE);
		} else {
			OK(cuGraphDestroyNode(node));
			OK(cuGraphInstantiate(&exec, graph, 0));
			run(exec);
			OK(cuGraphExecDestroy(exec));
		}
		OK(cuGraphDestroy(graph));
	}
	free(pageable);
	OK(cuArrayDestroy(array));
	OK(cuEventDestroy(event));
	end();
}

/* A condition without a node, and with one again. */
static void taken_out_again(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS how = { 0 };
	CUgraphNode at = NULL, before, in = NULL, nodes[4];
	CUgraphConditionalHandle handle;
	CUgraph graph, *bodies;
	CUgraphExec exec;
	size_t n = 4;

	begin("taken out again");
	OK(cuGraphCreate(&graph, 0));
	/* Without a first value: it has the one that it is set to before. */
	OK(cuGraphConditionalHandleCreate(&handle, graph, ctx, 0, 0));
	put_setter(&at, graph, choose, handle, chosen);
	before = at;
	(void)put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
	OK(cuGraphDestroyNode(at));
	OK(cuGraphGetNodes(graph, nodes, &n));
	CHECK(n == 1 && nodes[0] == before);
	IS(cuGraphInstantiateWithParams(&exec, graph, &how), INVALID_VALUE);
	CHECK(how.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
	at = before;
	bodies = put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_IF, 1);
	put_add(&in, bodies[0], sum, 1);
	OK(cuGraphInstantiate(&exec, graph, 0));
	set(sum, 0);
	for (unsigned int i = 0; i < 6; i++) {
		set(chosen, i % 2);
		run(exec);
	}
	CHECK(get(sum) == 3);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	end();
}

/* What was made of it is not changed, and goes on as it is. */
static void not_changed(void)
{
	CUDA_MEMSET_NODE_PARAMS fill = {
		.dst = sum, .value = 3, .elementSize = 4, .width = 1, .height = 1
	};
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEMSET };
	CUDA_KERNEL_NODE_PARAMS kernel;
	CUgraphNode at = NULL, in = NULL, filled;
	CUgraph graph, *bodies, child;
	CUgraphExec exec, another;

	begin("not changed");
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphCreate(&child, 0));
	OK(cuGraphAddMemsetNode(&filled, graph, NULL, 0, &fill, ctx));
	at = filled;
	bodies = put_branch(&at, graph, condition(graph, 1), CU_GRAPH_COND_TYPE_IF, 1);
	put_add(&in, bodies[0], sum, 1);
	IS(cuGraphInstantiate(&another, graph, 1u << 20), INVALID_VALUE);
	OK(cuGraphInstantiate(&exec, graph, 0));
	if (!is_native) {
		OK(cuGraphKernelNodeGetParams(in, &kernel));
		IS(cuGraphExecKernelNodeSetParams(exec, in, &kernel), NOT_SUPPORTED);
		fill.value = 9;
		IS(cuGraphExecMemsetNodeSetParams(exec, filled, &fill, ctx), NOT_SUPPORTED);
		params.memset = (CUDA_MEMSET_NODE_PARAMS_v2){
			.dst = sum, .elementSize = 4, .width = 1, .height = 1, .ctx = ctx
		};
		IS(cuGraphExecNodeSetParams(exec, filled, &params), NOT_SUPPORTED);
		CHECK(cuGraphNodeSetParams(at, &params) != CUDA_SUCCESS);
		CHECK(cuGraphExecChildGraphNodeSetParams(exec, at, child) != CUDA_SUCCESS);
	}
	run(exec);
	CHECK(get(sum) == 4);
	OK(cuGraphExecDestroy(exec));
	if (!is_native)
		IS(cuGraphLaunch(exec, 0), INVALID_VALUE);
	OK(cuGraphDestroy(graph));
	OK(cuGraphDestroy(child));
	end();
}

/* Beyond what the host takes of one; the next is as good as any. */
static void too_large(void)
{
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = sum, .elementSize = 4, .width = 1, .height = 1 };
	CUgraphConditionalHandle handle = 0;
	CUgraphNode at = NULL, node = NULL;
	CUgraph graph, *bodies;
	CUgraphExec exec = (CUgraphExec)&at;

	begin("too large");
	if (is_native) {
		end();
		return;
	}
	OK(cuGraphCreate(&graph, 0));
	for (unsigned int i = 0; i < 256; i++)
		handle = condition(graph, 0);
	IS(cuGraphConditionalHandleCreate(&handle, graph, ctx, 0, 0), OUT_OF_MEMORY);
	OK(cuGraphDestroy(graph));
	OK(cuGraphCreate(&graph, 0));
	handle = condition(graph, 1);
	IS(try_branch(&at, graph, NULL, handle, CU_GRAPH_COND_TYPE_SWITCH, 1u << 31, &bodies),
	   INVALID_VALUE);
	IS(try_branch(&at, graph, NULL, handle, CU_GRAPH_COND_TYPE_SWITCH, 4096, &bodies),
	   INVALID_VALUE);
	CHECK(!at);
	bodies = put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 500);
	for (unsigned int i = 0; i < 4200; i++)
		OK(cuGraphAddMemsetNode(&node, bodies[i % 500], NULL, 0, &fill, ctx));
	IS(cuGraphInstantiate(&exec, graph, 0), OUT_OF_MEMORY);
	CHECK(exec == (CUgraphExec)&at);
	OK(cuGraphDestroy(graph));
	graph = nest(2);
	OK(cuGraphInstantiate(&exec, graph, 0));
	set(sum, 0);
	run(exec);
	CHECK(get(sum) == 1);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	end();
}

/* More than the tenant's memory holds, at 4 MiB each. */
static void exhausted(void)
{
	CUgraph graphs[1024];
	CUgraphConditionalHandle handle;
	unsigned int n = 0;
	CUresult result = CUDA_SUCCESS;

	begin("exhausted");
	while (!is_native && n < 1024) {
		OK(cuGraphCreate(&graphs[n++], 0));
		result = cuGraphConditionalHandleCreate(&handle, graphs[n - 1], ctx, 0, 0);
		if (result != CUDA_SUCCESS)
			break;
	}
	CHECK(is_native || n == 1024 || result == CUDA_ERROR_OUT_OF_MEMORY);
	while (n > 0)
		OK(cuGraphDestroy(graphs[--n]));
	OK(cuGraphCreate(&graphs[0], 0));
	OK(cuGraphConditionalHandleCreate(&handle, graphs[0], ctx, 0, 0));
	OK(cuGraphDestroy(graphs[0]));
	end();
}

/* Launches of one wait for each other, whatever stream they are in; of several they do not mix. */
static void at_once(void)
{
	CUgraphNode at, in;
	CUgraphExec execs[8];
	CUstream streams[8];
	CUgraph graph, *body;

	begin("at once");
	for (unsigned int i = 0; i < 8; i++) {
		CUgraphConditionalHandle handle;

		at = in = NULL;
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		OK(cuGraphCreate(&graph, 0));
		handle = condition(graph, 1);
		body = put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
		put_setter(&in, body[0], count_down, handle, left + 256 + i * 16);
		put_add(&in, body[0], left + 256 + i * 16 + 4, 1);
		OK(cuGraphInstantiate(&execs[i], graph, 0));
		OK(cuGraphDestroy(graph));
		set(left + 256 + i * 16, 50);
		set(left + 256 + i * 16 + 4, 0);
	}
	for (unsigned int i = 0; i < 8; i++)
		OK(cuGraphLaunch(execs[i], streams[i]));
	for (unsigned int i = 0; i < 8; i++)
		OK(cuStreamSynchronize(streams[i]));
	for (unsigned int i = 0; i < 8; i++)
		CHECK(get(left + 256 + i * 16) == 0 && get(left + 256 + i * 16 + 4) == 50);
	for (unsigned int i = 0; i < 8; i++) {
		/* The word is 1 at each one's beginning, if it came after the one before. */
		OK(cuMemsetD32Async(left + 256, 1, 1, streams[0]));
		OK(cuGraphLaunch(execs[0], streams[0]));
	}
	OK(cuStreamSynchronize(streams[0]));
	CHECK(get(left + 256) == 0 && get(left + 256 + 4) == 58);
	for (unsigned int i = 0; i < 8; i++) {
		OK(cuGraphExecDestroy(execs[i]));
		OK(cuStreamDestroy(streams[i]));
	}
	end();
}

/* What the driver's twin of it calls is unloaded: refused, and nothing else is the worse for it. Last of all, for the module is the others' too. */
static void without_its_module(CUmodule module)
{
	CUgraphNode at = NULL, in = NULL;
	CUresult result = CUDA_SUCCESS;
	CUgraph graph, *bodies;
	CUgraphExec exec;

	begin("without its module");
	OK(cuGraphCreate(&graph, 0));
	bodies = put_branch(&at, graph, condition(graph, 1), CU_GRAPH_COND_TYPE_IF, 1);
	put_add(&in, bodies[0], sum, 1);
	OK(cuGraphInstantiate(&exec, graph, 0));
	set(sum, 0);
	run(exec);
	OK(cuModuleUnload(module));
	/* It goes when the host comes to it; a launch before that is as good as any. */
	for (unsigned int i = 0; i < 10000 && !is_native && result == CUDA_SUCCESS; i++) {
		(void)cuGraphLaunch(exec, 0);
		result = cuStreamSynchronize(0);
	}
	CHECK(is_native || result == CUDA_ERROR_NOT_FOUND);
	OK(cuCtxSynchronize());
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	end();
}

/* A kernel that sets a condition by a number that is none strays, as one that writes there. */
static void strays(void)
{
	CUgraphNode at = NULL;
	CUgraphExec exec;
	CUgraph graph;

	graph = nest(1);
	put_setter(&at, graph, choose, 0x5555555500000000u, chosen);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, 0));
}

/* Its body adds 1; @function sets the condition before the end of it, or nothing does. */
static CUgraphExec make_while(CUfunction function)
{
	CUgraphConditionalHandle handle;
	CUgraphNode at = NULL, in = NULL;
	CUgraphExec exec;
	CUgraph graph, *body;

	OK(cuGraphCreate(&graph, 0));
	handle = condition(graph, 1);
	body = put_branch(&at, graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
	put_add(&in, body[0], sum, 1);
	if (function)
		put_setter(&in, body[0], function, handle, left);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

static void tell_end(void)
{
	const char *name = "?";

	(void)cuGetErrorName(cuStreamSynchronize(0), &name);
	printf("ended with %s\n", name);
}

static int endless(void)
{
	OK(cuGraphLaunch(make_while(NULL), 0));
	printf("launched\n");
	tell_end();
	return 0;
}

static int lost(const char *path)
{
	CUgraphExec exec = make_while(count_down);
	char byte;
	int fd;

	set(sum, 0);
	set(left, 2);
	run(exec);
	CHECK(get(sum) == 2);
	printf("waiting\n");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	while (read(fd, &byte, 1) > 0)
		;
	(void)close(fd);
	set(left, 2);
	(void)cuGraphLaunch(exec, 0);
	tell_end();
	OK(cuGraphExecDestroy(exec));
	/* Another is as good as the first was. */
	exec = make_while(count_down);
	set(left, 3);
	run(exec);
	printf("sum %u\n", get(sum));
	return 0;
}

int main(int argc, char **argv)
{
	CUmodule module;
	CUdeviceptr words;

	if (argc < 2)
		return 2;
	ctx = set_out();
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&count_down, module, "count_down"));
	OK(cuModuleGetFunction(&choose, module, "choose"));
	OK(cuModuleGetFunction(&add, module, "add"));
	OK(cuMemAlloc(&words, 4096));
	left = words;
	chosen = words + 4;
	sum = words + 8;
	if (argc > 2 && strcmp(argv[2], "endless") == 0)
		return endless();
	if (argc > 3 && strcmp(argv[2], "lost") == 0)
		return lost(argv[3]);
	if (argc > 2 && strcmp(argv[2], "strays") == 0) {
		strays();
		tell_end();
		return 0;
	}
	is_native = argc > 2;
	while_it_holds();
	if_and_else();
	one_of_several();
	captured();
	wrong_nodes();
	wrong_uses();
	captured_bodies_end();
	nested_deeply();
	many();
	context_ends();
	what_cannot_be_inside();
	taken_out_again();
	not_changed();
	too_large();
	exhausted();
	at_once();
	without_its_module(module);
	OK(cuMemFree(words));
	return 0;
}
