/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: words of memory that a stream writes or waits for. Compiled twice, as streams_api.c. */
#include "guest-shim/cuda/memop.h"
#include "guest-shim/cuda/streams.h"

CUresult CUDAAPI cuStreamBatchMemOp(CUstream handle, unsigned int n, CUstreamBatchMemOpParams *ops,
				    unsigned int flags)
{
	struct CUstream_st *stream = NULL;
	CUresult result = cu_memops_check(ops, n, flags);

	if (result == CUDA_SUCCESS)
		result = enter(handle, &stream);
	return result == CUDA_SUCCESS ? cu_leave(cu_memops_put_locked(stream, ops, n)) : result;
}

static CUresult wait_for(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address,
			 cuuint64_t value, unsigned int flags)
{
	CUstreamBatchMemOpParams op = { .waitValue = { .operation = type,
						       .address = address,
						       .value64 = value,
						       .flags = flags } };

	return cuStreamBatchMemOp(stream, 1, &op, 0);
}

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
				     unsigned int flags)
{
	return wait_for(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
				     unsigned int flags)
{
	return wait_for(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

static CUresult write_to(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address,
			 cuuint64_t value, unsigned int flags)
{
	CUstreamBatchMemOpParams op = { .writeValue = { .operation = type,
							.address = address,
							.value64 = value,
							.flags = flags } };

	return cuStreamBatchMemOp(stream, 1, &op, 0);
}

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
				      unsigned int flags)
{
	return write_to(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
				      unsigned int flags)
{
	return write_to(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
