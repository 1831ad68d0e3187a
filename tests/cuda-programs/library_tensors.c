/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN's values, which it reads on the host whatever they lie in: the program's own memory, pinned and managed memory. Prints
 * "ok PART" for each part, or "FAILED PART, line N: what".
 */
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda-programs/must.h"

#define N 64

static cudnnHandle_t handle;
static cudnnTensorDescriptor_t tensor;
static float *d;

static int is_everywhere(float wanted)
{
	float numbers[N];

	if (cudaMemcpy(numbers, d, sizeof(numbers), cudaMemcpyDeviceToHost) != cudaSuccess)
		return 0;
	for (int i = 0; i < N; i++)
		if (numbers[i] != wanted)
			return 0;
	return 1;
}

/* Read when the call is made. */
static void set(const char *part, float *value, float to)
{
	*value = to;
	MUST(part, cudnnSetTensor(handle, tensor, d, value) == CUDNN_STATUS_SUCCESS);
	*value = -1;
	MUST(part, is_everywhere(to));
	printf("ok %s\n", part);
}

int main(void)
{
	const int dims[4] = { 1, 1, N, 1 }, strides[4] = { N, N, 1, 1 };
	float own, *pinned, *managed;

	MUST("made", cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
	MUST("made", cudaMalloc((void **)&d, N * sizeof(float)) == cudaSuccess);
	MUST("made", cudaMallocHost((void **)&pinned, sizeof(*pinned)) == cudaSuccess);
	MUST("made", cudaMallocManaged((void **)&managed, sizeof(*managed), cudaMemAttachGlobal) ==
			     cudaSuccess);
	MUST("made", cudnnCreateTensorDescriptor(&tensor) == CUDNN_STATUS_SUCCESS);
	MUST("made", cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_FLOAT, 4, dims, strides) ==
			     CUDNN_STATUS_SUCCESS);
	printf("ok made\n");
	set("own", &own, 1);
	set("pinned", pinned, 2);
	set("managed", managed, 3);
	/* What lies on the device alone cannot be read, and nothing is set. */
	MUST("device", cudnnSetTensor(handle, tensor, d, d) != CUDNN_STATUS_SUCCESS);
	MUST("device", is_everywhere(3));
	printf("ok device\n");
	MUST("end", cudnnDestroyTensorDescriptor(tensor) == CUDNN_STATUS_SUCCESS);
	MUST("end", cudnnDestroy(handle) == CUDNN_STATUS_SUCCESS);
	MUST("end", cudaFree(managed) == cudaSuccess);
	MUST("end", cudaFreeHost(pinned) == cudaSuccess);
	MUST("end", cudaFree(d) == cudaSuccess);
	printf("ok end\n");
	return 0;
}
