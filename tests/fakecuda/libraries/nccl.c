/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of one rank, whose sum over all ranks is what that one has. */
#include <stdlib.h>
#include <string.h>

#include <nccl.h>

#include "tests/fakecuda/libraries/fake.h"

/* The header declares them without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

struct ncclComm {
	int device;
};

ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	memset(id->internal, 0x6e, sizeof(id->internal));
	return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	(void)id;
	if (nranks != 1 || rank != 0)
		return ncclInvalidUsage;
	*comm = calloc(1, sizeof(**comm));
	return *comm ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	free(comm);
	return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	return ncclCommDestroy(comm);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
	(void)comm;
	*count = 1;
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	return ncclSuccess;
}

struct sum {
	const void *from;
	void *to;
	size_t bytes;
};

static void sum(void *args)
{
	const struct sum *s = args;

	memmove(s->to, s->from, s->bytes);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
			   ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
			   cudaStream_t stream)
{
	struct sum args = { sendbuff, recvbuff, count * sizeof(float) };

	if (!comm || datatype != ncclFloat || op != ncclSum)
		return ncclInvalidArgument;
	return fake_enqueue(stream, sum, &args, sizeof(args)) ? ncclUnhandledCudaError
							      : ncclSuccess;
}
