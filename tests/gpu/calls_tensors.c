/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's descriptors: calls that nobody waits for, and those that take them along. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <cudnn.h>

#include "tests/gpu/calls_guest.h"

#define N	64
#define MANY	500
#define SO	"libcudnn.so.9"
#define F(name) __typeof__(&name) f_##name = (__typeof__(&name))calls_function(folder, SO, #name)

static int tensors_alive(const char *folder)
{
	int n = -1;
	F(cudnnGetProperty);

	return f_cudnnGetProperty(PATCH_LEVEL, &n) == 0 ? n : -1;
}

/* A tensor of @n numbers at @at is set to @value, by descriptors made for it alone. */
static int set_once(const char *folder, cudnnHandle_t handle, float *at, int n, float value)
{
	const int dims[4] = { 1, 1, n, 1 }, strides[4] = { n, n, 1, 1 };
	cudnnTensorDescriptor_t desc = NULL;
	int good;
	F(cudnnCreateTensorDescriptor);
	F(cudnnSetTensorNdDescriptor);
	F(cudnnSetTensor);
	F(cudnnDestroyTensorDescriptor);

	good = f_cudnnCreateTensorDescriptor(&desc) == 0 && desc &&
	       f_cudnnSetTensorNdDescriptor(desc, CUDNN_DATA_FLOAT, 4, dims, strides) == 0 &&
	       f_cudnnSetTensor(handle, desc, at, &value) == 0;
	return f_cudnnDestroyTensorDescriptor(desc) == 0 && good &&
	       f_cudnnDestroyTensorDescriptor(desc) != 0;
}

void try_tensors(const char *folder, void *stream)
{
	static float numbers[N];
	const int none[4] = { 1, 0, 1, 1 }, dims[4] = { 1, 1, N, 1 }, strides[4] = { N, N, 1, 1 };
	cudnnTensorDescriptor_t desc = NULL, derived = NULL;
	cudnnHandle_t handle = NULL;
	size_t bytes = 0;
	int good = 1, had;
	F(cudnnCreate);
	F(cudnnDestroy);
	F(cudnnSetStream);
	F(cudnnCreateTensorDescriptor);
	F(cudnnSetTensorNdDescriptor);
	F(cudnnDeriveBNTensorDescriptor);
	F(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize);
	F(cudnnDestroyTensorDescriptor);

	had = tensors_alive(folder);
	calls_tell(f_cudnnCreate(&handle) == 0, "a handle of cuDNN's is made");
	for (int i = 0; i < MANY && good; i++)
		good = f_cudnnSetStream(handle, i % 3 ? NULL : stream) == 0 &&
		       set_once(folder, handle, calls_at(0), N, (float)i);
	calls_read(0, numbers, sizeof(numbers));
	for (int i = 0; i < N; i++)
		good = good && numbers[i] == MANY - 1;
	calls_tell(good, "five hundred tensors are set, by a descriptor each, in their order");
	calls_tell(tensors_alive(folder) == had, "and none of those is left");

	good = f_cudnnCreateTensorDescriptor(&desc) == 0 &&
	       f_cudnnCreateTensorDescriptor(&derived) == 0 &&
	       f_cudnnSetTensorNdDescriptor(desc, CUDNN_DATA_FLOAT, 4, dims, strides) == 0 &&
	       f_cudnnDeriveBNTensorDescriptor(derived, desc, CUDNN_BATCHNORM_SPATIAL) == 0 &&
	       f_cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
		       handle, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, desc, NULL, desc,
		       derived, NULL, &bytes) == 0;
	calls_tell(good && bytes == N * sizeof(float), "an answer knows what was said before it");
	good = f_cudnnSetTensorNdDescriptor(desc, CUDNN_DATA_FLOAT, 4, none, strides) == 0;
	calls_tell(good && f_cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
				   handle, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, desc,
				   NULL, desc, derived, NULL, &bytes) == CUDNN_STATUS_BAD_PARAM,
		   "what nobody waited for and failed is told by the next that waits");
	calls_tell(f_cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
			   handle, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, desc, NULL,
			   desc, derived, NULL, &bytes) == 0 &&
			   bytes == N * sizeof(float),
		   "and once, and the descriptor is what it was");
	calls_tell(tensors_alive(folder) == had + 2, "two are there");
	good = f_cudnnDestroyTensorDescriptor(desc) == 0 &&
	       f_cudnnDestroyTensorDescriptor(derived) == 0;
	calls_tell(good && tensors_alive(folder) == had, "and then none");
	calls_tell(f_cudnnDestroy(handle) == 0, "the handle of cuDNN's ends");
}

/* What a layer calls that normalizes a batch, as PyTorch's does; its kernel is a tensor that is set. */
static int normalize(const char *folder, cudnnHandle_t handle, int n)
{
	const int dims[4] = { 1, 1, N, 1 }, strides[4] = { N, N, 1, 1 };
	const float one = 1;
	cudnnTensorDescriptor_t x = NULL, derived = NULL;
	size_t work = 0, reserve = 0;
	int good = 1;
	F(cudnnCreateTensorDescriptor);
	F(cudnnSetTensorNdDescriptor);
	F(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize);
	F(cudnnGetBatchNormalizationTrainingExReserveSpaceSize);
	F(cudnnSetTensor);
	F(cudnnDestroyTensorDescriptor);

	for (int i = 0; i < n && good; i++)
		good = f_cudnnCreateTensorDescriptor(&x) == 0 &&
		       f_cudnnSetTensorNdDescriptor(x, CUDNN_DATA_FLOAT, 4, dims, strides) == 0 &&
		       f_cudnnCreateTensorDescriptor(&derived) == 0 &&
		       f_cudnnSetTensorNdDescriptor(derived, CUDNN_DATA_FLOAT, 4, dims, strides) ==
			       0 &&
		       f_cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
			       handle, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, x, NULL, x,
			       derived, NULL, &work) == 0 &&
		       f_cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
			       handle, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, NULL, x,
			       &reserve) == 0 &&
		       f_cudnnSetTensor(handle, x, calls_at(0), &one) == 0 &&
		       f_cudnnDestroyTensorDescriptor(derived) == 0 &&
		       f_cudnnDestroyTensorDescriptor(x) == 0;
	return good;
}

void measure_tensors(const char *folder, int n)
{
	cudnnHandle_t handle = NULL;
	double began;
	uint64_t had;
	int good;
	F(cudnnCreate);
	F(cudnnDestroy);

	/* The first ones are looked at more closely. */
	good = f_cudnnCreate(&handle) == 0 && normalize(folder, handle, 100);
	had = calls_tasks();
	began = calls_now_us();
	good = good && normalize(folder, handle, n) && tensors_alive(folder) >= 0;
	printf("normalized %.2f us\n", (calls_now_us() - began) / n);
	printf("tasks %.2f\n", (double)(calls_tasks() - had) / n);
	calls_tell(good && f_cudnnDestroy(handle) == 0, "layers");
}
