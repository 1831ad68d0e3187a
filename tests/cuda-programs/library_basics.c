/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLAS in a program as people write it: the runtime's memory and streams, the library's calls between copies. Prints
 * "ok PART" for each part, or "FAILED PART, line N: what".
 */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda-programs/must.h"

#define N 48

static float a[N * N], b[N * N], c[N * N];

static void fill(void)
{
	for (int i = 0; i < N * N; i++) {
		a[i] = (float)(i % 7) - 3;
		b[i] = (float)(i % 5) - 2;
	}
}

/* Columns first, as cuBLAS has them. */
static float expected(int row, int column)
{
	float x = 0;

	for (int k = 0; k < N; k++)
		x += a[k * N + row] * b[column * N + k];
	return x;
}

static int is_product(const float *m, float times)
{
	for (int row = 0; row < N; row++)
		for (int column = 0; column < N; column++)
			if (m[column * N + row] != times * expected(row, column))
				return 0;
	return 1;
}

/* Nobody waits but the copy back: what is put into a stream runs in its order. */
static void on_a_stream(cublasHandle_t handle, float **d, cudaStream_t stream, const char *part)
{
	const float one = 1, two = 2;

	MUST(part, cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
	MUST(part, cudaMemsetAsync(d[2], 0, sizeof(c), stream) == cudaSuccess);
	for (int i = 0; i < 3; i++)
		MUST(part, cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, i ? &one : &two,
				       d[0], N, d[1], N, &one, d[2], N) == CUBLAS_STATUS_SUCCESS);
	MUST(part, cudaStreamSynchronize(stream) == cudaSuccess);
	MUST(part, cudaMemcpy(c, d[2], sizeof(c), cudaMemcpyDeviceToHost) == cudaSuccess);
	MUST(part, is_product(c, 4));
	printf("ok %s\n", part);
}

/* Captured, they run when the graph does, as often as it does; one whose answer is waited for cannot be captured. */
static void in_a_graph(cublasHandle_t handle, float **d, cudaStream_t stream)
{
	const char *part = "graph";
	const float one = 1;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	int version = 0, major = 0;
	float dot;

	MUST(part, cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
	MUST(part, cudaMemset(d[2], 0, sizeof(c)) == cudaSuccess);
	MUST(part, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
	for (int i = 0; i < 2; i++)
		MUST(part, cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, d[0], N,
				       d[1], N, &one, d[2], N) == CUBLAS_STATUS_SUCCESS);
	/* What is answered from the host is no part of it. */
	MUST(part, cublasGetVersion(handle, &version) == CUBLAS_STATUS_SUCCESS && version > 0);
	MUST(part, cublasGetProperty(MAJOR_VERSION, &major) == CUBLAS_STATUS_SUCCESS);
	MUST(part, cudaStreamEndCapture(stream, &graph) == cudaSuccess);
	MUST(part, cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
	MUST(part, cudaGraphDestroy(graph) == cudaSuccess);
	for (int i = 0; i < 3; i++)
		MUST(part, cudaGraphLaunch(exec, stream) == cudaSuccess);
	MUST(part, cudaStreamSynchronize(stream) == cudaSuccess);
	MUST(part, cudaMemcpy(c, d[2], sizeof(c), cudaMemcpyDeviceToHost) == cudaSuccess);
	MUST(part, is_product(c, 6));
	MUST(part, cudaGraphExecDestroy(exec) == cudaSuccess);
	MUST(part, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
	MUST(part, cublasSdot(handle, N, d[0], 1, d[1], 1, &dot) != CUBLAS_STATUS_SUCCESS);
	MUST(part, cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
	(void)cudaGetLastError();
	printf("ok %s\n", part);
}

/* A result that comes back to the host: the call waits for the ones before it. */
static void to_the_host(cublasHandle_t handle, float **d)
{
	const char *part = "result on the host";
	float dot = 0, wanted = 0;

	for (int i = 0; i < N * N; i++)
		wanted += a[i] * b[i];
	MUST(part, cublasSdot(handle, N * N, d[0], 1, d[1], 1, &dot) == CUBLAS_STATUS_SUCCESS);
	MUST(part, dot == wanted);
	printf("ok %s\n", part);
}

int main(void)
{
	const size_t bytes = sizeof(a);
	cublasHandle_t handle;
	cudaStream_t stream;
	float *d[3];

	fill();
	/* The library before anything of the runtime's: it gets a context of its own accord. */
	MUST("handle", cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
	printf("ok handle\n");
	for (int i = 0; i < 3; i++)
		MUST("memory", cudaMalloc((void **)&d[i], bytes) == cudaSuccess);
	MUST("memory", cudaMemcpy(d[0], a, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
	MUST("memory", cudaMemcpy(d[1], b, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
	printf("ok memory\n");
	on_a_stream(handle, d, NULL, "default stream");
	MUST("stream", cudaStreamCreate(&stream) == cudaSuccess);
	on_a_stream(handle, d, stream, "stream");
	in_a_graph(handle, d, stream);
	to_the_host(handle, d);
	MUST("end", cublasSetStream(handle, (cudaStream_t)0x1234560) == CUBLAS_STATUS_SUCCESS);
	MUST("end", cublasSdot(handle, N, d[0], 1, d[1], 1, &c[0]) != CUBLAS_STATUS_SUCCESS);
	MUST("end", cublasSetStream(handle, NULL) == CUBLAS_STATUS_SUCCESS);
	MUST("end", cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
	MUST("end", cudaStreamDestroy(stream) == cudaSuccess);
	MUST("end", cudaFree(d[0]) == cudaSuccess);
	MUST("end", cudaDeviceSynchronize() == cudaSuccess);
	printf("ok end\n");
	return 0;
}
