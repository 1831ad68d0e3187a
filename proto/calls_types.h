/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For code that tools/stubgen made: what annotation files use to say how long something is. It comes after the
 * vendor's headers, whose types it names.
 */
#ifndef GANTRY_PROTO_CALLS_TYPES_H
#define GANTRY_PROTO_CALLS_TYPES_H

#include <stdint.h>
#include <string.h>

/* What a function answers with that says how long another's answer is: behind its last argument. */
#define gantry_length(function)				gantry_length_##function
#define gantry_length_nvrtcGetNumSupportedArchs		int
#define gantry_length_nvrtcGetPTXSize			size_t
#define gantry_length_nvrtcGetCUBINSize			size_t
#define gantry_length_nvrtcGetLTOIRSize			size_t
#define gantry_length_nvrtcGetOptiXIRSize		size_t
#define gantry_length_nvrtcGetProgramLogSize		size_t
#define gantry_length_cusolverSpXcsrperm_bufferSizeHost size_t

__extension__ typedef __int128 gantry_wide;

/* A number of elements, however large. */
static inline int64_t gantry_count(gantry_wide count)
{
	return count > INT64_MAX ? INT64_MAX : count < 0 ? 0 : (int64_t)count;
}

/* Bytes of @n elements of @elem_bytes that lie @inc apart. */
static inline int64_t gantry_span(gantry_wide n_wide, gantry_wide inc_wide, gantry_wide elem_wide)
{
	int64_t n = (int64_t)n_wide, inc = (int64_t)inc_wide, elem_bytes = (int64_t)elem_wide;
	int64_t gaps, bytes;

	if (n <= 0 || elem_bytes <= 0 || inc == INT64_MIN)
		return 0;
	if (__builtin_mul_overflow(n - 1, inc < 0 ? -inc : inc, &gaps) || gaps == INT64_MAX ||
	    __builtin_mul_overflow(gaps + 1, elem_bytes, &bytes))
		return INT64_MAX;
	return bytes;
}

/* Of a matrix by columns that lie @ld elements apart. */
static inline int64_t gantry_matrix_span(gantry_wide rows_wide, gantry_wide cols_wide,
					 gantry_wide ld_wide, gantry_wide elem_wide)
{
	int64_t rows = (int64_t)rows_wide, cols = (int64_t)cols_wide, ld = (int64_t)ld_wide;
	int64_t elem_bytes = (int64_t)elem_wide, count;

	/* Columns that overlap no library takes. */
	if (rows <= 0 || cols <= 0 || elem_bytes <= 0 || ld < rows)
		return 0;
	if (__builtin_mul_overflow(cols - 1, ld, &count) ||
	    __builtin_add_overflow(count, rows, &count) ||
	    __builtin_mul_overflow(count, elem_bytes, &count))
		return INT64_MAX;
	return count;
}

static inline int64_t gantry_limit(gantry_wide value, int64_t max)
{
	return value > max ? max : value < 0 ? 0 : (int64_t)value;
}

#if defined(__LIBRARY_TYPES_H__)
/* Of one value. Types that this does not know are as long as the longest. */
static inline int64_t gantry_bytes_of(cudaDataType type)
{
	switch (type) {
	case CUDA_R_8I:
	case CUDA_R_8U:
		return 1;
	case CUDA_R_16F:
	case CUDA_R_16BF:
		return 2;
	case CUDA_R_32F:
	case CUDA_R_32I:
	case CUDA_R_32U:
	case CUDA_C_16F:
	case CUDA_C_16BF:
		return 4;
	case CUDA_R_64F:
	case CUDA_C_32F:
		return 8;
	default:
		return 16;
	}
}
#endif

#if defined(CUBLAS_API_H_)
/* Elements of a matrix by columns; INT64_MAX where no library takes it: that is more than can be sent. */
static inline int64_t gantry_columns_span(gantry_wide rows, gantry_wide columns, gantry_wide ld)
{
	if (rows <= 0 || columns <= 0)
		return 0;
	if (ld < rows || ld > UINT32_MAX || columns > UINT32_MAX)
		return INT64_MAX;
	return gantry_matrix_span(rows, columns, ld, 1);
}

/* Of one that has @rows rows when @op has turned it. */
static inline int64_t gantry_turned_span(cublasOperation_t op, gantry_wide rows,
					 gantry_wide columns, gantry_wide ld)
{
	switch (op) {
	case CUBLAS_OP_N:
		return gantry_columns_span(rows, columns, ld);
	case CUBLAS_OP_T:
	case CUBLAS_OP_C:
		return gantry_columns_span(columns, rows, ld);
	default:
		return INT64_MAX;
	}
}

/* Rows of a square one on that side of one of @m rows and @n columns; negative: there is no such side. */
static inline gantry_wide gantry_rows_of_side(cublasSideMode_t side, gantry_wide m, gantry_wide n)
{
	return side == CUBLAS_SIDE_LEFT ? m : side == CUBLAS_SIDE_RIGHT ? n : -1;
}

static inline int64_t gantry_sided_span(cublasSideMode_t side, gantry_wide m, gantry_wide n,
					gantry_wide ld)
{
	gantry_wide rows = gantry_rows_of_side(side, m, n);

	return rows < 0 ? INT64_MAX : gantry_columns_span(rows, rows, ld);
}

/* Of which one half is there. */
static inline int64_t gantry_packed_span(cublasSideMode_t side, gantry_wide m, gantry_wide n)
{
	gantry_wide rows = gantry_rows_of_side(side, m, n);

	/* Of so many the half is more than can be sent. */
	return rows < 0 || rows > UINT32_MAX ? INT64_MAX : (int64_t)(rows * (rows + 1) / 2);
}

/* Of a scalar of a product computed so. */
static inline int64_t gantry_bytes_of_compute(cublasComputeType_t type, cudaDataType of)
{
	int64_t parts = of == CUDA_C_32F || of == CUDA_C_64F ? 2 : 1;

	switch (type) {
	case CUBLAS_COMPUTE_16F:
	case CUBLAS_COMPUTE_16F_PEDANTIC:
		return 2 * parts;
	case CUBLAS_COMPUTE_64F:
	case CUBLAS_COMPUTE_64F_PEDANTIC:
		return 8 * parts;
	default:
		return 4 * parts;
	}
}
#endif

#if defined(CUDNN_H_)
/* Of an attribute of a backend descriptor; 0: nobody knows. */
static inline uint64_t gantry_cudnn_element_bytes(cudnnBackendAttributeType_t type)
{
	switch ((int)type) {
	case CUDNN_TYPE_BOOLEAN:
	case CUDNN_TYPE_CHAR:
		return 1;
	case CUDNN_TYPE_HANDLE:
	case CUDNN_TYPE_INT64:
	case CUDNN_TYPE_DOUBLE:
	case CUDNN_TYPE_VOID_PTR:
	case CUDNN_TYPE_BACKEND_DESCRIPTOR:
		return 8;
	case CUDNN_TYPE_FRACTION:
		return sizeof(cudnnFraction_t);
	default:
		/* Enumerations and numbers of 32 bits, up to the last that cuDNN 9 has. */
		return type >= 0 && (int)type <= 30 ? 4 : 0;
	}
}
#endif

#if defined(NCCL_H_)
/*
 * What of a configuration, which @to may be, can go to another process: all but its texts. How much of it the caller has, its first member
 * says. Communicators that are not waited for would answer that they are not ready, and nobody asks again.
 */
static inline const ncclConfig_t *gantry_plain_ncclConfig_t(ncclConfig_t *to, const void *from)
{
	ncclConfig_t plain = NCCL_CONFIG_INITIALIZER;
	uint64_t bytes;

	memcpy(&bytes, from, sizeof(bytes));
	memcpy(&plain, from, bytes < sizeof(plain) ? bytes : sizeof(plain));
	if (plain.size > sizeof(plain))
		plain.size = sizeof(plain);
	plain.netName = NCCL_CONFIG_UNDEF_PTR;
	plain.commName = NCCL_CONFIG_UNDEF_PTR;
	plain.blocking = 1;
	*to = plain;
	return to;
}
#endif

#endif
