/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Driver API through and through, with the image at argv[1], which has the kernels of kernels.cuh: prints a line for each
 * part that went well, and ends with 1 at the first that did not.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

#define N 100000

static CUcontext ctx;
static CUmodule module;
static CUfunction saxpy;

static void devices(void)
{
	int n = 0, version = 0, major = 0, minor = 0, warp = 0;
	CUdevice dev;
	CUuuid uuid;
	char name[100], bus[20];
	size_t bytes;

	begin("devices");
	IS(cuDeviceGetCount(&n), NOT_INITIALIZED);
	IS(cuInit(1), INVALID_VALUE);
	OK(cuInit(0));
	OK(cuInit(0));
	OK(cuDriverGetVersion(&version));
	CHECK(version >= 13000);
	OK(cuDeviceGetCount(&n));
	CHECK(n >= 1);
	IS(cuDeviceGet(&dev, n), INVALID_DEVICE);
	IS(cuDeviceGet(&dev, -1), INVALID_DEVICE);
	IS(cuDeviceGet(NULL, 0), INVALID_VALUE);
	OK(cuDeviceGet(&dev, 0));
	OK(cuDeviceGetName(name, sizeof(name), dev));
	CHECK(name[0] != '\0');
	OK(cuDeviceGetUuid(&uuid, dev));
	OK(cuDeviceTotalMem(&bytes, dev));
	CHECK(bytes > 1 << 20);
	OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev));
	OK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev));
	CHECK(major >= 7);
	OK(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, dev));
	CHECK(warp == 32);
	IS(cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_MAX, dev), INVALID_VALUE);
	OK(cuDeviceGetPCIBusId(bus, sizeof(bus), dev));
	OK(cuDeviceGetByPCIBusId(&dev, bus));
	CHECK(dev == 0);
	end();
}

static void contexts(void)
{
	CUcontext one, other, top = (CUcontext)&one;
	CUdevice dev = 7;
	CUdeviceptr p;

	begin("contexts");
	IS(cuMemAlloc(&p, 100), INVALID_CONTEXT);
	OK(cuCtxGetCurrent(&top));
	CHECK(top == NULL);
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuDevicePrimaryCtxRetain(&one, 0));
	CHECK(one == ctx);
	OK(cuDevicePrimaryCtxRelease(0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuCtxGetDevice(&dev));
	CHECK(dev == 0);
	OK(cuCtxCreate(&other, NULL, 0, 0));
	OK(cuCtxGetCurrent(&top));
	CHECK(top == other);
	OK(cuMemAlloc(&p, 1 << 20));
	OK(cuCtxDestroy(other));
	BAD(cuMemFree(p), INVALID_VALUE);
	OK(cuCtxGetCurrent(&top));
	CHECK(top == ctx);
	BAD(cuCtxDestroy(other), INVALID_CONTEXT);
	BAD(cuCtxPushCurrent((CUcontext)&other), INVALID_CONTEXT);
	BAD(cuCtxSetCurrent(other), INVALID_CONTEXT);
	OK(cuCtxPushCurrent(ctx));
	OK(cuCtxPopCurrent(&top));
	OK(cuCtxSynchronize());
	end();
}

static void modules(const char *path)
{
	static const char source[] = "extern \"C\" __global__ void k() {}";
	static const char nonsense[64] = "no image at all";
	CUfunction none;
	CUdeviceptr scale;
	size_t bytes, off;
	int value;

	begin("modules");
	IS(cuModuleLoad(&module, "/nonexistent"), FILE_NOT_FOUND);
	BAD(cuModuleLoadData(&module, NULL), INVALID_VALUE);
	IS(cuModuleLoadData(&module, source), INVALID_IMAGE);
	IS(cuModuleLoadData(&module, nonsense), INVALID_IMAGE);
	OK(cuModuleLoad(&module, path));
	IS(cuModuleGetFunction(&none, module, "no_such_kernel"), NOT_FOUND);
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, saxpy));
	CHECK(value >= 32);
	OK(cuFuncGetParamInfo(saxpy, 0, &off, &bytes));
	CHECK(off == 0 && bytes == 4);
	OK(cuFuncGetParamInfo(saxpy, 2, &off, &bytes));
	CHECK(off == 8 && bytes == 8);
	IS(cuFuncGetParamInfo(saxpy, 4, &off, &bytes), INVALID_VALUE);
	IS(cuModuleGetGlobal(&scale, &bytes, module, "no_such_variable"), NOT_FOUND);
	BAD(cuModuleGetFunction(&none, (CUmodule)&off, "saxpy"), INVALID_HANDLE);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, saxpy, 128, 0));
	CHECK(value >= 1);
	end();
}

static void memory(void)
{
	CUdeviceptr big, small[300], base;
	unsigned char *out = malloc(5 << 20), *in = malloc(5 << 20);
	unsigned int type = 9;
	size_t bytes, total;
	void *pinned;
	int maps;

	begin("memory");
	IS(cuMemAlloc(&big, 0), INVALID_VALUE);
	IS(cuMemAlloc(&big, (size_t)1 << 50), OUT_OF_MEMORY);
	IS(cuMemAlloc(NULL, 10), INVALID_VALUE);
	OK(cuMemGetInfo(&bytes, &total));
	CHECK(bytes <= total && total > 0);
	OK(cuMemAlloc(&big, 5 << 20));
	CHECK(big % 512 == 0);
	for (size_t i = 0; i < 5u << 20; i++)
		out[i] = (unsigned char)(i * 7 + i / 253);
	OK(cuMemcpyHtoD(big, out, 5 << 20));
	OK(cuMemcpyDtoH(in, big, 5 << 20));
	CHECK(memcmp(in, out, 5 << 20) == 0);
	/* Past the end, before the beginning, from and to nowhere. */
	IS(cuMemcpyDtoH(in, big + 1, 5 << 20), INVALID_VALUE);
	IS(cuMemcpyHtoD(big - 1, out, 2), INVALID_VALUE);
	IS(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)out, in, 10), INVALID_VALUE);
	IS(cuMemcpyDtoH(in, (CUdeviceptr)(uintptr_t)out, 10), INVALID_VALUE);
	IS(cuMemcpyDtoH(in, big, SIZE_MAX), INVALID_VALUE);
	if (!is_native) /* NVIDIA's driver says that it did it */
		IS(cuMemsetD8(big, 1, SIZE_MAX), INVALID_VALUE);
	IS(cuMemsetD32(big + 2, 1, 1), INVALID_VALUE);
	for (int i = 0; i < 300; i++) {
		OK(cuMemAlloc(&small[i], 100 + (size_t)i * 50));
		OK(cuMemsetD8(small[i], (unsigned char)i, 100 + (size_t)i * 50));
	}
	OK(cuMemcpyDtoD(small[299], small[100], 1000));
	OK(cuMemcpyDtoH(in, small[299], 1001));
	CHECK(in[0] == 100 && in[999] == 100 && in[1000] == 299 % 256);
	OK(cuMemcpyDtoH(in, small[0], 100));
	CHECK(in[0] == 0 && in[99] == 0);
	OK(cuMemGetAddressRange(&base, &bytes, small[7] + 30));
	CHECK(base == small[7] && bytes == 100 + 7 * 50);
	IS(cuMemFree(small[7] + 8), INVALID_VALUE);
	for (int i = 0; i < 300; i++)
		OK(cuMemFree(small[i]));
	IS(cuMemFree(small[3]), INVALID_VALUE);
	IS(cuMemcpyDtoH(in, small[3], 10), INVALID_VALUE);

	OK(cuMemHostAlloc(&pinned, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				 (CUdeviceptr)(uintptr_t)pinned));
	CHECK(type == CU_MEMORYTYPE_HOST);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, big + 17));
	CHECK(type == CU_MEMORYTYPE_DEVICE);
	IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				 (CUdeviceptr)(uintptr_t)in),
	   INVALID_VALUE);
	OK(cuDeviceGetAttribute(&maps, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
	if (maps) {
		OK(cuMemHostGetDevicePointer(&base, pinned, 0));
		CHECK(base == (CUdeviceptr)(uintptr_t)pinned);
	}
	OK(cuMemcpyDtoH(pinned, big, 1 << 20));
	CHECK(memcmp(pinned, out, 1 << 20) == 0);
	OK(cuMemsetD32(big, 0x01020304, 1 << 18));
	OK(cuMemcpyHtoD(big, pinned, 4096));
	OK(cuMemcpyDtoH(in, big, 8192));
	CHECK(memcmp(in, out, 4096) == 0 && in[4096] == 4 && in[4099] == 1);
	OK(cuMemFreeHost(pinned));
	IS(cuMemFreeHost(pinned), INVALID_VALUE);
	IS(cuMemFreeHost(in), INVALID_VALUE);
	OK(cuMemFree(big));
	OK(cuMemFree(0));
	free(in);
	free(out);
	end();
}

static void planes(void)
{
	static int in[20][30], out[20][30];
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = in,
			       .srcPitch = sizeof(in[0]),
			       .srcXInBytes = 8,
			       .srcY = 1,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .WidthInBytes = 40,
			       .Height = 19 };
	CUdeviceptr plane;
	size_t pitch;

	begin("planes");
	for (int y = 0; y < 20; y++)
		for (int x = 0; x < 30; x++)
			in[y][x] = y * 100 + x;
	OK(cuMemAllocPitch(&plane, &pitch, 40, 20, 4));
	CHECK(pitch >= 40 && pitch % 512 == 0);
	copy.dstDevice = plane;
	copy.dstPitch = pitch;
	OK(cuMemcpy2D(&copy));
	copy = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = plane,
				.srcPitch = pitch,
				.dstMemoryType = CU_MEMORYTYPE_HOST,
				.dstHost = out,
				.dstPitch = sizeof(out[0]),
				.WidthInBytes = 40,
				.Height = 19 };
	OK(cuMemcpy2D(&copy));
	for (int y = 0; y < 19; y++)
		for (int x = 0; x < 10; x++)
			CHECK(out[y][x] == (y + 1) * 100 + x + 2);
	CHECK(out[0][10] == 0);
	copy.srcPitch = 8;
	IS(cuMemcpy2D(&copy), INVALID_VALUE);
	OK(cuMemsetD2D32(plane, pitch, 7, 5, 20));
	copy.srcPitch = pitch;
	OK(cuMemcpy2D(&copy));
	CHECK(out[18][4] == 7 && out[18][5] == 1907);
	OK(cuMemFree(plane));
	end();
}

static void planes_of_arrays(void)
{
	static int in[20][30], out[20][30];
	const CUDA_ARRAY_DESCRIPTOR desc = {
		.Width = 30, .Height = 20, .Format = CU_AD_FORMAT_SIGNED_INT32, .NumChannels = 1
	};
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			       .srcHost = in,
			       .srcPitch = sizeof(in[0]),
			       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			       .WidthInBytes = sizeof(in[0]),
			       .Height = 20 };
	CUarray array, other;

	begin("planes of arrays");
	for (int y = 0; y < 20; y++)
		for (int x = 0; x < 30; x++)
			in[y][x] = y * 100 + x;
	OK(cuArrayCreate(&array, &desc));
	OK(cuArrayCreate(&other, &desc));
	copy.dstArray = array;
	OK(cuMemcpy2D(&copy));
	copy = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_ARRAY,
				.srcArray = array,
				.srcXInBytes = 8,
				.srcY = 1,
				.dstMemoryType = CU_MEMORYTYPE_ARRAY,
				.dstArray = other,
				.WidthInBytes = 40,
				.Height = 19 };
	OK(cuMemcpy2DAsync(&copy, 0));
	copy = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_ARRAY,
				.srcArray = other,
				.dstMemoryType = CU_MEMORYTYPE_HOST,
				.dstHost = out,
				.dstPitch = sizeof(out[0]),
				.WidthInBytes = 40,
				.Height = 19 };
	OK(cuMemcpy2DUnaligned(&copy));
	for (int y = 0; y < 19; y++)
		for (int x = 0; x < 10; x++)
			CHECK(out[y][x] == (y + 1) * 100 + x + 2);
	CHECK(out[0][10] == 0);
	OK(cuArrayDestroy(other));
	OK(cuArrayDestroy(array));
	end();
}

static void attributes_of_streams(void)
{
	CUstreamAttrValue value = { .accessPolicyWindow = {
					    .hitRatio = 0.5f,
					    .hitProp = CU_ACCESS_PROPERTY_PERSISTING,
					    .missProp = CU_ACCESS_PROPERTY_STREAMING } };
	CUstream one, other;
	int priority;

	begin("attributes of streams");
	OK(cuStreamCreate(&one, CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
	OK(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
	value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_PERSISTING;
	IS(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value),
	   INVALID_VALUE);
	value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_NORMAL;
	value.accessPolicyWindow.hitRatio = 1.5f;
	IS(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value),
	   INVALID_VALUE);
	IS(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, NULL),
	   INVALID_VALUE);
	OK(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
	CHECK(value.syncPolicy == CU_SYNC_POLICY_AUTO);
	value.syncPolicy = CU_SYNC_POLICY_YIELD;
	OK(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
	OK(cuStreamCopyAttributes(other, one));
	OK(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
	CHECK(value.syncPolicy == CU_SYNC_POLICY_YIELD);
	OK(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
	CHECK(value.accessPolicyWindow.hitRatio == 0.5f);
	CHECK(value.accessPolicyWindow.missProp == CU_ACCESS_PROPERTY_STREAMING);
	OK(cuStreamGetPriority(one, &priority));
	OK(cuStreamGetAttribute(one, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
	CHECK(value.priority == priority);
	OK(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
	IS(cuStreamGetAttribute(one, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), INVALID_VALUE);
	OK(cuCtxResetPersistingL2Cache());
	OK(cuStreamDestroy(other));
	OK(cuStreamDestroy(one));
	BAD(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_PRIORITY, &value), INVALID_HANDLE);
	end();
}

static float *numbers(float first)
{
	float *made = malloc(N * sizeof(*made));

	for (int i = 0; i < N; i++)
		made[i] = first + (float)(i % 1000);
	return made;
}

static void launches(void)
{
	struct {
		int n;
		float a;
		CUdeviceptr x, y;
	} packed;
	float *x = numbers(1), *y = numbers(5), *got = malloc(N * sizeof(*got));
	size_t bytes = sizeof(packed);
	CUdeviceptr dx, dy;
	int n = N;
	float a = 2;
	void *params[] = { &n, &a, &dx, &dy };
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	begin("launches");
	OK(cuMemAlloc(&dx, N * sizeof(float)));
	OK(cuMemAlloc(&dy, N * sizeof(float)));
	OK(cuMemcpyHtoD(dx, x, N * sizeof(float)));
	OK(cuMemcpyHtoD(dy, y, N * sizeof(float)));
	OK(cuLaunchKernel(saxpy, (N + 255) / 256, 1, 1, 256, 1, 1, 0, 0, params, NULL));
	packed.n = N;
	packed.a = 3;
	packed.x = dx;
	packed.y = dy;
	OK(cuLaunchKernel(saxpy, (N + 255) / 256, 1, 1, 256, 1, 1, 0, 0, NULL, extra));
	OK(cuMemcpyDtoH(got, dy, N * sizeof(float)));
	for (int i = 0; i < N; i++)
		CHECK(got[i] == 5 * x[i] + y[i]);
	IS(cuLaunchKernel(saxpy, 0, 1, 1, 256, 1, 1, 0, 0, params, NULL), INVALID_VALUE);
	IS(cuLaunchKernel(saxpy, 1, 1, 1, 4096, 1, 1, 0, 0, params, NULL), INVALID_VALUE);
	IS(cuLaunchKernel(saxpy, 1, 1, 1, 1, 1, 1, 64 << 20, 0, params, NULL), INVALID_VALUE);
	IS(cuLaunchKernel(saxpy, 1, 1, 1, 1, 1, 1, 0, 0, params, extra), INVALID_VALUE);
	IS(cuLaunchKernel(saxpy, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL), INVALID_VALUE);
	bytes = 8;
	IS(cuLaunchKernel(saxpy, 1, 1, 1, 1, 1, 1, 0, 0, NULL, extra), INVALID_VALUE);
	IS(cuLaunchKernel((CUfunction)&bytes, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL),
	   INVALID_HANDLE);
	IS(cuLaunchKernel(saxpy, 1, 1, 1, 1, 1, 1, 0, (CUstream)&bytes, params, NULL),
	   INVALID_HANDLE);
	OK(cuCtxSynchronize());
	OK(cuMemFree(dx));
	OK(cuMemFree(dy));
	free(x);
	free(y);
	free(got);
	end();
}

static int called;

static void CUDA_CB on_host(void *data)
{
	CUdeviceptr p;

	/* CUDA is not to be called from here. */
	if (cuMemAlloc(&p, 16) == CUDA_ERROR_NOT_PERMITTED)
		called += *(int *)data;
}

static void CUDA_CB on_stream(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	if (status == CUDA_SUCCESS)
		called += *(int *)data;
}

static void streams(void)
{
	CUstream one, other;
	CUevent begun, ended, plain;
	CUdeviceptr p;
	unsigned int value = 0;
	float ms = -1;
	int ten = 10, hundred = 100;
	void *pinned;

	begin("streams");
	OK(cuStreamCreate(&one, CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&begun, CU_EVENT_DEFAULT));
	OK(cuEventCreate(&ended, CU_EVENT_DEFAULT));
	OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	OK(cuEventQuery(plain));
	IS(cuEventElapsedTime(&ms, begun, ended), INVALID_HANDLE);
	OK(cuMemAlloc(&p, 1 << 20));
	OK(cuMemHostAlloc(&pinned, 1 << 20, 0));
	OK(cuEventRecord(begun, one));
	for (unsigned int i = 0; i < 200; i++)
		OK(cuMemsetD32Async(p, i, 1 << 18, one));
	OK(cuEventRecord(ended, one));
	OK(cuEventRecord(plain, one));
	OK(cuStreamWaitEvent(other, plain, 0));
	OK(cuMemcpyDtoHAsync(pinned, p, 1 << 20, other));
	OK(cuStreamSynchronize(other));
	CHECK(((unsigned int *)pinned)[77] == 199);
	OK(cuEventSynchronize(ended));
	OK(cuEventElapsedTime(&ms, begun, ended));
	CHECK(ms >= 0 && ms < 60000);
	IS(cuEventElapsedTime(&ms, begun, plain), INVALID_HANDLE);
	/* The legacy stream waits for blocking ones, and they for it. */
	OK(cuMemsetD32Async(p, 5, 1 << 18, one));
	OK(cuMemcpyDtoH(&value, p + 400, 4));
	CHECK(value == 5);
	OK(cuMemsetD32Async(p, 6, 1 << 18, 0));
	OK(cuMemcpyDtoHAsync(&value, p + 400, 4, one));
	OK(cuStreamSynchronize(one));
	CHECK(value == 6);
	/* Functions of ours between tasks. */
	OK(cuLaunchHostFunc(one, on_host, &ten));
	OK(cuStreamAddCallback(one, on_stream, &hundred, 0));
	OK(cuLaunchHostFunc(one, on_host, &ten));
	OK(cuMemsetD32Async(p, 8, 1 << 18, one));
	OK(cuStreamSynchronize(one));
	CHECK(called == 120);
	OK(cuMemcpyDtoH(&value, p, 4));
	CHECK(value == 8);
	OK(cuStreamQuery(one));
	OK(cuStreamDestroy(one));
	BAD(cuStreamDestroy(one), INVALID_HANDLE);
	BAD(cuStreamSynchronize(one), INVALID_HANDLE);
	OK(cuEventDestroy(begun));
	BAD(cuEventDestroy(begun), INVALID_HANDLE);
	BAD(cuEventRecord(begun, other), INVALID_HANDLE);
	OK(cuStreamDestroy(other));
	OK(cuEventDestroy(ended));
	OK(cuEventDestroy(plain));
	OK(cuMemFreeHost(pinned));
	OK(cuMemFree(p));
	end();
}

static void many_streams(void)
{
	CUstream all[100];
	CUdeviceptr p;
	unsigned int value;

	begin("many streams");
	OK(cuMemAlloc(&p, 4096));
	for (unsigned int i = 0; i < 100; i++) {
		OK(cuStreamCreate(&all[i], i % 2 ? CU_STREAM_NON_BLOCKING : 0));
		OK(cuMemsetD32Async(p + 4ul * i, i, 1, all[i]));
	}
	for (unsigned int i = 0; i < 100; i++)
		OK(cuStreamSynchronize(all[i]));
	for (unsigned int i = 0; i < 100; i++) {
		OK(cuMemcpyDtoH(&value, p + 4ul * i, 4));
		CHECK(value == i);
		OK(cuStreamDestroy(all[i]));
	}
	OK(cuMemFree(p));
	end();
}

static void entry_points(void)
{
	CUdriverProcAddressQueryResult status;
	CUresult (*alloc)(CUdeviceptr *, size_t);
	const void *table = "untouched";
	CUdeviceptr p;
	CUuuid id = { { 0 } };
	unsigned int mask;
	char luid[8];
	void *fn;
	CUresult (*first)(CUdevice *);
	CUresult (*second)(CUdevice *, CUcontext);
	CUgreenCtx green = (CUgreenCtx)&status;
	CUdevice dev = -1, other = -2;
	CUcontext found = NULL;

	begin("entry points");
	OK(cuGetProcAddress("cuMemAlloc", (void **)&alloc, 13000, 0, &status));
	CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(alloc(&p, 64));
	OK(cuMemFree(p));
	/* Of a name that has got another form beside the first each version has its own. */
	OK(cuGetProcAddress("cuCtxGetDevice", (void **)&first, 12000, 0, &status));
	OK(cuGetProcAddress("cuCtxGetDevice", (void **)&second, 13000, 0, &status));
	CHECK(first && second && (void *)first != (void *)second);
	OK(first(&dev));
	OK(second(&other, ctx));
	CHECK(dev == other);
	IS(second(&other, (CUcontext)&other), INVALID_CONTEXT);
	OK(cuGetProcAddress("cuCtxSynchronize", &fn, 2000, 0, &status));
	OK(((CUresult(*)(void))fn)());
	OK(cuGetProcAddress("cuCtxSynchronize", &fn, 13000, 0, &status));
	OK(((CUresult(*)(CUcontext))fn)(ctx));
	OK(cuGetProcAddress("cuStreamGetCtx", &fn, 9020, 0, &status));
	OK(((CUresult(*)(CUstream, CUcontext *))fn)(NULL, &found));
	CHECK(found == ctx);
	OK(cuGetProcAddress("cuStreamGetCtx", &fn, 12050, 0, &status));
	OK(((CUresult(*)(CUstream, CUcontext *, CUgreenCtx *))fn)(NULL, &found, &green));
	CHECK(found == ctx && !green);
	OK(cuGetProcAddress("cuProfilerStart", &fn, 13000, 0, &status));
	OK(((CUresult(*)(void))fn)());
	OK(cuGetProcAddress("cuProfilerStop", &fn, 4000, 0, &status));
	OK(((CUresult(*)(void))fn)());
	OK(cuGetProcAddress("cuNoSuchThing", &fn, 13000, 0, &status));
	CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND && !fn);
	OK(cuGetProcAddress("cuLibraryLoadData", &fn, 2000, 0, &status));
	CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && !fn);
	OK(cuGetProcAddress("cuMemcpyHtoDAsync", &fn, 13000,
			    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
	CHECK(fn != (void *)cuMemcpyHtoDAsync);
	BAD(cuGetExportTable(&table, &id), NOT_SUPPORTED);
	BAD(cuDeviceGetLuid(luid, &mask, 0), NOT_SUPPORTED);
	end();
}

static void unloaded(void)
{
	void *params[4] = { 0 };

	begin("use after the end");
	OK(cuModuleUnload(module));
	BAD(cuModuleUnload(module), INVALID_HANDLE);
	BAD(cuLaunchKernel(saxpy, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL), INVALID_HANDLE);
	OK(cuDevicePrimaryCtxRelease(0));
	BAD(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
	IS(cuDevicePrimaryCtxRelease(0), INVALID_CONTEXT);
	end();
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 3)
		return 2;
	is_native = argc == 3;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	devices();
	contexts();
	modules(argv[1]);
	memory();
	planes();
	planes_of_arrays();
	launches();
	streams();
	many_streams();
	attributes_of_streams();
	entry_points();
	unloaded();
	return 0;
}
