/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include <cudnn.h>

#include "tests/fakecuda/libraries/fake.h"

struct cudnnContext {
	cudaStream_t stream;
};

/* One sort for all that is asked of them here. */
struct cudnnTensorStruct {
	int ndims; /* 0: nothing was set */
	int dims[CUDNN_DIM_MAX];
};

static atomic_int ntensors;

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
	*handle = calloc(1, sizeof(**handle));
	return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
	(void)fake_wait_all(); /* as the real one does; its stream may be gone */
	free(handle);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

/* The patch level of this one is how many descriptors of tensors there are in the process. */
cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value)
{
	*value = type == PATCH_LEVEL ? ntensors : 0;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensorDesc)
{
	*tensorDesc = calloc(1, sizeof(**tensorDesc));
	ntensors += *tensorDesc != NULL;
	return *tensorDesc ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensorDesc)
{
	free(tensorDesc);
	ntensors--;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensorDesc,
					 cudnnDataType_t dataType, int nbDims, const int dimA[],
					 const int strideA[])
{
	(void)dataType;
	(void)strideA;
	if (nbDims < 3 || nbDims > CUDNN_DIM_MAX)
		return CUDNN_STATUS_NOT_SUPPORTED;
	for (int i = 0; i < nbDims; i++)
		if (dimA[i] < 1)
			return CUDNN_STATUS_BAD_PARAM;
	tensorDesc->ndims = nbDims;
	for (int i = 0; i < nbDims; i++)
		tensorDesc->dims[i] = dimA[i];
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derivedBnDesc,
					    const cudnnTensorDescriptor_t xDesc,
					    cudnnBatchNormMode_t mode)
{
	(void)mode;
	if (xDesc->ndims == 0)
		return CUDNN_STATUS_BAD_PARAM;
	*derivedBnDesc = *xDesc;
	for (int i = 0; i < xDesc->ndims; i++)
		if (i != 1)
			derivedBnDesc->dims[i] = 1;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t bytes_of(const cudnnTensorDescriptor_t desc, size_t *sizeInBytes)
{
	size_t bytes = sizeof(float);

	if (!desc || desc->ndims == 0)
		return CUDNN_STATUS_BAD_PARAM;
	for (int i = 0; i < desc->ndims; i++)
		bytes *= (size_t)desc->dims[i];
	*sizeInBytes = bytes;
	return CUDNN_STATUS_SUCCESS;
}

/* What it wants to work in is what its input takes. */
cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
	cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
	const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t zDesc,
	const cudnnTensorDescriptor_t yDesc, const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc,
	const cudnnActivationDescriptor_t activationDesc, size_t *sizeInBytes)
{
	(void)handle;
	(void)mode;
	(void)bnOps;
	(void)zDesc;
	(void)yDesc;
	(void)bnScaleBiasMeanVarDesc;
	(void)activationDesc;
	return bytes_of(xDesc, sizeInBytes);
}

cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
	cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
	const cudnnActivationDescriptor_t activationDesc, const cudnnTensorDescriptor_t xDesc,
	size_t *sizeInBytes)
{
	(void)handle;
	(void)mode;
	(void)bnOps;
	(void)activationDesc;
	return bytes_of(xDesc, sizeInBytes);
}

struct set {
	float *at;
	size_t n;
	float value;
};

static void set(void *args)
{
	const struct set *s = args;

	for (size_t i = 0; i < s->n; i++)
		s->at[i] = s->value;
}

cudnnStatus_t cudnnSetTensor(cudnnHandle_t handle, const cudnnTensorDescriptor_t yDesc, void *y,
			     const void *valuePtr)
{
	struct set args = { y, 0, *(const float *)valuePtr };
	cudnnStatus_t status = bytes_of(yDesc, &args.n);

	args.n /= sizeof(float);
	if (status == CUDNN_STATUS_SUCCESS &&
	    fake_enqueue(handle->stream, set, &args, sizeof(args)))
		status = CUDNN_STATUS_EXECUTION_FAILED;
	return status;
}
