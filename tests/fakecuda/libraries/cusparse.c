/* SPDX-License-Identifier: Apache-2.0 */
/* The product of a sparse vector and a dense one. Its result comes with the stream, to the host too. */
#include <stdlib.h>

#include <cusparse.h>

#include "tests/fakecuda/libraries/fake.h"

struct cusparseContext {
	cudaStream_t stream;
	cusparsePointerMode_t mode;
};

struct cusparseSpVecDescr {
	int64_t nnz;
	const int *indices;
	const float *values;
};

struct cusparseDnVecDescr {
	const float *values;
};

cusparseStatus_t cusparseCreate(cusparseHandle_t *handle)
{
	*handle = calloc(1, sizeof(**handle));
	return *handle ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;
}

cusparseStatus_t cusparseDestroy(cusparseHandle_t handle)
{
	free(handle);
	return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseGetPointerMode(cusparseHandle_t handle, cusparsePointerMode_t *mode)
{
	*mode = handle->mode;
	return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t handle, cusparsePointerMode_t mode)
{
	handle->mode = mode;
	return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateSpVec(cusparseSpVecDescr_t *vector, int64_t size, int64_t nnz,
				     void *indices, void *values, cusparseIndexType_t index_type,
				     cusparseIndexBase_t base, cudaDataType type)
{
	if (size < nnz || index_type != CUSPARSE_INDEX_32I || base != CUSPARSE_INDEX_BASE_ZERO ||
	    type != CUDA_R_32F)
		return CUSPARSE_STATUS_INVALID_VALUE;
	*vector = malloc(sizeof(**vector));
	if (*vector)
		**vector = (struct cusparseSpVecDescr){ nnz, indices, values };
	return *vector ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;
}

cusparseStatus_t cusparseDestroySpVec(cusparseConstSpVecDescr_t vector)
{
	free((void *)(uintptr_t)vector);
	return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t *vector, int64_t size, void *values,
				     cudaDataType type)
{
	if (size < 0 || type != CUDA_R_32F)
		return CUSPARSE_STATUS_INVALID_VALUE;
	*vector = malloc(sizeof(**vector));
	if (*vector)
		(*vector)->values = values;
	return *vector ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;
}

cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t vector)
{
	free((void *)(uintptr_t)vector);
	return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpVV_bufferSize(cusparseHandle_t handle, cusparseOperation_t op,
					 cusparseConstSpVecDescr_t x, cusparseConstDnVecDescr_t y,
					 const void *result, cudaDataType type, size_t *ret_bytes)
{
	(void)handle, (void)op, (void)x, (void)y, (void)result;
	*ret_bytes = 8;
	return type == CUDA_R_32F ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_NOT_SUPPORTED;
}

struct product {
	struct cusparseSpVecDescr x;
	const float *y;
	float *result;
};

static void multiply(void *args)
{
	const struct product *p = args;
	float sum = 0;

	for (int64_t i = 0; i < p->x.nnz; i++)
		sum += p->x.values[i] * p->y[p->x.indices[i]];
	*p->result = sum;
}

cusparseStatus_t cusparseSpVV(cusparseHandle_t handle, cusparseOperation_t op,
			      cusparseConstSpVecDescr_t x, cusparseConstDnVecDescr_t y,
			      void *result, cudaDataType type, void *buffer)
{
	const struct product product = { *x, y->values, result };

	(void)buffer;
	if (op != CUSPARSE_OPERATION_NON_TRANSPOSE || type != CUDA_R_32F)
		return CUSPARSE_STATUS_NOT_SUPPORTED;
	if (fake_enqueue(handle->stream, multiply, &product, sizeof(product)))
		return CUSPARSE_STATUS_EXECUTION_FAILED;
	/* A copy to memory that is not pinned is there when it returns. */
	if (handle->mode == CUSPARSE_POINTER_MODE_HOST && fake_wait(handle->stream))
		return CUSPARSE_STATUS_EXECUTION_FAILED;
	return CUSPARSE_STATUS_SUCCESS;
}
