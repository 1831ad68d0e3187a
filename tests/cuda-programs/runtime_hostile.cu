/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input over the Runtime API: the error that CUDA documents, which is the last error until it is asked for, and what is good goes on. */
#include <cstdint>
#include <cstring>

#include "runtime_parts.cuh"
#include "kernels.cuh"

static float *memory; /* 4 KiB */

static void still_works()
{
	float value = 0;

	OK(cudaGetLastError());
	OK(cudaMemset(memory, 0, 4096));
	number<<<1, 64>>>((pair){ memory, 7, {} }, 64);
	OK(cudaGetLastError());
	OK(cudaMemcpy(&value, memory + 63, 4, cudaMemcpyDeviceToHost));
	CHECK(value == 70);
}

/* What a call answers is the last error too, once. */
static void refused(cudaError_t is, cudaError_t wanted, int line)
{
	must(is, wanted, line);
	must(cudaPeekAtLastError(), wanted, line);
	must(cudaGetLastError(), wanted, line);
	must(cudaGetLastError(), cudaSuccess, line);
}
#define REFUSED(call, code) refused(call, cudaError##code, __LINE__)

static void devices()
{
	cudaDeviceProp prop;
	int n, value;

	part = "devices that are none";
	OK(cudaGetDeviceCount(&n));
	REFUSED(cudaSetDevice(-1), InvalidDevice);
	REFUSED(cudaSetDevice(n), InvalidDevice);
	REFUSED(cudaGetDeviceProperties(&prop, n), InvalidDevice);
	REFUSED(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, -1), InvalidDevice);
	REFUSED(cudaDeviceGetAttribute(&value, (cudaDeviceAttr)100000, 0), InvalidValue);
	REFUSED(cudaGetDeviceCount(nullptr), InvalidValue);
	still_works();
	end();
}

static void functions()
{
	static int not_a_function;
	cudaFuncAttributes attributes;
	void *params[4] = {};
	void *symbol = nullptr;
	size_t bytes;

	part = "functions and symbols that are none";
	REFUSED(cudaLaunchKernel(&not_a_function, dim3(1), dim3(1), params, 0, 0), InvalidDeviceFunction);
	REFUSED(cudaLaunchCooperativeKernel(&not_a_function, dim3(1), dim3(1), params, 0, 0), InvalidDeviceFunction);
	REFUSED(cudaFuncGetAttributes(&attributes, &not_a_function), InvalidDeviceFunction);
	REFUSED(cudaFuncSetAttribute(&not_a_function, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024), InvalidDeviceFunction);
	REFUSED(cudaMemcpyToSymbol(&not_a_function, &bytes, 4), InvalidSymbol);
	REFUSED(cudaGetSymbolAddress(&symbol, &not_a_function), InvalidSymbol);
	REFUSED(cudaGetSymbolSize(&bytes, &not_a_function), InvalidSymbol);
	CHECK(!symbol);
	number<<<0, 64>>>((pair){ memory, 0, {} }, 64);
	REFUSED(cudaPeekAtLastError(), InvalidConfiguration);
	number<<<1, 100000>>>((pair){ memory, 0, {} }, 64);
	REFUSED(cudaPeekAtLastError(), InvalidConfiguration);
	still_works();
	end();
}

static void handles()
{
	cudaStream_t stream, none = (cudaStream_t)(uintptr_t)4096;
	cudaEvent_t event;
	float ms;

	part = "handles that are none";
	OK(cudaStreamCreate(&stream));
	OK(cudaEventCreate(&event));
	REFUSED(cudaStreamSynchronize((cudaStream_t)event), InvalidResourceHandle);
	REFUSED(cudaEventRecord((cudaEvent_t)stream), InvalidResourceHandle);
	REFUSED(cudaStreamQuery(none), InvalidResourceHandle);
	REFUSED(cudaMemsetAsync(memory, 0, 16, none), InvalidResourceHandle);
	number<<<1, 64, 0, none>>>((pair){ memory, 0, {} }, 64);
	REFUSED(cudaPeekAtLastError(), InvalidResourceHandle);
	OK(cudaStreamDestroy(stream));
	OK(cudaEventDestroy(event));
	REFUSED(cudaStreamDestroy(stream), InvalidResourceHandle);
	REFUSED(cudaStreamWaitEvent(0, event, 0), InvalidResourceHandle);
	REFUSED(cudaEventElapsedTime(&ms, event, event), InvalidResourceHandle);
	still_works();
	end();
}

static void sizes()
{
	cudaPitchedPtr pitched = {};
	cudaArray_t array = nullptr;
	cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
	void *p = nullptr;
	size_t pitch;

	part = "sizes that overflow";
	REFUSED(cudaMalloc(&p, SIZE_MAX), MemoryAllocation);
	REFUSED(cudaMallocHost(&p, SIZE_MAX), MemoryAllocation);
	REFUSED(cudaMallocManaged(&p, SIZE_MAX), MemoryAllocation);
	REFUSED(cudaMallocAsync(&p, SIZE_MAX, 0), MemoryAllocation);
	CHECK(cudaMallocPitch(&p, &pitch, SIZE_MAX / 2, 4) != cudaSuccess);
	CHECK(cudaMalloc3D(&pitched, make_cudaExtent((size_t)1 << 40, (size_t)1 << 40, 4)) != cudaSuccess);
	CHECK(cudaMallocArray(&array, &channel, SIZE_MAX, SIZE_MAX) != cudaSuccess);
	(void)cudaGetLastError();
	CHECK(!p && !array && !pitched.ptr);
	REFUSED(cudaMemset(memory, 0, SIZE_MAX), InvalidValue);
	REFUSED(cudaMemcpy(memory, memory + 16, SIZE_MAX - 63, cudaMemcpyDeviceToDevice), InvalidValue);
	REFUSED(cudaMemset2D(memory, (size_t)1 << 40, 0, 16, (size_t)1 << 40), InvalidValue);
	REFUSED(cudaMemcpy2D(memory, (size_t)1 << 62, memory + 64, (size_t)1 << 62, 16, 8, cudaMemcpyDeviceToDevice), InvalidValue);
	still_works();
	end();
}

static void pointers()
{
	static float mine[1024];
	float *freed, value = 3;
	cudaPointerAttributes attributes;

	part = "pointers of nobody and of the host";
	OK(cudaMalloc(&freed, 4 << 20));
	OK(cudaFree(freed));
	float *wrong[] = { freed, memory + 1024, (float *)(uintptr_t)16, mine };
	for (float *p : wrong) {
		REFUSED(cudaMemcpy(p, &value, 4, cudaMemcpyHostToDevice), InvalidValue);
		REFUSED(cudaMemcpy(&value, p, 4, cudaMemcpyDeviceToHost), InvalidValue);
		REFUSED(cudaMemcpy(p, memory, 4, cudaMemcpyDeviceToDevice), InvalidValue);
		REFUSED(cudaMemset(p, 0, 4), InvalidValue);
		REFUSED(cudaFree(p), InvalidValue);
		REFUSED(cudaFreeHost(p), InvalidValue);
	}
	CHECK(value == 3 && mine[0] == 0);
	REFUSED(cudaFree(memory + 1), InvalidValue);
	REFUSED(cudaMemcpy(memory, &value, 4, (cudaMemcpyKind)9), InvalidMemcpyDirection);
	OK(cudaPointerGetAttributes(&attributes, mine));
	CHECK(attributes.type == cudaMemoryTypeUnregistered);
	still_works();
	end();
}

static int nwrong, ncalled;

static void CUDART_CB call_back(void *data)
{
	void *p = nullptr;

	(void)data;
	nwrong += cudaMalloc(&p, 16) != cudaErrorNotPermitted;
	nwrong += cudaDeviceSynchronize() != cudaErrorNotPermitted;
	nwrong += cudaMemset(memory, 1, 16) != cudaErrorNotPermitted;
	nwrong += cudaStreamSynchronize(0) != cudaErrorNotPermitted;
	nwrong += cudaFree(memory) != cudaErrorNotPermitted;
	nwrong += cudaDeviceReset() != cudaErrorNotPermitted;
	ncalled++;
}

static void callbacks()
{
	part = "callbacks that call back";
	OK(cudaLaunchHostFunc(0, call_back, nullptr));
	OK(cudaDeviceSynchronize());
	CHECK(ncalled == 1 && nwrong == 0);
	still_works();
	end();
}

static void after_the_reset()
{
	cudaStream_t stream;
	float *old = memory;

	part = "after the reset";
	OK(cudaStreamCreate(&stream));
	OK(cudaMemsetAsync(memory, 1, 4096, stream));
	OK(cudaDeviceReset());
	REFUSED(cudaStreamSynchronize(stream), InvalidResourceHandle);
	REFUSED(cudaFree(old), InvalidValue);
	OK(cudaMalloc(&memory, 4096));
	still_works();
	end();
}

int main()
{
	(void)setvbuf(stdout, nullptr, _IOLBF, 0);
	OK(cudaMalloc(&memory, 4096));
	devices();
	functions();
	handles();
	sizes();
	pointers();
	callbacks();
	after_the_reset();
	return 0;
}
