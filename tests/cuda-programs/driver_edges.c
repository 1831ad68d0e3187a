/* SPDX-License-Identifier: Apache-2.0 */
/* What a careless or hostile program does with the Driver API; the image at argv[1] has the kernels of kernels.cuh. */
#include <semaphore.h>
#include <stdint.h>
#include <string.h>

#include "tests/cuda-programs/parts.h"

#define AHEAD 800u

static CUcontext ctx;
static CUmodule module;
static CUfunction saxpy;

static void nothing_in_many_rows(void)
{
	CUDA_MEMCPY2D copy = { .Height = SIZE_MAX };
	CUdeviceptr p;

	begin("nothing in many rows");
	OK(cuMemAlloc(&p, 4096));
	OK(cuMemsetD2D8(p, 16, 1, 0, SIZE_MAX));
	OK(cuMemsetD2D32(p, 16, 1, 0, SIZE_MAX));
	IS(cuMemsetD2D8(p, 16, 1, 16, SIZE_MAX), INVALID_VALUE);
	copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcDevice = copy.dstDevice = p;
	OK(cuMemcpy2D(&copy));
	OK(cuMemFree(p));
	end();
}

static size_t CUDA_CB shared_for(int nthreads)
{
	CUdevice dev;

	return cuCtxGetDevice(&dev) == CUDA_SUCCESS ? (size_t)nthreads : 0;
}

static void functions_of_the_program_that_call_back(void)
{
	int grid = 0, block = 0;

	begin("functions of the program that call back");
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, saxpy, shared_for, 0, 0));
	CHECK(grid >= 1 && block >= 32);
	IS(cuOccupancyMaxPotentialBlockSize(&grid, &block, saxpy, NULL, 0, -1), INVALID_VALUE);
	IS(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, saxpy, NULL, 0, 0, 64),
	   INVALID_VALUE);
	end();
}

/* What a context had is gone with it, and no handle of it is looked into. */
static void after_the_context(void)
{
	CUevent begun, ended;
	CUcontext other;
	CUstream stream;
	float ms;

	begin("after the context");
	OK(cuCtxCreate(&other, NULL, 0, 0));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&begun, 0));
	OK(cuEventCreate(&ended, 0));
	OK(cuEventRecord(begun, stream));
	OK(cuEventRecord(ended, stream));
	OK(cuCtxDestroy(other));
	IS(cuEventElapsedTime(&ms, begun, ended), INVALID_HANDLE);
	IS(cuEventQuery(begun), INVALID_HANDLE);
	IS(cuEventDestroy(ended), INVALID_HANDLE);
	IS(cuStreamWaitEvent(0, ended, 0), INVALID_HANDLE);
	IS(cuStreamDestroy(stream), INVALID_HANDLE);
	end();
}

static sem_t entered, go;
static volatile int called;

static void CUDA_CB wait_for_go(void *data)
{
	(void)data;
	(void)sem_post(&entered);
	(void)sem_wait(&go);
	called = 1;
}

static void streams_with_work_are_destroyed(void)
{
	CUstream stream, other;
	unsigned int value = 0;
	CUdeviceptr p;

	begin("streams with work are destroyed");
	OK(cuMemAlloc(&p, 4096));
	OK(cuMemsetD32(p, 1, 1024));
	OK(cuStreamSynchronize(0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc(stream, wait_for_go, NULL));
	OK(cuMemsetD32Async(p, 7, 1024, stream));
	(void)sem_wait(&entered);
	OK(cuStreamDestroy(stream));
	CHECK(!called);
	IS(cuStreamQuery(stream), INVALID_HANDLE);
	/* Others go on meanwhile. */
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuMemcpyDtoHAsync(&value, p, 4, other));
	CHECK(value == 1);
	(void)sem_post(&go);
	/* What was in it runs to its end. */
	while (value != 7)
		OK(cuMemcpyDtoHAsync(&value, p, 4, other));
	CHECK(called);
	OK(cuStreamDestroy(other));
	OK(cuMemFree(p));
	end();
}

/* As far as NVIDIA's driver lets it, which has room for 1024 launches: nothing waits for a stream that is held. */
static void runs_ahead(void)
{
	CUstream stream;
	CUdeviceptr p;
	unsigned int value = 0;

	begin("runs ahead");
	called = 0;
	OK(cuMemAlloc(&p, 4096));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchHostFunc(stream, wait_for_go, NULL));
	(void)sem_wait(&entered);
	for (unsigned int i = 1; i <= AHEAD; i++)
		OK(cuMemsetD32Async(p, i, 1024, stream));
	CHECK(!called);
	(void)sem_post(&go);
	OK(cuStreamSynchronize(stream));
	CHECK(called);
	OK(cuMemcpyDtoH(&value, p, 4));
	CHECK(value == AHEAD);
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	end();
}

/* The newest record counts, though an older one on another stream finishes later. */
static void events_recorded_twice(void)
{
	CUstream slow, fast;
	CUevent begun, ended;
	float ms = -1, again = -2;

	begin("events recorded twice");
	OK(cuStreamCreate(&slow, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&fast, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&begun, 0));
	OK(cuEventCreate(&ended, 0));
	called = 0;
	OK(cuEventRecord(begun, fast));
	OK(cuLaunchHostFunc(slow, wait_for_go, NULL));
	OK(cuEventRecord(ended, slow));
	(void)sem_wait(&entered);
	OK(cuEventRecord(ended, fast));
	OK(cuEventSynchronize(ended));
	OK(cuEventElapsedTime(&ms, begun, ended));
	CHECK(!called && ms >= 0);
	(void)sem_post(&go);
	OK(cuStreamSynchronize(slow));
	OK(cuEventElapsedTime(&again, begun, ended));
	CHECK(again == ms);
	OK(cuStreamDestroy(slow));
	OK(cuStreamDestroy(fast));
	OK(cuEventDestroy(begun));
	OK(cuEventDestroy(ended));
	end();
}

/* Blocks that are there all at once, and clusters of them. */
static void groups(void)
{
	CUlaunchAttribute attributes[2] = {
		{ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 2, 1, 1 } },
		{ .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		  .value.programmaticStreamSerializationAllowed = 1 },
	};
	CUlaunchConfig config = { .gridDimX = 8,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = 64,
				  .blockDimY = 1,
				  .blockDimZ = 1,
				  .attrs = attributes,
				  .numAttrs = 2 };
	unsigned int got[4];
	CUfunction function;
	int major, units;
	CUdeviceptr p;
	void *params[] = { &p };

	begin("groups");
	OK(cuModuleGetFunction(&function, module, "groups"));
	OK(cuMemAlloc(&p, sizeof(got)));
	OK(cuMemsetD32(p, 0, 4));
	OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	OK(cuDeviceGetAttribute(&units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	OK(cuLaunchCooperativeKernel(function, 4, 1, 1, 64, 1, 1, 0, 0, params));
	OK(cuMemcpyDtoH(got, p, sizeof(got)));
	CHECK(got[0] == 1 && got[3] == 4);
	IS(cuLaunchCooperativeKernel(function, (unsigned int)units * 64 + 1, 1, 1, 64, 1, 1, 0, 0,
				     params),
	   COOPERATIVE_LAUNCH_TOO_LARGE);
	if (major >= 9) {
		OK(cuMemsetD32(p, 0, 4));
		OK(cuLaunchKernelEx(&config, function, params, NULL));
		OK(cuMemcpyDtoH(got, p, sizeof(got)));
		CHECK(got[0] == 2 && got[1] == 1 && got[2] == 1 && got[3] == 8);
	}
	config.gridDimX = 7;
	IS(cuLaunchKernelEx(&config, function, params, NULL), INVALID_CLUSTER_SIZE);
	attributes[0].value.clusterDim.x = 17;
	IS(cuLaunchKernelEx(&config, function, params, NULL), INVALID_CLUSTER_SIZE);
	attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
	IS(cuLaunchKernelEx(&config, function, params, NULL), NOT_SUPPORTED);
	OK(cuMemFree(p));
	end();
}

static void pools(void)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
				 .maxSize = 1 << 20 };
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemAccess_flags flags = 0;
	CUmemoryPool pool, small, again;
	cuuint64_t used = 9, threshold = 1 << 30;
	CUdeviceptr p, q, r;
	unsigned int value = 0;
	CUstream stream;

	begin("pools");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuDeviceGetMemPool(&again, 0));
	CHECK(pool == again);
	IS(cuMemPoolDestroy(pool), INVALID_VALUE);
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	OK(cuMemAllocAsync(&p, 10000, stream));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	CHECK(used == 10000);
	OK(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
	CHECK(again == pool);
	/* Freed behind work that has not ended: nobody waits, and nobody else gets it before. */
	called = 0;
	OK(cuLaunchHostFunc(stream, wait_for_go, NULL));
	OK(cuMemsetD32Async(p, 5, 2500, stream));
	OK(cuMemcpyDtoDAsync(p + 4096, p, 4, stream));
	OK(cuMemFreeAsync(p, stream));
	IS(cuMemFreeAsync(p, stream), INVALID_VALUE);
	OK(cuMemAlloc(&q, 10000));
	CHECK(!called && q != p);
	(void)sem_wait(&entered);
	(void)sem_post(&go);
	OK(cuStreamSynchronize(stream));
	OK(cuMemAlloc(&r, 10000));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	CHECK(called && used == 0);
	/* Each mark is set back by itself. */
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &used));
	CHECK(used == 0);
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &used));
	CHECK(used >= 10000);
	OK(cuMemFree(q));
	OK(cuMemFree(r));
	/* One of the program's own, with a bound; it lives as long as what is in it. */
	OK(cuMemPoolCreate(&small, &props));
	OK(cuMemPoolSetAccess(small, &access, 1));
	OK(cuMemPoolGetAccess(&flags, small, &access.location));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	IS(cuMemAllocFromPoolAsync(&p, 2 << 20, small, stream), OUT_OF_MEMORY);
	OK(cuMemAllocFromPoolAsync(&p, 1 << 20, small, stream));
	IS(cuMemAllocFromPoolAsync(&q, 1, small, stream), OUT_OF_MEMORY);
	OK(cuMemPoolTrimTo(small, 0));
	OK(cuMemPoolDestroy(small));
	BAD(cuMemAllocFromPoolAsync(&q, 1, small, stream), INVALID_VALUE);
	OK(cuMemsetD32Async(p, 77, 1 << 18, stream));
	OK(cuMemcpyDtoHAsync(&value, p, 4, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(value == 77);
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamDestroy(stream));
	end();
}

static void limits(void)
{
	size_t value = 0;

	begin("limits");
	OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
	OK(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
	CHECK(value >= 8192 && value < 16384);
	IS(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, (size_t)1 << 40), INVALID_VALUE);
	OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20));
	OK(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
	CHECK(value >= 16 << 20);
	BAD(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, (size_t)1 << 40), INVALID_VALUE);
	OK(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128));
	OK(cuCtxGetLimit(&value, CU_LIMIT_MAX_L2_FETCH_GRANULARITY));
	CHECK(value == 128);
	OK(cuCtxGetLimit(&value, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
	IS(cuCtxSetLimit(CU_LIMIT_MAX, 1), INVALID_VALUE);
	IS(cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE), INVALID_VALUE);
	end();
}

/* Whole allocations of managed memory, and no part of a graph. */
static void attached_memory(void)
{
	CUdeviceptr managed, device;
	CUstream stream;

	begin("attached memory");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocManaged(&managed, 1 << 16, CU_MEM_ATTACH_HOST));
	OK(cuMemAlloc(&device, 1 << 16));
	OK(cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE));
	OK(cuStreamAttachMemAsync(stream, managed, 1 << 16, CU_MEM_ATTACH_HOST));
	OK(cuStreamAttachMemAsync(0, managed, 0, CU_MEM_ATTACH_GLOBAL));
	*(volatile int *)(uintptr_t)managed = 5;
	IS(cuStreamAttachMemAsync(0, managed, 0, CU_MEM_ATTACH_SINGLE), INVALID_VALUE);
	IS(cuStreamAttachMemAsync(stream, managed, 4096, CU_MEM_ATTACH_SINGLE), INVALID_VALUE);
	IS(cuStreamAttachMemAsync(stream, managed + 4096, 0, CU_MEM_ATTACH_GLOBAL), INVALID_VALUE);
	IS(cuStreamAttachMemAsync(stream, managed, 0, 0), INVALID_VALUE);
	IS(cuStreamAttachMemAsync(stream, device, 0, CU_MEM_ATTACH_GLOBAL), INVALID_VALUE);
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(managed));
	OK(cuMemFree(device));
	end();
}

#define WIDE   1200
#define WIDEST 8188

/* Parameters of 4808 bytes, and of 32760: four more are the most that there may be. */
static void wide_parameters(void)
{
	static int numbers[WIDEST + 2];
	CUfunction functions[2];
	CUdeviceptr p;
	size_t off, bytes, len;
	int got = 0;
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;
	void *params[] = { numbers, &p };
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, numbers, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &len, CU_LAUNCH_PARAM_END };

	begin("wide parameters");
	OK(cuModuleGetFunction(&functions[0], module, "wide"));
	OK(cuModuleGetFunction(&functions[1], module, "widest"));
	OK(cuFuncGetParamInfo(functions[1], 1, &off, &bytes));
	CHECK(off == WIDEST * sizeof(int) && bytes == 8);
	OK(cuMemAlloc(&p, 4));
	numbers[0] = 17;
	OK(cuLaunchKernel(functions[0], 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
	OK(cuMemcpyDtoH(&got, p, 4));
	CHECK(got == 17);
	/* Each launch has its own, however many are on their way. */
	for (int i = 0; i < 20; i++) {
		numbers[WIDEST - 1] = i;
		OK(cuLaunchKernel(functions[1], 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
		if (i % 7 == 0) {
			OK(cuMemcpyDtoH(&got, p, 4));
			CHECK(got == i);
		}
	}
	OK(cuMemcpyDtoH(&got, p, 4));
	CHECK(got == 19);
	numbers[WIDEST - 1] = 33;
	memcpy(&numbers[WIDEST], &p, sizeof(p));
	len = sizeof(numbers);
	OK(cuLaunchKernel(functions[1], 1, 1, 1, 1, 1, 1, 0, 0, NULL, extra));
	OK(cuMemcpyDtoH(&got, p, 4));
	CHECK(got == 33);
	len--;
	IS(cuLaunchKernel(functions[1], 1, 1, 1, 1, 1, 1, 0, 0, NULL, extra), INVALID_VALUE);
	/* A graph keeps a copy of them. */
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	numbers[WIDEST - 1] = 44;
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(cuLaunchKernel(functions[1], 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	OK(cuStreamEndCapture(stream, &graph));
	numbers[WIDEST - 1] = 55;
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH(&got, p, 4));
	CHECK(got == 44);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
	end();
}

/* The host is told at the first call, the second, the fourth, the eighth. */
static void not_there(void)
{
	unsigned int mask;
	char luid[8];

	begin("not there");
	for (int i = 0; i < 4; i++)
		BAD(cuDeviceGetLuid(luid, &mask, 0), NOT_SUPPORTED);
	end();
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 3)
		return 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)sem_init(&entered, 0, 0);
	(void)sem_init(&go, 0, 0);
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	nothing_in_many_rows();
	functions_of_the_program_that_call_back();
	after_the_context();
	streams_with_work_are_destroyed();
	runs_ahead();
	events_recorded_twice();
	groups();
	pools();
	limits();
	attached_memory();
	wide_parameters();
	not_there();
	if (argc == 3) {
		/* Somebody looks at the session meanwhile. */
		FILE *until = fopen(argv[2], "re");

		return until && fgetc(until) == EOF ? 0 : 1;
	}
	return 0;
}
