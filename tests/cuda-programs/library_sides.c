/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLAS's scalars and results in memory that the program and the device both have: pinned, managed and registered. A handle looks for
 * them where its pointer mode says, not where they lie. Prints "ok PART" for each part, or "FAILED PART, line N: what".
 */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda-programs/must.h"

#define N    16
#define PAGE 4096

static float *d[3]; /* ones, ones, a product */

static cublasStatus_t multiply(cublasHandle_t handle, const float *alpha, const float *beta)
{
	return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, alpha, d[0], N, d[1], N, beta,
			   d[2], N);
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

/* Read when the call is made, and written by the time it returns. */
static void on_the_host(const char *part, cublasHandle_t handle, float *s)
{
	s[0] = 2;
	s[1] = 0;
	s[2] = -1;
	MUST(part, multiply(handle, &s[0], &s[1]) == CUBLAS_STATUS_SUCCESS);
	s[0] = 5;
	s[1] = 5;
	MUST(part, is_everywhere(2 * N));
	MUST(part, cublasSdot(handle, N, d[0], 1, d[1], 1, &s[2]) == CUBLAS_STATUS_SUCCESS);
	MUST(part, s[2] == N);
}

/* Read and written when the device comes there, by its address, which of registered memory may be another one. */
static void on_the_device(const char *part, cublasHandle_t handle, float *s, float *at)
{
	s[0] = 3;
	s[1] = 1;
	s[2] = -1;
	MUST(part,
	     cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE) == CUBLAS_STATUS_SUCCESS);
	MUST(part, multiply(handle, &at[0], &at[1]) == CUBLAS_STATUS_SUCCESS);
	MUST(part, cublasSdot(handle, N, d[0], 1, d[1], 1, &at[2]) == CUBLAS_STATUS_SUCCESS);
	MUST(part, is_everywhere(5 * N));
	MUST(part, s[2] == N);
	MUST(part, cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST) == CUBLAS_STATUS_SUCCESS);
}

static void on_both(const char *part, cublasHandle_t handle, float *s, float *at)
{
	on_the_host(part, handle, s);
	on_the_device(part, handle, s, at);
	on_the_host(part, handle, at);
	printf("ok %s\n", part);
}

int main(void)
{
	float ones[N * N], *pinned, *managed, *registered = aligned_alloc(PAGE, PAGE), *at;
	cublasHandle_t handle;

	for (int i = 0; i < N * N; i++)
		ones[i] = 1;
	MUST("made", cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
	for (int i = 0; i < 3; i++) {
		MUST("made", cudaMalloc((void **)&d[i], sizeof(ones)) == cudaSuccess);
		MUST("made",
		     cudaMemcpy(d[i], ones, sizeof(ones), cudaMemcpyHostToDevice) == cudaSuccess);
	}
	MUST("made", cudaMallocHost((void **)&pinned, PAGE) == cudaSuccess);
	MUST("made",
	     cudaMallocManaged((void **)&managed, PAGE, cudaMemAttachGlobal) == cudaSuccess);
	MUST("made", registered && cudaHostRegister(registered, PAGE, 0) == cudaSuccess);
	MUST("made", cudaHostGetDevicePointer((void **)&at, registered, 0) == cudaSuccess);
	printf("ok made\n");
	on_both("pinned", handle, pinned, pinned);
	on_both("managed", handle, managed, managed);
	on_both("registered", handle, registered, at);
	MUST("end", cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
	MUST("end", cudaHostUnregister(registered) == cudaSuccess);
	MUST("end", cudaFree(managed) == cudaSuccess);
	MUST("end", cudaFreeHost(pinned) == cudaSuccess);
	for (int i = 0; i < 3; i++)
		MUST("end", cudaFree(d[i]) == cudaSuccess);
	free(registered);
	printf("ok end\n");
	return 0;
}
