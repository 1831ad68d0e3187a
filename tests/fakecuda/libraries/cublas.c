/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <cublasXt.h>
#include <cublas_v2.h>

#include "tests/fakecuda/libraries/fake.h"

#define FAKE_VERSION 130000

struct cublasContext {
	cudaStream_t stream;
	cublasPointerMode_t mode;
};

static atomic_int nhandles;

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
	*handle = calloc(1, sizeof(**handle));
	nhandles += *handle != NULL;
	return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
	if (!handle)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	(void)fake_wait_all(); /* as the real one does; its stream may be gone */
	free(handle);
	nhandles--;
	return CUBLAS_STATUS_SUCCESS;
}

/* The patch level of this one is how many handles there are in the process. */
cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
	*value = type == PATCH_LEVEL ? nhandles : 0;
	return CUBLAS_STATUS_SUCCESS;
}

static void nap(int ms)
{
	const struct timespec time = { ms / 1000, ms % 1000 * 1000000l };

	(void)nanosleep(&time, NULL); /* cut short is a shorter nap */
}

/* As one that compiles first: takes @n milliseconds of the host, and nothing of the device. */
cublasStatus_t cublasSasum_v2(cublasHandle_t handle, int n, const float *x, int incx, float *result)
{
	(void)handle;
	(void)x;
	(void)incx;
	nap(n);
	*result = (float)n;
	return CUBLAS_STATUS_SUCCESS;
}

/* The same of one whose end nobody waits for. */
cublasStatus_t cublasSscal_v2(cublasHandle_t handle, int n, const float *alpha, float *x, int incx)
{
	(void)handle;
	(void)alpha;
	(void)x;
	(void)incx;
	nap(n);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
	if (!handle)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	*version = FAKE_VERSION;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
	handle->mode = mode;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode)
{
	*mode = handle->mode;
	return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_SUCCESS ? "fake success" : "fake failure";
}

struct gemm {
	cublasOperation_t ta, tb;
	int m, n, k, lda, ldb, ldc;
	float alpha, beta; /* by value in host mode */
	const float *alpha_at, *beta_at;
	const float *a, *b;
	float *c;
};

static void gemm(void *args)
{
	const struct gemm *g = args;
	float alpha = g->alpha_at ? *g->alpha_at : g->alpha;
	float beta = g->beta_at ? *g->beta_at : g->beta;

	for (int j = 0; j < g->n; j++)
		for (int i = 0; i < g->m; i++) {
			float sum = 0;

			for (int l = 0; l < g->k; l++)
				sum += (g->ta ? g->a[l + i * g->lda] : g->a[i + l * g->lda]) *
				       (g->tb ? g->b[j + l * g->ldb] : g->b[l + j * g->ldb]);
			g->c[i + j * g->ldc] = alpha * sum +
					       (beta != 0 ? beta * g->c[i + j * g->ldc] : 0);
		}
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
			      cublasOperation_t transb, int m, int n, int k, const float *alpha,
			      const float *A, int lda, const float *B, int ldb, const float *beta,
			      float *C, int ldc)
{
	struct gemm args = { transa, transb, m, n, k, lda, ldb, ldc, 0, 0, NULL, NULL, A, B, C };

	if (!handle)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (m < 0 || n < 0 || k < 0 || !alpha || !beta)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (handle->mode == CUBLAS_POINTER_MODE_HOST) {
		args.alpha = *alpha;
		args.beta = *beta;
	} else {
		args.alpha_at = alpha;
		args.beta_at = beta;
	}
	return fake_enqueue(handle->stream, gemm, &args, sizeof(args))
		       ? CUBLAS_STATUS_EXECUTION_FAILED
		       : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int incx, const float *y,
			     int incy, float *result)
{
	float sum = 0;

	if (!handle)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	if (fake_wait(handle->stream))
		return CUBLAS_STATUS_EXECUTION_FAILED;
	for (int i = 0; i < n; i++)
		sum += x[i * incx] * y[i * incy];
	*result = sum;
	return CUBLAS_STATUS_SUCCESS;
}

/* ---- cublasXt: of matrices on either side, on one device, and done when it returns ---- */

struct cublasXtContext {
	int has_device;
};

cublasStatus_t cublasXtCreate(cublasXtHandle_t *handle)
{
	*handle = calloc(1, sizeof(**handle));
	return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasXtDestroy(cublasXtHandle_t handle)
{
	free(handle);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtDeviceSelect(cublasXtHandle_t handle, int nbDevices, int deviceId[])
{
	if (nbDevices != 1 || deviceId[0] != 0)
		return CUBLAS_STATUS_INVALID_VALUE;
	handle->has_device = 1;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtSgemm(cublasXtHandle_t handle, cublasOperation_t transa,
			     cublasOperation_t transb, size_t m, size_t n, size_t k,
			     const float *alpha, const float *A, size_t lda, const float *B,
			     size_t ldb, const float *beta, float *C, size_t ldc)
{
	struct gemm args = { transa, transb, (int)m, (int)n, (int)k, (int)lda, (int)ldb, (int)ldc,
			     *alpha, *beta,  NULL,   NULL,   A,	     B,	       C };

	if (!handle->has_device)
		return CUBLAS_STATUS_NOT_INITIALIZED;
	gemm(&args);
	return CUBLAS_STATUS_SUCCESS;
}
