/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A product of cuSPARSE whose result goes to the program's memory, or to the device's, at once and in a graph. Prints "ok PART" for
 * each part, or "FAILED PART, line N: what".
 */
#include <cuda_runtime_api.h>
#include <cusparse.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda-programs/must.h"

#define N     100
#define TIMES 50

static struct {
	cusparseHandle_t handle;
	cusparseSpVecDescr_t x;
	cusparseDnVecDescr_t y;
	void *work;
	float *values;
} all;

static cusparseStatus_t multiply(void *result)
{
	return cusparseSpVV(all.handle, CUSPARSE_OPERATION_NON_TRANSPOSE, all.x, all.y, result,
			    CUDA_R_32F, all.work);
}

/* Whose sum is N times that. */
static void fill(const char *part, float with)
{
	float values[N];

	for (int i = 0; i < N; i++)
		values[i] = with;
	MUST(part,
	     cudaMemcpy(all.values, values, sizeof(values), cudaMemcpyHostToDevice) == cudaSuccess);
}

static void make(const char *part)
{
	int indices[N], *at;
	float ones[N], *y, unused;
	size_t bytes = 0;

	for (int i = 0; i < N; i++) {
		indices[i] = i;
		ones[i] = 1;
	}
	MUST(part, cudaMalloc((void **)&at, sizeof(indices)) == cudaSuccess);
	MUST(part, cudaMalloc((void **)&all.values, sizeof(ones)) == cudaSuccess);
	MUST(part, cudaMalloc((void **)&y, sizeof(ones)) == cudaSuccess);
	MUST(part, cudaMemcpy(at, indices, sizeof(indices), cudaMemcpyHostToDevice) == cudaSuccess);
	MUST(part, cudaMemcpy(y, ones, sizeof(ones), cudaMemcpyHostToDevice) == cudaSuccess);
	MUST(part, cusparseCreate(&all.handle) == CUSPARSE_STATUS_SUCCESS);
	MUST(part,
	     cusparseCreateSpVec(&all.x, N, N, at, all.values, CUSPARSE_INDEX_32I,
				 CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F) == CUSPARSE_STATUS_SUCCESS);
	MUST(part, cusparseCreateDnVec(&all.y, N, y, CUDA_R_32F) == CUSPARSE_STATUS_SUCCESS);
	MUST(part,
	     cusparseSpVV_bufferSize(all.handle, CUSPARSE_OPERATION_NON_TRANSPOSE, all.x, all.y,
				     &unused, CUDA_R_32F, &bytes) == CUSPARSE_STATUS_SUCCESS);
	MUST(part, cudaMalloc(&all.work, bytes ? bytes : 1) == cudaSuccess);
	printf("ok %s\n", part);
}

static void at_once(const char *part)
{
	float result = 0;

	fill(part, 2);
	MUST(part, multiply(&result) == CUSPARSE_STATUS_SUCCESS);
	MUST(part, cudaDeviceSynchronize() == cudaSuccess);
	MUST(part, result == 2 * N);
	printf("ok %s\n", part);
}

static cudaGraphExec_t capture(const char *part, cudaStream_t stream, float *results, int n)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	MUST(part, cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
	for (int i = 0; i < TIMES; i++)
		MUST(part, multiply(&results[i % n]) == CUSPARSE_STATUS_SUCCESS);
	MUST(part, cudaStreamEndCapture(stream, &graph) == cudaSuccess);
	MUST(part, cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
	MUST(part, cudaGraphDestroy(graph) == cudaSuccess);
	return exec;
}

/* Nothing is written before the graph runs, and each time what is right then. */
static void in_a_graph(const char *part, cudaStream_t stream)
{
	float results[4] = { -1, -1, -1, -1 };
	cudaGraphExec_t exec = capture(part, stream, results, 3);

	MUST(part, results[0] == -1 && results[2] == -1);
	for (int with = 3; with < 6; with++) {
		fill(part, (float)with);
		MUST(part, cudaGraphLaunch(exec, stream) == cudaSuccess);
		MUST(part, cudaStreamSynchronize(stream) == cudaSuccess);
		for (int i = 0; i < 3; i++)
			MUST(part, results[i] == (float)(with * N));
		MUST(part, results[3] == -1);
	}
	MUST(part, cudaGraphExecDestroy(exec) == cudaSuccess);
	printf("ok %s\n", part);
}

static void to_the_device(const char *part, cudaStream_t stream)
{
	cudaGraphExec_t exec;
	float *d, result = 0;

	fill(part, 7);
	MUST(part, cudaMalloc((void **)&d, sizeof(*d)) == cudaSuccess);
	MUST(part, cudaMemset(d, 0, sizeof(*d)) == cudaSuccess);
	MUST(part, cusparseSetPointerMode(all.handle, CUSPARSE_POINTER_MODE_DEVICE) ==
			   CUSPARSE_STATUS_SUCCESS);
	exec = capture(part, stream, d, 1);
	MUST(part, cudaGraphLaunch(exec, stream) == cudaSuccess);
	MUST(part, cudaStreamSynchronize(stream) == cudaSuccess);
	MUST(part, cudaMemcpy(&result, d, sizeof(result), cudaMemcpyDeviceToHost) == cudaSuccess);
	MUST(part, result == 7 * N);
	MUST(part, cudaGraphExecDestroy(exec) == cudaSuccess);
	MUST(part, cudaFree(d) == cudaSuccess);
	printf("ok %s\n", part);
}

int main(void)
{
	cudaStream_t stream;

	make("vectors");
	at_once("at once");
	MUST("stream", cudaStreamCreate(&stream) == cudaSuccess);
	MUST("stream", cusparseSetStream(all.handle, stream) == CUSPARSE_STATUS_SUCCESS);
	at_once("on a stream");
	in_a_graph("graph, result on the host", stream);
	to_the_device("graph, result on the device", stream);
	MUST("end", cusparseDestroySpVec(all.x) == CUSPARSE_STATUS_SUCCESS);
	MUST("end", cusparseDestroyDnVec(all.y) == CUSPARSE_STATUS_SUCCESS);
	MUST("end", cusparseDestroy(all.handle) == CUSPARSE_STATUS_SUCCESS);
	MUST("end", cudaStreamDestroy(stream) == cudaSuccess);
	MUST("end", cudaDeviceSynchronize() == cudaSuccess);
	printf("ok end\n");
	return 0;
}
