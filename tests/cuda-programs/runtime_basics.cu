/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program as people write them, over the Runtime API: prints a line for each part that went well, and the same on a GPU of
 * the machine's own. Ends with 1 at the first part that did not.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#include "kernels.cuh"
#include "runtime_parts.cuh"

static void device()
{
	cudaDeviceProp prop;
	int n = 0, at = -1;

	part = "device";
	OK(cudaGetDeviceCount(&n));
	CHECK(n >= 1);
	IS(cudaSetDevice(n), cudaErrorInvalidDevice);
	IS(cudaGetLastError(), cudaErrorInvalidDevice);
	OK(cudaGetLastError());
	OK(cudaSetDevice(0));
	OK(cudaGetDevice(&at));
	CHECK(at == 0);
	OK(cudaGetDeviceProperties(&prop, 0));
	CHECK(prop.warpSize == 32 && prop.name[0] && prop.totalGlobalMem > 0);
	end();
}

static void launch()
{
	const int n = 100000;
	std::vector<float> x(n), y(n), got(n);
	float *dx, *dy;

	part = "launch";
	for (int i = 0; i < n; i++) {
		x[i] = float(i % 777);
		y[i] = float(i % 55);
	}
	OK(cudaMalloc(&dx, n * sizeof(float)));
	OK(cudaMalloc(&dy, n * sizeof(float)));
	OK(cudaMemcpy(dx, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
	OK(cudaMemcpy(dy, y.data(), n * sizeof(float), cudaMemcpyDefault));
	for (int i = 0; i < 50; i++)
		saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, dx, dy);
	OK(cudaGetLastError());
	OK(cudaDeviceSynchronize());
	OK(cudaMemcpy(got.data(), dy, n * sizeof(float), cudaMemcpyDeviceToHost));
	for (int i = 0; i < n; i++)
		CHECK(got[i] == 100 * x[i] + y[i]);
	saxpy<<<0, 256>>>(n, 2.0f, dx, dy);
	IS(cudaGetLastError(), cudaErrorInvalidConfiguration);
	OK(cudaFree(dx));
	OK(cudaFree(dy));
	OK(cudaFree(nullptr));
	IS(cudaFree(dx), cudaErrorInvalidValue);
	(void)cudaGetLastError();
	end();
}

static void structures()
{
	const int n = 5000;
	float *x, *total, got = 0;

	part = "structures";
	OK(cudaMalloc(&x, n * sizeof(float)));
	OK(cudaMalloc(&total, sizeof(float)));
	OK(cudaMemset(total, 0, sizeof(float)));
	number<<<(n + 127) / 128, 128>>>(pair{ x, 3, {} }, n);
	sum<<<(n + 127) / 128, 128>>>(x, n, total);
	OK(cudaMemcpy(&got, total, sizeof(got), cudaMemcpyDeviceToHost));
	CHECK(got > 12500000.f && got < 12520000.f);
	OK(cudaFree(x));
	OK(cudaFree(total));
	end();
}

static void planes()
{
	const int rows = 37, columns = 61;
	std::vector<float> in(rows * columns), out(rows * columns);
	float *din, *dout;
	size_t pitch;
	char *padded;

	part = "planes";
	for (int i = 0; i < rows * columns; i++)
		in[i] = float(i);
	OK(cudaMalloc(&din, in.size() * sizeof(float)));
	OK(cudaMalloc(&dout, in.size() * sizeof(float)));
	OK(cudaMallocPitch((void **)&padded, &pitch, columns * sizeof(float), rows));
	OK(cudaMemcpy2D(padded, pitch, in.data(), columns * sizeof(float), columns * sizeof(float), rows,
			cudaMemcpyHostToDevice));
	OK(cudaMemcpy2D(din, columns * sizeof(float), padded, pitch, columns * sizeof(float), rows,
			cudaMemcpyDeviceToDevice));
	transpose<<<dim3(4, 3), dim3(16, 16)>>>(din, dout, rows, columns);
	OK(cudaMemcpy(out.data(), dout, out.size() * sizeof(float), cudaMemcpyDeviceToHost));
	for (int y = 0; y < rows; y++)
		for (int x = 0; x < columns; x++)
			CHECK(out[x * rows + y] == in[y * columns + x]);
	OK(cudaFree(din));
	OK(cudaFree(dout));
	OK(cudaFree(padded));
	end();
}

static void CUDART_CB on_host(void *data)
{
	*(int *)data += 1;
}

static void streams()
{
	const int n = 1 << 16;
	cudaStream_t one, two;
	cudaEvent_t begun, ended;
	float *pinned, *x, ms = -1;
	int calls = 0, maps = 0;

	part = "streams";
	OK(cudaStreamCreate(&one));
	OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
	OK(cudaEventCreate(&begun));
	OK(cudaEventCreate(&ended));
	OK(cudaMallocHost(&pinned, n * sizeof(float)));
	OK(cudaMalloc(&x, n * sizeof(float)));
	OK(cudaEventRecord(begun, one));
	number<<<n / 256, 256, 0, one>>>(pair{ x, 1, {} }, n);
	OK(cudaEventRecord(ended, one));
	OK(cudaLaunchHostFunc(one, on_host, &calls));
	OK(cudaStreamWaitEvent(two, ended, 0));
	OK(cudaMemcpyAsync(pinned, x, n * sizeof(float), cudaMemcpyDeviceToHost, two));
	OK(cudaStreamSynchronize(two));
	CHECK(pinned[0] == 1 && pinned[n - 1] == float(n));
	OK(cudaStreamSynchronize(one));
	CHECK(calls == 1);
	OK(cudaEventElapsedTime(&ms, begun, ended));
	CHECK(ms >= 0);
	/* Kernels work on pinned memory where it lies, but for devices that have no address for it. */
	OK(cudaDeviceGetAttribute(&maps, cudaDevAttrCanMapHostMemory, 0));
	if (maps)
		number<<<n / 256, 256, 0, one>>>(pair{ pinned, 1000, {} }, n);
	OK(cudaStreamSynchronize(one));
	CHECK(pinned[5] == (maps ? 1005 : 6));
	OK(cudaStreamDestroy(one));
	OK(cudaStreamDestroy(two));
	OK(cudaEventDestroy(begun));
	OK(cudaEventDestroy(ended));
	OK(cudaFreeHost(pinned));
	OK(cudaFree(x));
	end();
}

#ifndef FAKE_SO
static void variables()
{
	const int n = 1000;
	float f = 2.5f, *x;
	int count = 7;
	void *address;
	size_t bytes;

	part = "variables";
	OK(cudaMemcpyToSymbol(factor, &f, sizeof(f)));
	OK(cudaMemcpyToSymbol(counter, &count, sizeof(count)));
	OK(cudaGetSymbolAddress(&address, counter));
	OK(cudaGetSymbolSize(&bytes, counter));
	CHECK(bytes == sizeof(int));
	OK(cudaMalloc(&x, n * sizeof(float)));
	number<<<4, 256>>>(pair{ x, 0, {} }, n);
	scale_and_count<<<4, 256>>>(x, n);
	OK(cudaMemcpyFromSymbol(&count, counter, sizeof(count)));
	CHECK(count == n + 7);
	OK(cudaMemcpy(&f, x + 10, sizeof(f), cudaMemcpyDeviceToHost));
	CHECK(f == 25);
	OK(cudaFree(x));
	end();
}

static void shared()
{
	const int n = 1 << 14;
	float got[2], *x;
	int blocks = 0;

	part = "shared memory";
	OK(cudaMalloc(&x, n * sizeof(float)));
	number<<<n / 256, 256>>>(pair{ x, 0, {} }, n);
	reverse<<<n / 256, 256, 256 * sizeof(float)>>>(x);
	OK(cudaMemcpy(got, x, sizeof(got), cudaMemcpyDeviceToHost));
	CHECK(got[0] == 255 && got[1] == 254);
	OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, 256, 1024));
	CHECK(blocks >= 1);
	OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
	reverse<<<1, 256, 64 << 10>>>(x);
	OK(cudaDeviceSynchronize());
	OK(cudaFree(x));
	end();
}

static void managed()
{
	float *x;

	part = "managed memory";
	OK(cudaMallocManaged(&x, 1 << 20));
	x[3] = 5;
	number<<<1, 256>>>(pair{ x, 1, {} }, 3);
	OK(cudaDeviceSynchronize());
	CHECK(x[0] == 1 && x[2] == 3 && x[3] == 5);
	OK(cudaFree(x));
	end();
}

static void fault()
{
	float *x;

	part = "fault";
	stray<<<1, 1>>>((int *)16);
	IS(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	IS(cudaMalloc(&x, 16), cudaErrorIllegalAddress);
	IS(cudaGetLastError(), cudaErrorIllegalAddress);
	IS(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	end();
}
#endif

int main()
{
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	device();
	launch();
	structures();
	planes();
	streams();
#ifndef FAKE_SO
	variables();
	shared();
	managed();
	fault();
#endif
	return 0;
}
