/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads and one stream: a call of cuBLAS, which has to wait for an earlier one with its handle, and a graph that there is no room for at once. The call
 * comes before the graph or behind it, not into it. Prints "ok PART" for each part, or "FAILED PART, line N: what".
 */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/cuda-programs/must.h"

#define NODES 3000
#define NAP_MS \
	600 /* the stand-in's scaling of so many numbers takes so long, and waits for no device */
#define LATER	(2 * NAP_MS)
#define ROUNDS	2
#define NUMBERS (NAP_MS + 3)

static struct {
	cublasHandle_t handle;
	cudaStream_t one, two;
	cudaGraphExec_t graph;
	float *device; /* [0] the word, [1] what the graph saw there, [2] a one, [3] a two, then room for numbers */
	sem_t let_go;
} all;

static void pause_ms(long ms)
{
	const struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	(void)nanosleep(&time, NULL);
}

/* The word gets a one first of all, and is looked at last. */
static void make_graph(const char *part)
{
	cudaGraph_t graph;

	MUST(part,
	     cudaStreamBeginCapture(all.two, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
	MUST(part, cudaMemcpyAsync(all.device, all.device + 2, sizeof(float),
				   cudaMemcpyDeviceToDevice, all.two) == cudaSuccess);
	for (int i = 0; i < NODES; i++)
		MUST(part,
		     cudaMemsetAsync(all.device + 4, i, sizeof(float), all.two) == cudaSuccess);
	MUST(part, cudaMemcpyAsync(all.device + 1, all.device, sizeof(float),
				   cudaMemcpyDeviceToDevice, all.two) == cudaSuccess);
	MUST(part, cudaStreamEndCapture(all.two, &graph) == cudaSuccess);
	MUST(part, cudaGraphInstantiate(&all.graph, graph, 0) == cudaSuccess);
	MUST(part, cudaGraphDestroy(graph) == cudaSuccess);
}

static void hold_stream(void *data)
{
	(void)data;
	(void)sem_wait(&all.let_go);
}

static void *let_go_later(void *data)
{
	(void)data;
	pause_ms(LATER);
	(void)sem_post(&all.let_go);
	return NULL;
}

/* Puts a two into the word. */
static void *call_beside(void *data)
{
	const char *part = data;
	const float one = 1, none = 0;

	MUST(part, cublasSetStream(all.handle, all.two) == CUBLAS_STATUS_SUCCESS);
	MUST(part,
	     cublasSscal(all.handle, NAP_MS, &one, all.device + 4, 1) == CUBLAS_STATUS_SUCCESS);
	MUST(part, cublasSetStream(all.handle, all.one) == CUBLAS_STATUS_SUCCESS);
	MUST(part,
	     cublasSgemm(all.handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, all.device + 2, 1,
			 all.device + 3, 1, &none, all.device, 1) == CUBLAS_STATUS_SUCCESS);
	return NULL;
}

static void put_whole(const char *part)
{
	pthread_t caller, releaser;
	float seen[2];

	MUST(part, cudaLaunchHostFunc(all.one, hold_stream, NULL) == cudaSuccess);
	MUST(part, pthread_create(&caller, NULL, call_beside, (void *)(size_t)part) == 0);
	MUST(part, pthread_create(&releaser, NULL, let_go_later, NULL) == 0);
	pause_ms(NAP_MS / 3); /* the caller waits by now */
	MUST(part, cudaGraphLaunch(all.graph, all.one) == cudaSuccess);
	(void)pthread_join(caller, NULL);
	(void)pthread_join(releaser, NULL);
	MUST(part, cudaDeviceSynchronize() == cudaSuccess);
	MUST(part,
	     cudaMemcpy(seen, all.device, sizeof(seen), cudaMemcpyDeviceToHost) == cudaSuccess);
	MUST(part, seen[1] == 1);
}

int main(void)
{
	const float numbers[4] = { 0, 0, 1, 2 };

	MUST("made", sem_init(&all.let_go, 0, 0) == 0);
	MUST("made", cudaMalloc((void **)&all.device, NUMBERS * sizeof(float) + 64) == cudaSuccess);
	MUST("made", cudaMemset(all.device, 0, NUMBERS * sizeof(float) + 64) == cudaSuccess);
	MUST("made", cudaMemcpy(all.device, numbers, sizeof(numbers), cudaMemcpyHostToDevice) ==
			     cudaSuccess);
	MUST("made", cudaStreamCreateWithFlags(&all.one, cudaStreamNonBlocking) == cudaSuccess);
	MUST("made", cudaStreamCreateWithFlags(&all.two, cudaStreamNonBlocking) == cudaSuccess);
	MUST("made", cublasCreate(&all.handle) == CUBLAS_STATUS_SUCCESS);
	make_graph("made");
	printf("ok made\n");
	for (int i = 0; i < ROUNDS; i++)
		put_whole("whole");
	printf("ok whole\n");
	MUST("end", cublasDestroy(all.handle) == CUBLAS_STATUS_SUCCESS);
	MUST("end", cudaGraphExecDestroy(all.graph) == cudaSuccess);
	MUST("end", cudaStreamDestroy(all.one) == cudaSuccess);
	MUST("end", cudaStreamDestroy(all.two) == cudaSuccess);
	MUST("end", cudaFree(all.device) == cudaSuccess);
	printf("ok end\n");
	return 0;
}
