/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is different behind a stream, where the program's memory is not the host's: pinned memory is only what copies go from and to, and
 * what the device writes (clocks) or waits for (words) is sent. With the image at argv[1]; otherwise as driver_basics.c.
 */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

#define N	 300000
#define MANY	 (5u << 20)
#define PATTERN	 0x01020304u
#define NSTREAMS 3

static CUdevice dev;
static CUfunction saxpy;

static int attribute(CUdevice_attribute which)
{
	int value = -1;

	OK(cuDeviceGetAttribute(&value, which, dev));
	return value;
}

static void announced(void)
{
	begin("announced");
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) == 0);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY) == 0);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED) == 0);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 1);
	CHECK(attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) == 1);
	end();
}

/* Each refusal leaves what it was given. */
static void refused(void)
{
	CUpointer_attribute asked[] = { CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
					CU_POINTER_ATTRIBUTE_HOST_POINTER,
					CU_POINTER_ATTRIBUTE_MEMORY_TYPE };
	CUdeviceptr address = 7, device = 7;
	unsigned int type = 7, flags = 0;
	void *pinned, *host = NULL, *data[] = { &device, &host, &type };
	CUevent event = NULL;

	begin("refused");
	IS(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL), NOT_SUPPORTED);
	IS(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), NOT_SUPPORTED);
	CHECK(!event);
	OK(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
	IS(cuMemHostGetDevicePointer(&address, pinned, 0), NOT_SUPPORTED);
	CHECK(address == 7);
	IS(cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
				 (CUdeviceptr)(uintptr_t)pinned),
	   INVALID_VALUE);
	OK(cuPointerGetAttributes(3, asked, data, (CUdeviceptr)(uintptr_t)pinned + 100));
	CHECK(device == 0 && host == (char *)pinned + 100 && type == CU_MEMORYTYPE_HOST);
	OK(cuMemHostGetFlags(&flags, pinned));
	CHECK(flags & CU_MEMHOSTALLOC_PORTABLE);
	IS(cuMemFree((CUdeviceptr)(uintptr_t)pinned), INVALID_VALUE);
	IS(cuMemFreeHost((char *)pinned + 8), INVALID_VALUE);
	OK(cuMemAlloc(&device, 4096));
	IS(cuStreamWaitValue32(NULL, device, 1, CU_STREAM_WAIT_VALUE_GEQ), NOT_SUPPORTED);
	IS(cuStreamWriteValue32(NULL, (CUdeviceptr)(uintptr_t)pinned, 1, 0), INVALID_VALUE);
	OK(cuStreamWriteValue32(NULL, device + 4, PATTERN, 0));
	OK(cuMemcpyDtoH(&flags, device + 4, sizeof(flags)));
	CHECK(flags == PATTERN);
	OK(cuMemFree(device));
	OK(cuMemFreeHost(pinned));
	IS(cuMemFreeHost(pinned), INVALID_VALUE);
	end();
}

static void fill(unsigned char *bytes, unsigned int seed)
{
	for (size_t i = 0; i < MANY; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 253 + seed);
}

static void copied(void)
{
	unsigned char *pinned, *other, *pageable = malloc(MANY);
	CUdeviceptr device, there;
	CUstream stream;

	begin("copied");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocHost((void **)&pinned, MANY));
	OK(cuMemAllocHost((void **)&other, MANY));
	OK(cuMemAlloc(&device, MANY));
	fill(pinned, 1);
	OK(cuMemcpyHtoDAsync(device, pinned, MANY, stream));
	OK(cuMemcpyDtoHAsync(other, device, MANY, stream));
	OK(cuMemcpyDtoHAsync(pageable, device, MANY, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(memcmp(other, pinned, MANY) == 0 && memcmp(pageable, pinned, MANY) == 0);
	/* What may be either, from the middle, and both on this side. */
	there = (CUdeviceptr)(uintptr_t)other;
	OK(cuMemcpy(there + 3, device + 1000, 77777));
	CHECK(memcmp(other + 3, pinned + 1000, 77777) == 0);
	OK(cuMemcpyAsync(there, (CUdeviceptr)(uintptr_t)pinned + 1, MANY - 1, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(memcmp(other, pinned + 1, MANY - 1) == 0);
	IS(cuMemcpyHtoD(device, pinned + 1, MANY), INVALID_VALUE);
	IS(cuMemcpyDtoH(other + 1, device, MANY), INVALID_VALUE);
	OK(cuMemsetD32Async(there, PATTERN, MANY / 4, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(other[0] == 4 && other[3] == 1 && other[MANY - 1] == 1);
	OK(cuMemFreeHost(other));
	OK(cuMemFreeHost(pinned));
	OK(cuMemFree(device));
	OK(cuStreamDestroy(stream));
	free(pageable);
	end();
}

static void copied_in_rows(void)
{
	static int in[40][50], out[40][50];
	CUDA_MEMCPY2D rows = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = in,
			       .srcPitch = sizeof(in[0]),
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .WidthInBytes = sizeof(in[0]),
			       .Height = 40 };

	begin("copied in rows");
	for (int i = 0; i < 40 * 50; i++)
		in[i / 50][i % 50] = i;
	OK(cuMemAllocPitch(&rows.dstDevice, &rows.dstPitch, sizeof(in[0]), 40, 4));
	OK(cuMemcpy2D(&rows));
	OK(cuMemsetD2D32(rows.dstDevice + rows.dstPitch, rows.dstPitch, 9, 50, 2));
	rows = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = rows.dstDevice,
				.srcPitch = rows.dstPitch,
				.dstMemoryType = CU_MEMORYTYPE_HOST,
				.dstHost = out,
				.dstPitch = sizeof(out[0]),
				.WidthInBytes = sizeof(out[0]),
				.Height = 40 };
	OK(cuMemcpy2D(&rows));
	CHECK(out[1][0] == 9 && out[2][49] == 9);
	memcpy(out[1], in[1], 2 * sizeof(in[0]));
	CHECK(memcmp(in, out, sizeof(in)) == 0);
	OK(cuMemFree(rows.srcDevice));
	end();
}

static void registered(void)
{
	unsigned char *own = NULL, *back = malloc(MANY);
	CUdeviceptr device, address;

	begin("registered");
	CHECK(posix_memalign((void **)&own, 4096, MANY) == 0);
	fill(own, 5);
	OK(cuMemHostRegister(own, MANY, CU_MEMHOSTREGISTER_DEVICEMAP));
	IS(cuMemHostRegister(own + 4096, 100, 0), HOST_MEMORY_ALREADY_REGISTERED);
	IS(cuMemHostGetDevicePointer(&address, own, 0), NOT_SUPPORTED);
	OK(cuMemAlloc(&device, MANY));
	OK(cuMemcpyHtoDAsync(device, own, MANY, NULL));
	OK(cuMemcpyDtoHAsync(back, device, MANY, NULL));
	OK(cuCtxSynchronize());
	CHECK(memcmp(own, back, MANY) == 0);
	OK(cuMemHostUnregister(own));
	OK(cuMemFree(device));
	free(own);
	free(back);
	end();
}

static void launch(CUstream stream, CUdeviceptr x, CUdeviceptr y)
{
	int n = N;
	float a = 2;
	void *params[] = { &n, &a, &x, &y };

	OK(cuLaunchKernel(saxpy, (N + 255) / 256, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

/* What the device writes of itself: the clock of an event. */
static void timed(void)
{
	CUevent before, after, untimed;
	CUdeviceptr x;
	float ms = -1;

	begin("timed");
	OK(cuEventCreate(&before, 0));
	OK(cuEventCreate(&after, 0));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	OK(cuMemAlloc(&x, N * sizeof(float)));
	for (int round = 0; round < 3; round++) {
		OK(cuEventRecord(before, NULL));
		for (int i = 0; i < 5; i++)
			launch(NULL, x, x);
		OK(cuEventRecord(after, NULL));
		OK(cuEventRecord(untimed, NULL));
		OK(cuEventSynchronize(after));
		OK(cuEventSynchronize(untimed));
		OK(cuEventElapsedTime(&ms, before, after));
		CHECK(ms > 0 && ms < 60000);
	}
	IS(cuEventElapsedTime(&ms, before, untimed), INVALID_HANDLE);
	OK(cuEventDestroy(before));
	OK(cuEventDestroy(after));
	OK(cuEventDestroy(untimed));
	OK(cuMemFree(x));
	end();
}

static volatile int calls;

static void CUDA_CB call(void *data)
{
	(void)usleep(20000); /* what follows would be done by then, if it did not wait */
	*(volatile int *)data = ++calls;
}

/* What the device waits for: functions of the program's between tasks, on several streams at once, their words used again. */
static void called_back(void)
{
	static int seen[NSTREAMS][8];
	float *in, *out;
	CUdeviceptr x, y[NSTREAMS];
	CUstream streams[NSTREAMS];

	begin("called back");
	OK(cuMemAllocHost((void **)&in, N * sizeof(float)));
	OK(cuMemAllocHost((void **)&out, N * sizeof(float)));
	for (int i = 0; i < N; i++)
		in[i] = (float)(i % 100);
	OK(cuMemAlloc(&x, N * sizeof(float)));
	OK(cuMemcpyHtoD(x, in, N * sizeof(float)));
	for (int s = 0; s < NSTREAMS; s++) {
		OK(cuStreamCreate(&streams[s], CU_STREAM_NON_BLOCKING));
		OK(cuMemAlloc(&y[s], N * sizeof(float)));
		OK(cuMemsetD32Async(y[s], 0, N, streams[s]));
	}
	for (int i = 0; i < 8; i++)
		for (int s = 0; s < NSTREAMS; s++) {
			launch(streams[s], x, y[s]);
			OK(cuLaunchHostFunc(streams[s], call, &seen[s][i]));
		}
	for (int s = 0; s < NSTREAMS; s++) {
		launch(streams[s], x, y[s]);
		OK(cuMemcpyDtoHAsync(out, y[s], N * sizeof(float), streams[s]));
		OK(cuStreamSynchronize(streams[s]));
		CHECK(seen[s][0] > 0 && seen[s][7] > seen[s][0]);
		for (int i = 0; i < N; i++)
			CHECK(out[i] == 18 * in[i]);
		OK(cuStreamDestroy(streams[s]));
		OK(cuMemFree(y[s]));
	}
	CHECK(calls == 8 * NSTREAMS);
	OK(cuMemFree(x));
	OK(cuMemFreeHost(in));
	OK(cuMemFreeHost(out));
	end();
}

/* Copies of the program's memory are made when the graph runs, and of what is there then. */
static void captured(void)
{
	float *in, *out;
	int n = N, seen = 0;
	CUdeviceptr x, y;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	begin("captured");
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocHost((void **)&in, N * sizeof(float)));
	OK(cuMemAllocHost((void **)&out, N * sizeof(float)));
	OK(cuMemAlloc(&x, N * sizeof(float)));
	OK(cuMemAlloc(&y, N * sizeof(float)));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemcpyHtoDAsync(x, in, N * sizeof(float), stream));
	OK(cuMemsetD32Async(y, 0, N, stream));
	launch(stream, x, y);
	OK(cuLaunchHostFunc(stream, call, &seen));
	launch(stream, x, y);
	OK(cuMemcpyDtoHAsync(out, y, N * sizeof(float), stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	for (int round = 1; round <= 3; round++) {
		for (int i = 0; i < n; i++)
			in[i] = (float)(i % 100 * round);
		OK(cuGraphLaunch(exec, stream));
		OK(cuStreamSynchronize(stream));
		for (int i = 0; i < n; i++)
			CHECK(out[i] == 4 * in[i]);
	}
	CHECK(seen > 0);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	OK(cuMemFree(x));
	OK(cuMemFree(y));
	OK(cuMemFreeHost(in));
	OK(cuMemFreeHost(out));
	OK(cuStreamDestroy(stream));
	end();
}

int main(int argc, char **argv)
{
	CUcontext ctx;
	CUmodule module;

	OK(cuInit(0));
	OK(cuDeviceGet(&dev, 0));
	OK(cuDevicePrimaryCtxRetain(&ctx, dev));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoad(&module, argc > 1 ? argv[1] : ""));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	announced();
	refused();
	copied();
	copied_in_rows();
	registered();
	timed();
	called_back();
	captured();
	OK(cuDevicePrimaryCtxRelease(dev));
	return 0;
}
