/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators whose ranks send to each other over the loopback, as NCCL's do. One process listens; a thread of it serves the
 * communicator: it takes as many ranks as there are, refuses two of one host on one GPU, and then answers each sum when all
 * ranks have sent their parts. A rank that goes takes the others' sums along: they are told, and do not hang.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nccl.h>

#include "tests/fakecuda/libraries/fake.h"

#define RANKS_MAX 8
#define GROUP_MAX 64

/* The header declares them without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

struct hello {
	int32_t nranks, rank, device;
	char host[64];
};

struct ncclComm {
	struct hello me;
	ncclUniqueId id;
	int fd;
	volatile ncclResult_t error;
};

static bool transfer(int fd, void *at, size_t bytes, bool out)
{
	while (bytes > 0) {
		ssize_t n = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at = (char *)at + n;
		bytes -= (size_t)n;
	}
	return true;
}

/* ---- who serves a communicator ---- */

struct server {
	int fd;
	int nranks;
	int ranks[RANKS_MAX];
	struct hello hellos[RANKS_MAX];
};

static bool has_two_of_one(const struct server *s)
{
	for (int i = 0; i < s->nranks; i++)
		for (int k = 0; k < i; k++)
			if (s->hellos[i].device == s->hellos[k].device &&
			    strcmp(s->hellos[i].host, s->hellos[k].host) == 0)
				return true;
	return false;
}

static bool gather(struct server *s)
{
	ncclResult_t said;
	bool good = true;

	s->nranks = 1;
	for (int n = 0; n < s->nranks; n++) {
		struct hello hello;
		int fd = accept(s->fd, NULL, NULL);

		if (fd < 0 || !transfer(fd, &hello, sizeof(hello), false) || hello.rank < 0 ||
		    hello.rank >= hello.nranks || hello.nranks > RANKS_MAX)
			return false;
		s->nranks = hello.nranks;
		s->ranks[hello.rank] = fd;
		s->hellos[hello.rank] = hello;
	}
	said = has_two_of_one(s) ? ncclInvalidUsage : ncclSuccess;
	for (int i = 0; i < s->nranks; i++)
		good = transfer(s->ranks[i], &said, sizeof(said), true) && good;
	return good && said == ncclSuccess;
}

/* A sum of all ranks; false: one has gone. */
static bool serve_sum(struct server *s)
{
	uint64_t count = 0;
	float *sum = NULL, *part = NULL;
	bool good = true;

	for (int i = 0; i < s->nranks && good; i++) {
		uint64_t n = 0;

		good = transfer(s->ranks[i], &n, sizeof(n), false) && (i == 0 || n == count);
		if (good && i == 0) {
			count = n;
			sum = calloc(n + 1, sizeof(*sum));
			part = calloc(n + 1, sizeof(*part));
		}
		good = good && sum && part &&
		       transfer(s->ranks[i], part, count * sizeof(*part), false);
		for (uint64_t k = 0; good && k < count; k++)
			sum[k] += part[k];
	}
	for (int i = 0; i < s->nranks && good; i++)
		good = transfer(s->ranks[i], sum, count * sizeof(*sum), true);
	free(sum);
	free(part);
	return good;
}

static void *serve(void *arg)
{
	struct server *s = arg;

	if (gather(s))
		while (serve_sum(s))
			;
	for (int i = 0; i < RANKS_MAX; i++)
		if (s->ranks[i] > 0)
			close(s->ranks[i]);
	close(s->fd);
	free(s);
	return NULL;
}

ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(at);
	struct server *s = calloc(1, sizeof(*s));
	pthread_t thread;

	if (!s)
		return ncclSystemError;
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || bind(s->fd, (struct sockaddr *)&at, len) < 0 ||
	    listen(s->fd, RANKS_MAX) < 0 || getsockname(s->fd, (struct sockaddr *)&at, &len) < 0 ||
	    pthread_create(&thread, NULL, serve, s) != 0) {
		if (s->fd >= 0)
			close(s->fd);
		free(s);
		return ncclSystemError;
	}
	pthread_detach(thread);
	memset(id->internal, 0, sizeof(id->internal));
	memcpy(id->internal, &at, sizeof(at));
	return ncclSuccess;
}

/* ---- ranks ---- */

/* NCCL asks NVML how GPUs are linked, where there is one. */
static bool begins_nvml(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_NOLOAD);
	int (*begin)(void) = library ? (int (*)(void))dlsym(library, "nvmlInit_v2") : NULL;

	return !begin || begin() == 0;
}

struct sum {
	const float *from;
	float *to;
	uint64_t count;
	ncclComm_t comm;
	void *stream;
};

/* What the calling thread has asked for since it opened its group. */
static _Thread_local struct {
	int depth, ncomms, nsums;
	ncclComm_t comms[GROUP_MAX];
	struct sum sums[GROUP_MAX];
} group;

static bool call_server(struct ncclComm *comm)
{
	struct sockaddr_in at;

	memcpy(&at, comm->id.internal, sizeof(at));
	comm->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return comm->fd >= 0 && connect(comm->fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
	       transfer(comm->fd, &comm->me, sizeof(comm->me), true);
}

/* All of them call before any waits: they may be of one communicator. */
static ncclResult_t connect_all(ncclComm_t *comms, int n)
{
	ncclResult_t result = ncclSuccess;

	for (int i = 0; i < n; i++)
		if (!call_server(comms[i]))
			result = ncclSystemError;
	for (int i = 0; i < n && result == ncclSuccess; i++)
		if (!transfer(comms[i]->fd, &result, sizeof(result), false))
			result = ncclRemoteError;
	return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	const char *host = getenv("NCCL_HOSTID");
	ncclComm_t made;
	ncclResult_t r;

	if (nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
		return ncclInvalidArgument;
	if (!begins_nvml())
		return ncclSystemError;
	made = calloc(1, sizeof(*made));
	if (!made)
		return ncclSystemError;
	made->fd = -1;
	made->id = id;
	made->me = (struct hello){ .nranks = nranks, .rank = rank, .device = fake_device() };
	snprintf(made->me.host, sizeof(made->me.host), "%s", host ? host : "");
	*comm = made;
	if (group.depth > 0) {
		if (group.ncomms == GROUP_MAX)
			return ncclInternalError;
		group.comms[group.ncomms++] = made;
		return ncclSuccess;
	}
	r = connect_all(&made, 1);
	if (r != ncclSuccess) {
		ncclCommDestroy(made);
		*comm = NULL;
	}
	return r;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	if (comm->fd >= 0)
		close(comm->fd);
	free(comm);
	return ncclSuccess;
}

/* What waits for others stops waiting first. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	if (comm->fd >= 0)
		shutdown(comm->fd, SHUT_RDWR);
	fake_wait_all();
	return ncclCommDestroy(comm);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
	*count = comm->me.nranks;
	return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	*rank = comm->me.rank;
	return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
	*device = comm->me.device;
	return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	*error = comm->error;
	return ncclSuccess;
}

static void add_up(void *args)
{
	const struct sum *s = args;

	if (!transfer(s->comm->fd, (void *)&s->count, sizeof(s->count), true) ||
	    !transfer(s->comm->fd, (void *)s->from, s->count * sizeof(float), true) ||
	    !transfer(s->comm->fd, s->to, s->count * sizeof(float), false))
		s->comm->error = ncclRemoteError;
}

static ncclResult_t begin_sum(const struct sum *s)
{
	return fake_enqueue(s->stream, add_up, s, sizeof(*s)) ? ncclUnhandledCudaError
							      : ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
			   ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
			   cudaStream_t stream)
{
	struct sum s = { sendbuff, recvbuff, count, comm, stream };

	if (!comm || datatype != ncclFloat || op != ncclSum)
		return ncclInvalidArgument;
	if (group.depth == 0)
		return begin_sum(&s);
	if (group.nsums == GROUP_MAX)
		return ncclInternalError;
	group.sums[group.nsums++] = s;
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	group.depth++;
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	ncclResult_t result;

	if (group.depth == 0)
		return ncclInvalidUsage;
	if (--group.depth > 0)
		return ncclSuccess;
	result = connect_all(group.comms, group.ncomms);
	for (int i = 0; i < group.nsums && result == ncclSuccess; i++)
		result = begin_sum(&group.sums[i]);
	group.ncomms = group.nsums = 0;
	return result;
}
