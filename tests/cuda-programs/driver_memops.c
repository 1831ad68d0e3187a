/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of memory that streams write and wait for; the image at argv[1] has the kernels of kernels.cuh. With argv[2] "endless" it ends
 * with a stream that waits for good.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

static CUcontext ctx;
static CUfunction number;
static CUstream one, two;
static CUdeviceptr device; /* 4096 bytes */
static volatile uint64_t *pinned;
static CUdeviceptr host; /* the same, for streams */

static uint64_t word(CUdeviceptr at, size_t bytes)
{
	uint64_t value = 0;

	OK(cuMemcpyDtoH(&value, at, bytes));
	return value;
}

static void clear(void)
{
	OK(cuCtxSynchronize());
	OK(cuMemsetD8(device, 0, 4096));
	OK(cuCtxSynchronize());
	memset((void *)(uintptr_t)pinned, 0, 4096);
}

static void announced(void)
{
	int has;

	begin("announced");
	OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
	CHECK(has == 1);
	OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 0));
	CHECK(has == 1);
	OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0));
	CHECK(is_native || has == 0);
	end();
}

static void written(void)
{
	begin("written");
	clear();
	OK(cuStreamWriteValue32(one, device + 4, 0x11223344, 0));
	OK(cuStreamWriteValue64(one, device + 8, 0x1122334455667788, 0));
	OK(cuStreamWriteValue32(one, host + 4, 0x55667788, 0));
	OK(cuStreamWriteValue64(one, host + 8, 0x8877665544332211, 0));
	/* In their order. */
	OK(cuStreamWriteValue32(one, device + 16, 1, 0));
	OK(cuMemcpyDtoDAsync(device + 20, device + 16, 4, one));
	OK(cuStreamWriteValue32(one, device + 16, 2, 0));
	OK(cuStreamSynchronize(one));
	CHECK(word(device, 4) == 0 && word(device + 4, 4) == 0x11223344);
	CHECK(word(device + 8, 8) == 0x1122334455667788);
	CHECK(word(device + 16, 4) == 2 && word(device + 20, 4) == 1);
	CHECK(pinned[0] == 0x5566778800000000 && pinned[1] == 0x8877665544332211 && pinned[2] == 0);
	end();
}

/* A stream of its own is not done before @now is written, and is then. */
static void waits(CUstreamBatchMemOpType type, unsigned int flags, uint64_t value, uint64_t before,
		  uint64_t now)
{
	CUstreamBatchMemOpParams op = { .waitValue = { .operation = type,
						       .address = host,
						       .value64 = value,
						       .flags = flags } };

	pinned[0] = before;
	OK(cuStreamBatchMemOp(one, 1, &op, 0));
	OK(cuStreamWriteValue32(one, host + 8, 7, 0));
	/* Nobody else waits for it. */
	OK(cuMemsetD32Async(device, 1, 16, two));
	OK(cuStreamSynchronize(two));
	IS(cuStreamQuery(one), NOT_READY);
	CHECK(pinned[1] == 0);
	pinned[0] = now;
	OK(cuStreamSynchronize(one));
	CHECK(pinned[1] == 7);
	pinned[1] = 0;
}
#define WAITS32(how, ...) \
	waits(CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_##how, __VA_ARGS__)
#define WAITS64(how, ...) \
	waits(CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_WAIT_VALUE_##how, __VA_ARGS__)

static void waited_for_here(void)
{
	begin("waited for here");
	clear();
	WAITS32(GEQ, 10, 9, 10);
	WAITS32(GEQ, 10, 0, 1000);
	WAITS32(GEQ, 2, 0xfffffffe, 3);		 /* going round */
	WAITS32(GEQ, 0xfffffff0, 0x7ffffff0, 5); /* the other way */
	WAITS32(EQ, 5, 6, 0xffffffff00000005);	 /* 32 of them count */
	WAITS32(AND, 6, 0xffffffff00000009, 4);
	WAITS32(NOR, 0xffff0000, 0x1ffff, 0xfffe);
	WAITS64(GEQ, 1ull << 40, 1, 1ull << 41);
	WAITS64(GEQ, 2, UINT64_MAX, 2);
	WAITS64(EQ, 1ull << 40, 0, 1ull << 40);
	WAITS64(AND, 1ull << 50, UINT64_MAX ^ (1ull << 50), 1ull << 50);
	WAITS64(NOR, UINT64_MAX >> 1, 1ull << 63, 0);
	/* What holds already. */
	OK(cuStreamWaitValue32(one, host, 0, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamSynchronize(one));
	end();
}

static void waited_for_there(void)
{
	struct {
		CUdeviceptr x;
		int32_t first;
		char pad[3];
	} pair = { device + 64, 3, { 0 } };
	int32_t n = 1;
	void *params[] = { &pair, &n };
	float five = 3;
	uint32_t bits;

	begin("waited for there");
	clear();
	/* Written by the other stream. */
	OK(cuStreamWaitValue32(one, device, 5, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue32(one, host, 1, 0));
	OK(cuStreamWriteValue32(two, device + 8, 5, 0));
	OK(cuStreamSynchronize(two));
	IS(cuStreamQuery(one), NOT_READY);
	OK(cuStreamWriteValue32(two, device, 5, 0));
	OK(cuStreamSynchronize(one));
	CHECK(pinned[0] == 1);
	/* By a kernel. */
	memcpy(&bits, &five, sizeof(bits));
	OK(cuStreamWaitValue64(one, device + 64, bits, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue32(one, host, 2, 0));
	OK(cuLaunchKernel(number, 1, 1, 1, 1, 1, 1, 0, two, params, NULL));
	OK(cuStreamSynchronize(one));
	CHECK(pinned[0] == 2);
	/* Each other's turn, many times: one's writes are 1, 3, 5, and two's the next ones. */
	clear();
	for (uint32_t i = 0; i < 100; i++) {
		OK(cuStreamWaitValue32(one, device, 2 * i, CU_STREAM_WAIT_VALUE_EQ));
		OK(cuStreamWriteValue32(one, device, 2 * i + 1, 0));
		OK(cuStreamWaitValue32(two, device, 2 * i + 1, CU_STREAM_WAIT_VALUE_EQ));
		OK(cuStreamWriteValue32(two, device, 2 * i + 2, 0));
	}
	OK(cuStreamSynchronize(one));
	OK(cuStreamSynchronize(two));
	CHECK(word(device, 4) == 200);
	end();
}

static void *write_later(void *arg)
{
	const struct timespec later = { .tv_nsec = 20000000 };

	(void)arg;
	(void)nanosleep(&later, NULL);
	pinned[0] = 1;
	return NULL;
}

/* A thread of the program's ends the wait that its others are in. */
static void by_another_thread(void)
{
	pthread_t thread;

	begin("by another thread");
	clear();
	OK(cuStreamWaitValue64(one, host, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuMemsetD32Async(device, 9, 1, one));
	CHECK(pthread_create(&thread, NULL, write_later, NULL) == 0);
	OK(cuCtxSynchronize());
	CHECK(word(device, 4) == 9);
	(void)pthread_join(thread, NULL);
	end();
}

static void *write_from_a_stream(void *arg)
{
	const struct timespec later = { .tv_nsec = 300000000 };

	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	(void)nanosleep(&later, NULL); /* the other thread waits for room by then */
	OK(cuStreamWriteValue32(two, device, 1, 0));
	return NULL;
}

/* ---- more than a stream has room for ---- */

static CUevent event;
static CUgraphExec fills;

static void put_kernel(void)
{
	struct {
		CUdeviceptr x;
		int32_t first;
		char pad[3];
	} pair = { device + 64, 3, { 0 } };
	int32_t n = 1;
	void *params[] = { &pair, &n };

	OK(cuLaunchKernel(number, 1, 1, 1, 1, 1, 1, 0, one, params, NULL));
}

static void put_copy(void)
{
	OK(cuMemcpyDtoDAsync(device + 128, device + 256, 4, one));
}

static void put_fill(void)
{
	OK(cuMemsetD32Async(device + 128, 1, 1, one));
}

static void put_record(void)
{
	OK(cuEventRecord(event, one));
}

static void put_wait(void)
{
	OK(cuStreamWaitEvent(one, event, 0));
}

static void do_nothing(void *arg)
{
	(void)arg;
}

static void put_function(void)
{
	OK(cuLaunchHostFunc(one, do_nothing, NULL));
}

/* For what is there already. */
static void put_wait_for_word(void)
{
	OK(cuStreamWaitValue32(one, host + 64, 0, CU_STREAM_WAIT_VALUE_EQ));
}

static void put_graph(void)
{
	OK(cuGraphLaunch(fills, one));
}

static CUgraphNode add_fill(CUgraph graph, CUgraphNode after, CUdeviceptr dst, unsigned int value)
{
	CUDA_MEMSET_NODE_PARAMS fill = {
		.dst = dst, .value = value, .elementSize = 4, .width = 1, .height = 1
	};
	CUgraphNode node;

	OK(cuGraphAddMemsetNode(&node, graph, &after, after != NULL, &fill, ctx));
	return node;
}

/* The word at @dst becomes 1, then comes much else, then what is there goes to the word behind it. */
static CUgraphExec long_graph(CUdeviceptr dst, unsigned int nbetween)
{
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = dst,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = dst + 4,
			       .WidthInBytes = 4,
			       .Height = 1,
			       .Depth = 1 };
	CUgraphExec exec;
	CUgraphNode last;
	CUgraph graph;

	OK(cuGraphCreate(&graph, 0));
	last = add_fill(graph, NULL, dst, 1);
	for (unsigned int i = 0; i < nbetween; i++)
		last = add_fill(graph, last, dst + 8, i);
	OK(cuGraphAddMemcpyNode(&last, graph, &last, 1, &copy, ctx));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	return exec;
}

/* Behind a wait that another thread's call ends. */
static void more_than_there_is_room_for(void)
{
	static const struct {
		void (*put)(void);
		unsigned int n;
	} calls[] = { { put_kernel, 2000 }, { put_copy, 2000 },	       { put_fill, 2000 },
		      { put_record, 2000 }, { put_wait, 1000 },	       { put_function, 1000 },
		      { put_graph, 100 },   { put_wait_for_word, 600 } };
	pthread_t thread;

	begin("more than there is room for");
	OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
	fills = long_graph(device + 512, 20);
	for (unsigned int i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		clear();
		OK(cuStreamWaitValue32(one, device, 1, CU_STREAM_WAIT_VALUE_EQ));
		OK(cuEventRecord(event, one));
		CHECK(pthread_create(&thread, NULL, write_from_a_stream, NULL) == 0);
		for (unsigned int k = 0; k < calls[i].n; k++)
			calls[i].put();
		OK(cuStreamSynchronize(one));
		(void)pthread_join(thread, NULL);
	}
	OK(cuGraphExecDestroy(fills));
	OK(cuEventDestroy(event));
	end();
}

static void *put_between(void *arg)
{
	const struct timespec later = { .tv_nsec = 300000000 };

	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	(void)nanosleep(&later, NULL); /* the graph waits for room by then */
	OK(cuMemsetD32Async(device + 512, 2, 1, one));
	return NULL;
}

/* What another thread puts into the stream comes before a graph or behind it. */
static void graphs_are_put_whole(void)
{
	CUgraphExec exec = long_graph(device + 512, 3000);
	pthread_t between, writer;

	begin("graphs are put whole");
	clear();
	OK(cuStreamWaitValue32(one, device, 1, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(pthread_create(&between, NULL, put_between, NULL) == 0);
	CHECK(pthread_create(&writer, NULL, write_from_a_stream, NULL) == 0);
	OK(cuGraphLaunch(exec, one));
	(void)pthread_join(between, NULL);
	(void)pthread_join(writer, NULL);
	OK(cuStreamSynchronize(one));
	CHECK(word(device + 512 + 4, 4) == 1);
	OK(cuGraphExecDestroy(exec));
	end();
}

#define NBESIDE 8u

static void *fill_beside(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	for (int i = 0; i < 500; i++)
		OK(cuMemsetD32Async(device + 512, 2, 1, one));
	return NULL;
}

/* Those of threads that waited for room before the graph did, too. */
static void graphs_among_many(void)
{
	const struct timespec soon = { .tv_nsec = 100000000 };
	CUgraphExec exec = long_graph(device + 512, 3000);
	pthread_t beside[NBESIDE], writer;

	begin("graphs among many");
	clear();
	OK(cuStreamWaitValue32(one, device, 1, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(pthread_create(&writer, NULL, write_from_a_stream, NULL) == 0);
	for (unsigned int i = 0; i < NBESIDE; i++)
		CHECK(pthread_create(&beside[i], NULL, fill_beside, NULL) == 0);
	(void)nanosleep(&soon, NULL);
	OK(cuGraphLaunch(exec, one));
	for (unsigned int i = 0; i < NBESIDE; i++)
		(void)pthread_join(beside[i], NULL);
	(void)pthread_join(writer, NULL);
	OK(cuStreamSynchronize(one));
	CHECK(word(device + 512 + 4, 4) == 1);
	OK(cuGraphExecDestroy(exec));
	end();
}

static const uint32_t own = 7; /* no memory of the driver's */

static void *copy_beside(void *arg)
{
	const struct timespec soon = { .tv_nsec = 100000000 };

	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	(void)nanosleep(&soon, NULL); /* the graph waits for room by then */
	OK(cuMemcpyHtoDAsync(device + 1024, &own, sizeof(own), one));
	return NULL;
}

/* Who waits for the graph has nothing that the graph needs: pieces of pinned memory for the copy at its end. */
static void graphs_with_copies_of_the_program_s_memory(void)
{
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = &own,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = device + 512,
			       .WidthInBytes = sizeof(own),
			       .Height = 1,
			       .Depth = 1 };
	pthread_t beside[NBESIDE], writer;
	CUgraphNode last = NULL;
	CUgraphExec exec;
	CUgraph graph;

	begin("graphs with copies of the program's memory");
	clear();
	OK(cuGraphCreate(&graph, 0));
	for (unsigned int i = 0; i < 3000; i++)
		last = add_fill(graph, last, device + 520, i);
	OK(cuGraphAddMemcpyNode(&last, graph, &last, 1, &copy, ctx));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	OK(cuStreamWaitValue32(one, device, 1, CU_STREAM_WAIT_VALUE_EQ));
	for (unsigned int i = 0; i < NBESIDE; i++)
		CHECK(pthread_create(&beside[i], NULL, copy_beside, NULL) == 0);
	CHECK(pthread_create(&writer, NULL, write_from_a_stream, NULL) == 0);
	OK(cuGraphLaunch(exec, one));
	for (unsigned int i = 0; i < NBESIDE; i++)
		(void)pthread_join(beside[i], NULL);
	(void)pthread_join(writer, NULL);
	OK(cuStreamSynchronize(one));
	CHECK(word(device + 512, 4) == own && word(device + 1024, 4) == own);
	OK(cuGraphExecDestroy(exec));
	end();
}

static void batches(void)
{
	CUstreamBatchMemOpParams ops[256];

	begin("batches");
	clear();
	memset(ops, 0, sizeof(ops));
	for (unsigned int i = 0; i < 255; i++)
		ops[i].writeValue = (struct CUstreamMemOpWriteValueParams_st){
			.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
			.address = device + 4 * (i % 100),
			.value = i
		};
	ops[100].waitValue = (struct CUstreamMemOpWaitValueParams_st){
		.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = device + 4 * 99, .value = 99
	};
	ops[101].memoryBarrier = (struct CUstreamMemOpMemoryBarrierParams_st){
		.operation = CU_STREAM_MEM_OP_BARRIER, .flags = CU_STREAM_MEMORY_BARRIER_TYPE_SYS
	};
	OK(cuStreamBatchMemOp(one, 255, ops, 0));
	OK(cuStreamBatchMemOp(one, 0, ops, 0));
	OK(cuStreamSynchronize(one));
	for (unsigned int i = 0; i < 100; i++)
		CHECK(word(device + 4 * i, 4) == (i < 2 ? 200 + i : i < 55 ? 200 + i : 100 + i));
	IS(cuStreamBatchMemOp(one, 256, ops, 0), INVALID_VALUE);
	IS(cuStreamBatchMemOp(one, 1, NULL, 0), INVALID_VALUE);
	IS(cuStreamBatchMemOp(one, 1, ops, 1), INVALID_VALUE);
	end();
}

static void nodes_of_graphs(void)
{
	CUstreamBatchMemOpParams ops[2] = {
		{ .waitValue = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
				 .address = host,
				 .value = 1 } },
		{ .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
				  .address = device,
				  .value = 11 } },
	};
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { .ctx = ctx, .count = 2, .paramArray = ops }, told;
	CUgraphNodeParams any = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };
	CUgraphNode node, next, nodes[4];
	CUgraphNodeType type;
	CUgraphExec exec;
	CUgraph graph;
	size_t n = 4;

	begin("nodes of graphs");
	clear();
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
	any.memOp.ctx = ctx;
	any.memOp.count = 1;
	any.memOp.paramArray = &ops[1];
	ops[1].writeValue.address = device + 4;
	OK(cuGraphAddNode(&next, graph, &node, NULL, 1, &any));
	OK(cuGraphNodeGetType(node, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	OK(cuGraphBatchMemOpNodeGetParams(node, &told));
	CHECK(told.count == 2 && told.paramArray != ops &&
	      told.paramArray[1].writeValue.address == device);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, one));
	IS(cuStreamQuery(one), NOT_READY);
	pinned[0] = 1;
	OK(cuStreamSynchronize(one));
	CHECK(word(device, 4) == 11 && word(device + 4, 4) == 11);
	ops[0].waitValue.value = 0;
	ops[1].writeValue.value = 12;
	OK(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
	OK(cuGraphLaunch(exec, one));
	OK(cuStreamSynchronize(one));
	CHECK(word(device, 4) == 11 && word(device + 4, 4) == 11);
	params.count = 1;
	IS(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params), INVALID_VALUE);
	OK(cuGraphBatchMemOpNodeSetParams(node, &params));
	OK(cuGraphBatchMemOpNodeGetParams(node, &told));
	CHECK(told.count == 1 && told.paramArray[0].waitValue.value == 0);
	params.flags = 1;
	BAD(cuGraphBatchMemOpNodeSetParams(node, &params), INVALID_VALUE);
	IS(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, NULL), INVALID_VALUE);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	/* Captured. */
	clear();
	OK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamWaitValue32(one, host, 3, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue64(one, device + 8, 1ull << 33, 0));
	OK(cuStreamEndCapture(one, &graph));
	OK(cuGraphGetNodes(graph, nodes, &n));
	CHECK(n == 2);
	OK(cuGraphNodeGetType(nodes[1], &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	OK(cuGraphLaunch(exec, one));
	pinned[0] = 3;
	OK(cuStreamSynchronize(one));
	CHECK(word(device + 8, 8) == 1ull << 33);
	OK(cuGraphExecDestroy(exec));
	end();
}

static void misused(void)
{
	CUstreamBatchMemOpParams op = { .operation = (CUstreamBatchMemOpType)77 };
	CUdeviceptr managed;
	char stack[16];

	begin("misused");
	clear();
	IS(cuStreamWaitValue32(one, 0, 0, 0), INVALID_VALUE);
	IS(cuStreamWriteValue32(one, 0, 0, 0), INVALID_VALUE);
	BAD(cuStreamWaitValue32(one, device + 2, 0, 0), INVALID_VALUE);
	BAD(cuStreamWaitValue64(one, device + 4, 0, 0), INVALID_VALUE);
	BAD(cuStreamWriteValue64(one, device + 4, 0, 0), INVALID_VALUE);
	BAD(cuStreamWaitValue32(one, device, 0, 4), INVALID_VALUE);
	BAD(cuStreamWaitValue32(one, device, 0, CU_STREAM_WAIT_VALUE_FLUSH), NOT_SUPPORTED);
	BAD(cuStreamWriteValue32(one, device, 0, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
	    NOT_SUPPORTED);
	BAD(cuStreamWriteValue32(one, device, 0, 2), INVALID_VALUE);
	BAD(cuStreamBatchMemOp(one, 1, &op, 0), INVALID_VALUE);
	op.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
	BAD(cuStreamBatchMemOp(one, 1, &op, 0), NOT_SUPPORTED);
	/* No memory of CUDA's, or not all of it, or the program's own. */
	BAD(cuStreamWaitValue32(one, (CUdeviceptr)(uintptr_t)stack & ~7ull, 0, 0), INVALID_VALUE);
	BAD(cuStreamWriteValue32(one, (CUdeviceptr)(uintptr_t)stack & ~7ull, 0, 0), INVALID_VALUE);
	BAD(cuStreamWaitValue64(one, device + 4096, 0, 0), INVALID_VALUE);
	OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	BAD(cuStreamWaitValue32(one, managed, 0, 0), INVALID_VALUE);
	BAD(cuStreamWriteValue32(one, managed, 0, 0), INVALID_VALUE);
	OK(cuMemFree(managed));
	BAD(cuStreamWaitValue32((CUstream)stack, device, 0, 0), INVALID_HANDLE);
	/* Nothing of it was put. */
	OK(cuStreamQuery(one));
	end();
}

/* It ends with all that it has, waits and all. */
static void endless(void)
{
	begin("endless");
	clear();
	OK(cuStreamWaitValue32(one, host, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWaitValue64(two, device, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuMemsetD8Async(device, 1, 4096, one));
	IS(cuStreamQuery(one), NOT_READY);
	IS(cuStreamQuery(two), NOT_READY);
	end();
	(void)fflush(stdout);
	(void)pause();
}

int main(int argc, char **argv)
{
	CUmodule module;
	void *memory;

	if (argc != 2 && argc != 3)
		return 2;
	is_native = argc == 3 && strcmp(argv[2], "native") == 0;
	ctx = set_out();
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&number, module, "number"));
	OK(cuMemAlloc(&device, 4096));
	OK(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	pinned = memory;
	OK(cuMemHostGetDevicePointer(&host, memory, 0));
	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	if (argc == 3 && !is_native) {
		endless();
		return 0;
	}
	announced();
	written();
	waited_for_here();
	waited_for_there();
	by_another_thread();
	more_than_there_is_room_for();
	graphs_are_put_whole();
	graphs_among_many();
	graphs_with_copies_of_the_program_s_memory();
	batches();
	nodes_of_graphs();
	misused();
	return 0;
}
