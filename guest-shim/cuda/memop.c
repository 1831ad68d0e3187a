/* SPDX-License-Identifier: Apache-2.0 */
/* Words that a stream writes or waits for: what may be asked for, and what becomes of it. */
#include "guest-shim/cuda/memop.h"

/* ---- what may be asked for ---- */

static bool is_wait(CUstreamBatchMemOpType type)
{
	return type == CU_STREAM_MEM_OP_WAIT_VALUE_32 || type == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static bool is_wide(CUstreamBatchMemOpType type)
{
	return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

static size_t bytes_of(CUstreamBatchMemOpType type)
{
	return is_wide(type) ? sizeof(uint64_t) : sizeof(uint32_t);
}

static CUresult check_wait(const struct CUstreamMemOpWaitValueParams_st *op)
{
	if (cu_is_far())
		return cu_unsupported("waits for values through a stream");
	if (op->flags & CU_STREAM_WAIT_VALUE_FLUSH)
		return cu_unsupported("waits for values that flush remote writes");
	return op->flags > CU_STREAM_WAIT_VALUE_NOR || !op->address ||
			       op->address % bytes_of(op->operation)
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

static CUresult check_write(const struct CUstreamMemOpWriteValueParams_st *op)
{
	if (op->flags == CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_NOT_SUPPORTED; /* of the interface that was before this one */
	return op->flags || !op->address || op->address % bytes_of(op->operation)
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

static CUresult check_op(const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return check_wait(&op->waitValue);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return check_write(&op->writeValue);
	case CU_STREAM_MEM_OP_BARRIER:
		return op->memoryBarrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU
			       ? CUDA_ERROR_INVALID_VALUE
			       : CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return cu_unsupported("flushes of remote writes in a stream");
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cu_memops_check(const CUstreamBatchMemOpParams *ops, unsigned int n, unsigned int flags)
{
	CUresult result = flags || n > CU_MEMOPS_MAX || (n && !ops) ? CUDA_ERROR_INVALID_VALUE
								    : CUDA_SUCCESS;

	for (unsigned int i = 0; i < n && result == CUDA_SUCCESS; i++)
		result = check_op(&ops[i]);
	return result;
}

/* ---- what becomes of it ---- */

/* Memory that has an address for the device; managed memory is left to programs and kernels. */
static CUresult look(CUdeviceptr address, size_t bytes, struct cu_word *ret_word)
{
	uint64_t off;
	const struct cu_alloc *alloc = cu_alloc_span_locked(address, bytes, &off);

	if (!alloc || !alloc->buffer || alloc->kind == CU_MEMORY_MANAGED ||
	    alloc->kind == CU_MEMORY_REGISTERED)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_word = (struct cu_word){ .buffer = alloc->buffer,
				      .off = off,
				      .is_wide = bytes == sizeof(uint64_t) };
	if (alloc->host)
		ret_word->host = (const void *)(uintptr_t)address;
	for (uint32_t i = 0; i < cu.ndevices; i++)
		if (cu.devices[i].index == alloc->device)
			ret_word->dev = &cu.devices[i];
	return CUDA_SUCCESS;
}

static CUresult put_wait(struct CUstream_st *stream,
			 const struct CUstreamMemOpWaitValueParams_st *op)
{
	struct cu_word word;
	CUresult result = cu_stream_room_locked(stream);

	if (result == CUDA_SUCCESS)
		result = look(op->address, bytes_of(op->operation), &word);
	return result == CUDA_SUCCESS
		       ? cu_await_put_locked(stream, &word, word.is_wide ? op->value64 : op->value,
					     op->flags)
		       : result;
}

/* A device fills as many as 4 bytes at once, and copies 8. */
static CUresult put_write(struct CUstream_st *stream,
			  const struct CUstreamMemOpWriteValueParams_st *op)
{
	uint64_t value = op->value64;

	if (!is_wide(op->operation))
		return cu_fill_locked(stream, op->address, op->value, sizeof(op->value), 1);
	return cu_copy_locked(stream, &(struct cu_copy){ .dst = op->address,
							 .src = (CUdeviceptr)(uintptr_t)&value,
							 .bytes = sizeof(value),
							 .src_may_be_pageable = true });
}

/* Each word is there before anything is put. */
static CUresult look_at_all(const CUstreamBatchMemOpParams *ops, unsigned int n)
{
	CUresult result = CUDA_SUCCESS;
	struct cu_word word;

	for (unsigned int i = 0; i < n && result == CUDA_SUCCESS; i++)
		if (is_wait(ops[i].operation))
			result = look(ops[i].waitValue.address, bytes_of(ops[i].operation), &word);
		else if (ops[i].operation != CU_STREAM_MEM_OP_BARRIER)
			result = look(ops[i].writeValue.address, bytes_of(ops[i].operation), &word);
	return result;
}

CUresult cu_memops_put_locked(struct CUstream_st *stream, const CUstreamBatchMemOpParams *ops,
			      unsigned int n)
{
	CUresult result;

	if (stream->capture)
		return cu_capture_work_locked(
			stream,
			&(struct cu_work){
				.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
				.memops = { .ctx = stream->ctx,
					    .count = n,
					    .paramArray =
						    (CUstreamBatchMemOpParams *)(uintptr_t)ops } },
			false);
	result = look_at_all(ops, n);
	for (unsigned int i = 0; i < n && result == CUDA_SUCCESS; i++) {
		/* The lock may be given up between them. */
		if (!cu_handle_is_locked(stream, CU_KIND_STREAM))
			return CUDA_ERROR_INVALID_HANDLE;
		if (is_wait(ops[i].operation))
			result = put_wait(stream, &ops[i].waitValue);
		else if (ops[i].operation != CU_STREAM_MEM_OP_BARRIER) /* tasks are in order */
			result = put_write(stream, &ops[i].writeValue);
	}
	return result;
}
