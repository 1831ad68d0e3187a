/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of cuBLAS is captured, and the graph launched, while an earlier one with the same handle waits in another stream for what the
 * program does only then. Here calls with one handle are made in the program's order, whatever their streams, so the graph comes behind. Prints
 * "ok PART" for each part, or "FAILED PART, line N: what".
 */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda-programs/must.h"

#define N 16

static float *d[3]; /* ones, ones, a product */
static atomic_int may_go;

static void CUDART_CB wait_for_the_program(void *data)
{
	(void)data;
	while (!may_go)
		(void)sched_yield();
}

static cublasStatus_t multiply(cublasHandle_t handle, float alpha)
{
	const float zero = 0;

	return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &alpha, d[0], N, d[1], N,
			   &zero, d[2], N);
}

static int is_everywhere(float wanted)
{
	float c[N * N];

	if (cudaMemcpy(c, d[2], sizeof(c), cudaMemcpyDeviceToHost) != cudaSuccess)
		return 0;
	for (int i = 0; i < N * N; i++)
		if (c[i] != wanted)
			return 0;
	return 1;
}

static cudaGraphExec_t capture(const char *part, cublasHandle_t handle, cudaStream_t stream)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	MUST(part, cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
	MUST(part, cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
	MUST(part, multiply(handle, 2) == CUBLAS_STATUS_SUCCESS);
	MUST(part, cudaStreamEndCapture(stream, &graph) == cudaSuccess);
	MUST(part, cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
	MUST(part, cudaGraphDestroy(graph) == cudaSuccess);
	printf("ok %s\n", part);
	return exec;
}

int main(void)
{
	cudaStream_t waiting, captured, other;
	cublasHandle_t handle;
	cudaGraphExec_t exec;
	float ones[N * N];

	for (int i = 0; i < N * N; i++)
		ones[i] = 1;
	MUST("made", cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
	for (int i = 0; i < 3; i++) {
		MUST("made", cudaMalloc((void **)&d[i], sizeof(ones)) == cudaSuccess);
		MUST("made",
		     cudaMemcpy(d[i], ones, sizeof(ones), cudaMemcpyHostToDevice) == cudaSuccess);
	}
	MUST("made", cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking) == cudaSuccess);
	MUST("made", cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking) == cudaSuccess);
	MUST("made", cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
	MUST("made", cublasSetStream(handle, waiting) == CUBLAS_STATUS_SUCCESS);
	MUST("made", cudaLaunchHostFunc(waiting, wait_for_the_program, NULL) == cudaSuccess);
	MUST("made", multiply(handle, 1) == CUBLAS_STATUS_SUCCESS);
	printf("ok made\n");
	exec = capture("captured", handle, captured);
	MUST("launched", cudaGraphLaunch(exec, captured) == cudaSuccess);
	/* What else there is goes on. */
	for (int i = 0; i < 50; i++)
		MUST("launched",
		     cudaStreamSynchronize(other) == cudaSuccess &&
			     cudaMemcpyAsync(ones, d[0], sizeof(ones), cudaMemcpyDeviceToHost,
					     other) == cudaSuccess);
	MUST("launched", cudaStreamQuery(waiting) == cudaErrorNotReady);
	MUST("launched", cudaStreamQuery(captured) == cudaErrorNotReady);
	may_go = 1;
	MUST("launched", cudaDeviceSynchronize() == cudaSuccess);
	MUST("launched", is_everywhere(2 * N));
	printf("ok launched\n");
	/* What it came behind is long past. */
	MUST("again", cudaMemset(d[2], 0, sizeof(ones)) == cudaSuccess);
	MUST("again", cudaGraphLaunch(exec, captured) == cudaSuccess);
	MUST("again", cudaStreamSynchronize(captured) == cudaSuccess);
	MUST("again", is_everywhere(2 * N));
	printf("ok again\n");
	MUST("end", cudaGraphExecDestroy(exec) == cudaSuccess);
	MUST("end", cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
	MUST("end", cudaStreamDestroy(waiting) == cudaSuccess);
	MUST("end", cudaStreamDestroy(captured) == cudaSuccess);
	MUST("end", cudaStreamDestroy(other) == cudaSuccess);
	for (int i = 0; i < 3; i++)
		MUST("end", cudaFree(d[i]) == cudaSuccess);
	printf("ok end\n");
	return 0;
}
